#!/bin/sh
# decoder-1a2b3c4d/fp16-0f1e2d@10.14.1#nvidia-l4: the same as reproduce.sh, where TensorRT 10.14.1.48 and polygraphy==0.53.6, onnx and onnxruntime (pip) are installed.
cd -- "$(dirname -- "$0")" || exit
failed=0
set -x
python3 polygraphy_inputs.py reference reference.json || failed=1
polygraphy run model.onnx --trt --tf32 --fp16 --int8 --pool-limit workspace:4G \
  --precision-constraints obey --trt-network-postprocess-script polygraphy_inputs.py:keep_fp32 \
  --trt-min-shapes 'ids:0:[1,1]' 'mask:[1,1]' --trt-opt-shapes 'ids:0:[1,7]' 'mask:[1,7]' \
  --trt-max-shapes 'ids:0:[4,64]' 'mask:[4,64]' --data-loader-script polygraphy_inputs.py \
  --load-outputs reference.json --compare snr --snr-threshold logits:39.4 --validate || failed=1
polygraphy run model.onnx --trt --tf32 --fp16 --int8 --pool-limit workspace:4G \
  --precision-constraints obey --trt-network-postprocess-script polygraphy_inputs.py:keep_fp32 \
  --trt-min-shapes 'ids:0:[1,1]' 'mask:[1,1]' --trt-opt-shapes 'ids:0:[1,7]' 'mask:[1,7]' \
  --trt-max-shapes 'ids:0:[4,64]' 'mask:[4,64]' --onnxrt --data-loader-script polygraphy_inputs.py \
  --compare snr --snr-threshold logits:39.4 --validate || failed=1
exit "$failed"
