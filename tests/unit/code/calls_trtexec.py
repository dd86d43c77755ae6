"""trtexec, run from Python in the usual ways."""
import os
import subprocess
from subprocess import check_call


def convert(onnx, plan, workspace):
    cmd = [
        "trtexec",
        f"--onnx={onnx}",
        "--explicitBatch",  # expect: removed trtexec --explicitBatch
        f"--workspace={workspace}",  # expect: removed trtexec --workspace
    ]
    cmd.append("--best")
    cmd += ["--buildOnly"]  # possible: removed trtexec --buildOnly
    subprocess.run(cmd, check=True)
    os.system("/usr/src/tensorrt/bin/trtexec --explicitBatch --onnx=" + onnx)  # expect: removed trtexec --explicitBatch
    check_call(f"trtexec --loadEngine={plan} --workspace={workspace}", shell=True)  # expect: removed trtexec --workspace


def run(command):
    return subprocess.Popen(command)


run(["/opt/tensorrt/bin/trtexec", "--maxBatch=8"])  # expect: removed trtexec --maxBatch
subprocess.run(["othertool", "--explicitBatch", "--workspace=3"])
subprocess.run(["echo", "trtexec", "and so on"])
