#!/usr/bin/env bash
# trtexec --explicitBatch in a comment is no use
set -euo pipefail
TRTEXEC=/usr/src/tensorrt/bin/trtexec
FLAGS="--explicitBatch --fp16"
COMMON=(
  --workspace=4096   # MiB
  --verbose
)
FLAGS+=" --maxBatch=8"

echo "run trtexec --explicitBatch --workspace=1 yourself"
$TRTEXEC --onnx="$1" \
  $FLAGS "${COMMON[@]}" \
  --buildOnly \
  --saveEngine="${2:-out.plan}"

time CUDA_VISIBLE_DEVICES=0 trtexec --loadEngine=out.plan --iterations=10 | tee log.txt
OUT=$(trtexec --onnx=b.onnx --explicitBatch 2>&1)
othertool --explicitBatch --workspace=3
UNUSED="--explicitBatch"
bash -c "trtexec --onnx=c.onnx --workspace=1"
pip install tensorrt==8.6.1 numpy==1.26.4
