#!/bin/sh
# attention-1a2b/fp32-0f1e@onnxruntime-1.31.1#cpu: the same as reproduce.sh, where ONNX Runtime 1.31.1 and polygraphy==0.53.6, onnx and onnxruntime (pip) are installed.
cd -- "$(dirname -- "$0")" || exit
failed=0
set -x
python3 polygraphy_inputs.py reference reference.json || failed=1
polygraphy run model.onnx --onnxrt --graph-optimization-level ORT_DISABLE_ALL \
  --data-loader-script polygraphy_inputs.py --load-outputs reference.json --compare snr \
  --snr-threshold y:56.5 || failed=1
exit "$failed"
