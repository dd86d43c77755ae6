#!/bin/sh
# deformable-plugin/int64-fp16@9.2.0#nvidia-l4: the same as reproduce.sh, where TensorRT 9.2.0.5 and polygraphy==0.53.6, onnx and onnxruntime (pip) are installed.
# not beside ONNX Runtime: the graph has one of TensorRT's plugins
cd -- "$(dirname -- "$0")" || exit
failed=0
set -x
python3 polygraphy_inputs.py reference reference.json || failed=1
polygraphy run model.onnx --trt --tf32 --strongly-typed --pool-limit workspace:4G \
  --data-loader-script polygraphy_inputs.py --load-outputs reference.json --compare snr || failed=1
exit "$failed"
