#!/bin/sh
# sdpa-scale/control-lost-scale-tf32@8.6.0#nvidia-h200: the same as reproduce.sh, where TensorRT 8.6.0 and its trtexec are installed.
cd -- "$(dirname -- "$0")" || exit
failed=0
set -x
python3 polygraphy_inputs.py bins . --int32 || failed=1
trtexec --onnx=model.onnx --builderOptimizationLevel=0 --memPoolSize=workspace:4096 \
  --loadInputs=x:input-0.bin --iterations=1 --warmUp=0 --duration=0 --exportOutput=trtexec.json \
  --profilingVerbosity=detailed --exportLayerInfo=trtexec-layers.json || failed=1
python3 polygraphy_inputs.py compare trtexec.json || failed=1
exit "$failed"
