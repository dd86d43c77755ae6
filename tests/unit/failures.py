"""Failures as archives tell of them: one for each form and each kind of product."""

from __future__ import annotations

from dataclasses import replace

from trtmatrix.core.bundle.facts import (
    ChangeLine,
    Environment,
    Failure,
    Image,
    LeftOut,
    OutputLine,
    Recipe,
    VersionLine,
)
from trtmatrix.core.model import CellId, Evidence, Product, Verdict

ISSUE = "https://github.com/NVIDIA/TensorRT/issues/4333"
H200 = Environment(
    library="8.6.0", bindings="8.6.0", gpu="NVIDIA H200", gpu_count=1, compute="9.0", variant="140 GiB",
    driver="580.159.04", driver_cuda="13.0", libcuda="/usr/local/nvidia/lib64/libcuda.so.580.159.04",
    clocks={"memory_mhz": 3201, "power_limit_w": 700.0, "sm_mhz": 1980}, cuda="12.0", cudnn="8.9.1",
    os="Debian GNU/Linux 12 (bookworm)", host_os="Linux 6.1", machine="x86_64", python="3.10.13", numpy="1.26.4",
)  # fmt: skip
OUTPUT = OutputLine(
    name="y", dtype="float32", shape=(6, 1568, 384), rel_l2=0.0027546614, floors=7.359501502, max_abs=0.0023120714,
    worst_at=2792328, worst_y=0.14072683453559875, worst_r=0.13841476310661893,
)  # fmt: skip

CONTROL = Failure(
    cell=CellId.parse("sdpa-scale/control-lost-scale-tf32@8.6.0#nvidia-h200"), product=Product.TENSORRT,
    product_name="TensorRT", version="8.6.0", title="lost √scale in fused attention",
    upstream="NVIDIA/TensorRT#4333", url=ISSUE, kind="Accuracy", verdict=Verdict.FAIL,
    summary="torch exports scaled_dot_product_attention with √scale multiplied onto q and onto kᵀ. TensorRT "
    "10.7 computes that wrongly, and the same attention written out rightly.",
    reason="y: 7.36 noise floors; consistent with NVIDIA/TensorRT#4333 (one √scale lost, c = 1.008)",
    figure="7.36", figure_label="error as a multiple of the noise floor",
    manner="output y has the error of one lost √scale (c = 1.008, which explains 97% of it)", builds=3, failed=3,
    params={"precision": "tf32", "level": 0, "batch": 6}, precision="tf32", environment=H200,
    image=Image(
        name="trtmatrix/tensorrt:8.6.0", id=f"sha256:{'c' * 64}", tag="trtmatrix/tensorrt:8.6.0",
        build="sh image/build.sh",
    ),
    outputs=(OUTPUT,),
    versions=(
        VersionLine(
            version="8.6.0", library="8.6.0", verdict=Verdict.FAIL, figure="7.36", builds=3, driver="580.159.04",
            evidence=Evidence.MEASURED, image=f"trtmatrix/tensorrt:8.6.0 (sha256:{'c' * 12}…)", is_this=True,
        ),
        VersionLine(version="10.7.0"),
    ),
    changes=(
        ChangeLine(change="TF32 off", fails=True, verdict=Verdict.FAIL, figure="6434", builds=3),
        ChangeLine(change="level 3", fails=True, verdict=Verdict.FAIL, figure="7.25", builds=3),
        ChangeLine(change="one more output marked: /Softmax_output_0", why_not="no such tensor in the network"),
    ),
    latest="8.6.0", newest_known="11.4.0",
    latest_words="its image is in NVIDIA's registry, which this host cannot reach",
    on_cpu="ONNX Runtime 1.31.1 on the CPU gives the same wrong numbers for this graph (6434 floors, float32).",
    tool="0.7.0", measured_on="2026-11-21", is_control=True,
    recipe=Recipe(
        precision="tf32", level=0, inputs={"x": "x"}, outputs={"y": "y"}, shapes={"x": (6, 1568, 384)}
    ),
    notes=("8.6.0 is an early access release",),
)  # fmt: skip

OWN = replace(
    CONTROL, cell=CellId.parse("decoder-1a2b3c4d/fp16-0f1e2d@10.14.1#nvidia-l4"), version="10.14.1",
    title="your model decoder.onnx", upstream="your own model", url="docs/upgrade.md", own_model=True,
    summary="Inputs: 2 samples. Opset 17.", is_control=False, precision="fp16-flag",
    reason="logits.s1: 41.2 noise floors (relative L2 error 0.11)", manner="logits is 41.2 noise floors off",
    figure="41.2", failed=2, builds=3,
    environment=replace(
        H200, library="10.14.1.48", bindings="10.14.1.48", gpu="NVIDIA L4", compute="8.9", variant="23 GiB",
        cuda="13.0.2", cudnn="9.14.0", os="Ubuntu 24.04.3 LTS", python="3.12.3", torch="2.9.0a0",
        variables={"NVIDIA_TF32_OVERRIDE": "0"},
    ),
    image=Image(
        name="nvcr.io/nvidia/tensorrt:25.11-py3", id=f"sha256:{'d' * 64}",
        reference=f"nvcr.io/nvidia/tensorrt@sha256:{'e' * 64}",
    ),
    outputs=(
        OutputLine(name="logits.s0", dtype="float32", shape=(1, 7, 32), rel_l2=0.001, floors=1.1, max_abs=0.01),
        OutputLine(
            name="logits.s1", dtype="float32", shape=(2, 9, 32), rel_l2=0.11, floors=41.2, max_abs=1.5, nan=3,
            worst_at=575, worst_y=-2.0, worst_r=-0.5,
        ),
    ),
    versions=(
        VersionLine(
            version="10.13.3", library="10.13.3.9", verdict=Verdict.PASS, figure="1.12", builds=3,
            driver="580.95.05", evidence=Evidence.RECORDED, image=f"nvcr.io/nvidia/tensorrt@sha256:{'f' * 64}",
        ),
        VersionLine(
            version="10.14.1", library="10.14.1.48", verdict=Verdict.FLAKY, figure="41.2", builds=3,
            driver="580.95.05", evidence=Evidence.MEASURED, is_this=True,
        ),
        VersionLine(version="11.4.0", verdict=Verdict.FAIL, evidence=Evidence.REPORTED, source=ISSUE),
    ),
    changes=(), workarounds=(), nearest_good="10.13.3", latest="10.14.1",
    left_out=(LeftOut(name="outputs-good.npz", sha256="a" * 64, size=31_000_000, why="above 25 MB"),),
    reference_by="ONNX Runtime 1.31.1 on the CPU, with the graph rewritten to float64",
    on_cpu="ONNX Runtime 1.31.1 on the CPU is right (1.02 floors, float32).",
    recipe=Recipe(
        precision="fp16-flag", quantized=("int8",), samples=2, inputs={"ids": "ids:0", "mask": "mask"},
        outputs={"logits": "logits"}, marked=(), keep_fp32=("Softmax",),
        profile={"ids:0": ((1, 1), (1, 7), (4, 64)), "mask": ((1, 1), (1, 7), (4, 64))},
        shapes={"ids:0": (1, 7), "mask": (1, 7)},
    ),
    notes=(),
)  # fmt: skip

