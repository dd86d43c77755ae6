#!/bin/sh
# sdpa-scale/control-lost-scale-tf32@8.6.0#nvidia-h200: the same as reproduce.sh, where TensorRT 8.6.0 and polygraphy==0.53.6, onnx and onnxruntime (pip) are installed.
cd -- "$(dirname -- "$0")" || exit
failed=0
set -x
python3 polygraphy_inputs.py reference reference.json || failed=1
polygraphy run model.onnx --trt --tf32 --builder-optimization-level 0 --pool-limit workspace:4G \
  --data-loader-script polygraphy_inputs.py --load-outputs reference.json --compare snr \
  --snr-threshold y:56.5 || failed=1
polygraphy run model.onnx --trt --tf32 --builder-optimization-level 0 --pool-limit workspace:4G \
  --onnxrt --data-loader-script polygraphy_inputs.py --compare snr --snr-threshold y:56.5 || failed=1
exit "$failed"
