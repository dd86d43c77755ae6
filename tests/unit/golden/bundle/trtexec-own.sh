#!/bin/sh
# decoder-1a2b3c4d/fp16-0f1e2d@10.14.1#nvidia-l4: the same as reproduce.sh, where TensorRT 10.14.1.48 and its trtexec are installed.
# trtexec keeps layers in FP32 by name, and this case by type: Softmax
# of 2 samples trtexec is given the first
cd -- "$(dirname -- "$0")" || exit
failed=0
set -x
python3 polygraphy_inputs.py bins . || failed=1
trtexec --onnx=model.onnx --fp16 --int8 --memPoolSize=workspace:4096 --minShapes=ids:0:1x1,mask:1x1 \
  --optShapes=ids:0:1x7,mask:1x7 --maxShapes=ids:0:4x64,mask:4x64 --shapes=ids:0:1x7,mask:1x7 \
  --loadInputs=ids:0:input-0.bin,mask:input-1.bin --iterations=1 --warmUp=0 --duration=0 \
  --exportOutput=trtexec.json --profilingVerbosity=detailed --exportLayerInfo=trtexec-layers.json || failed=1
python3 polygraphy_inputs.py compare trtexec.json || failed=1
exit "$failed"
