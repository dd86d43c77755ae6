#!/bin/sh
# deformable-plugin/int64-fp16@9.2.0#nvidia-l4: the same as reproduce.sh, where TensorRT 9.2.0.5 and its trtexec are installed.
cd -- "$(dirname -- "$0")" || exit
failed=0
set -x
python3 polygraphy_inputs.py bins . --int32 || failed=1
trtexec --onnx=model.onnx --stronglyTyped --memPoolSize=workspace:4096 \
  --loadInputs=value:input-0.bin --iterations=1 --warmUp=0 --duration=0 --exportOutput=trtexec.json \
  --profilingVerbosity=detailed --exportLayerInfo=trtexec-layers.json || failed=1
python3 polygraphy_inputs.py compare trtexec.json || failed=1
exit "$failed"