TORCH = replace(
    CONTROL, cell=CellId.parse("streams-torch/late-buffer-cpp-half@10.3.0#nvidia-l4"), version="10.3.0",
    title="Torch-TensorRT called inside a stream of the caller's own", upstream="pytorch/TensorRT#2991",
    url="https://github.com/pytorch/TensorRT/issues/2991", summary="An engine runs on the stream that it took "
    "when it was made, whatever stream it is called on.", kind="Output", is_control=False, precision="",
    reason="wrong: 30, limit 0", manner="30 of 30 outputs are wrong, all of them read too early", figure="30",
    figure_label="wrong outputs",
    environment=replace(
        OWN.environment, library="10.3.0.26", bindings="10.3.0", torch="2.5.0a0+872d972e41",
        torch_tensorrt="2.5.0a0", variables={},
    ),
    image=replace(OWN.image or Image(name="", id=""), name="nvcr.io/nvidia/pytorch:24.08-py3"),
    outputs=(), versions=(), changes=(), on_cpu="", recipe=None, latest="10.8.0", newest_known="10.8.0",
    workarounds=("call it outside any stream of your own",), notes=(),
)  # fmt: skip
TORCH = replace(
    TORCH, versions=(
        VersionLine(version="10.3.0", verdict=Verdict.FAIL, figure="30", builds=3, evidence=Evidence.MEASURED, is_this=True),
        VersionLine(version="10.8.0", verdict=Verdict.PASS, figure="0", builds=3, evidence=Evidence.MEASURED),
    ), nearest_good="10.8.0",
)  # fmt: skip

BUILD = replace(
    CONTROL, cell=CellId.parse("deformable-plugin/int64-fp16@9.2.0#nvidia-l4"), version="9.2.0",
    title="MultiscaleDeformableAttnPlugin_TRT with int64 inputs", upstream="NVIDIA/TensorRT#3777",
    url="https://github.com/NVIDIA/TensorRT/issues/3777", summary="", kind="Build", is_control=False,
    precision="fp16", reason="build failed: could not find any supported formats", figure="", outputs=(),
    manner="the build fails: could not find any supported formats consistent with input/output data types",
    message="[E] Error Code 9: Internal Error (/plugin: could not find any supported formats consistent with "
    "input/output data types)\n[E] the builder returned no engine",
    environment=replace(OWN.environment, library="9.2.0.5", bindings="9.2.0.post12.dev5", torch=""),
    image=Image(name="trtmatrix/tensorrt:9.2.0", id=f"sha256:{'b' * 64}"), builds=1, failed=1,
    versions=(), changes=(), on_cpu="", latest="", newest_known="", latest_words="", measured_on="",
    recipe=Recipe(
        precision="fp16", plugins=True, inputs={"value": "value"}, outputs={"y": "y"},
        shapes={"value": (1, 340, 8, 32)},
    ),
    notes=(),
)  # fmt: skip

ONNXRUNTIME = replace(
    CONTROL, cell=CellId.parse("attention-1a2b/fp32-0f1e@onnxruntime-1.31.1#cpu"), product=Product.ONNXRUNTIME,
    product_name="ONNX Runtime", version="onnxruntime-1.31.1", own_model=True, title="your model attention.onnx",
    upstream="your own model", url="", summary="", is_control=False, precision="fp32", builds=1, failed=1,
    environment=Environment(
        library="1.31.1", bindings="1.31.1", os="Debian GNU/Linux 12 (bookworm)", machine="x86_64",
        python="3.11.2", numpy="2.4.1", variables={"ORT_DISABLE_TELEMETRY": "1"},
    ),
    image=Image(name="trtmatrix/test-defective:latest", id=f"sha256:{'a' * 64}"), versions=(), changes=(),
    latest="onnxruntime-1.31.1", newest_known="onnxruntime-1.31.1", latest_words="", on_cpu="",
    reference_by="ONNX Runtime in the host's own Python, with the graph rewritten to float64", notes=(),
)  # fmt: skip

EACH = {"control": CONTROL, "own": OWN, "torch": TORCH, "build": BUILD, "onnxruntime": ONNXRUNTIME}
