"""Pieces of upgrade reports with odd characters, long texts, NaN and None: findings, the API, a model."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from trtmatrix.api.types import ApiChange, ApiSection, ApiUse, Behaviour, Certainty, ChangeKind
from trtmatrix.judge.differences import Difference
from trtmatrix.model.outcomes import CheckOutcome, WrongLayer
from trtmatrix.suite.model import Cause, Evidence, Verdict
from trtmatrix.upgrade.report import (
    CaseLine,
    Change,
    FactLine,
    FindingLine,
    ModelSection,
    SampleFigure,
    Side,
    Source,
    Weight,
    WorkaroundLine,
)

BEFORE, AFTER = "10.7.0", "10.8.0"
ISSUE = "https://github.com/NVIDIA/TensorRT/issues/4333"
NOTES = "https://docs.nvidia.com/deeplearning/tensorrt/latest/getting-started/release-notes.html"
ODD = (
    "<script>alert(1)</script> & \"quotes\" 'n' `ticks` | bars | √x ≤ ∞ \x1b[31m\ud800 日本語 "
    "\N{ZERO WIDTH SPACE}end"
)
LONG = "a-very-long-name-without-any-place-to-break_" * 6


def side(version: str, verdict: Verdict | None, floors: float | None = 1.3, **fields: Any) -> Side:
    """A case at one version, measured unless it is said otherwise."""
    known: dict[str, Any] = {
        "evidence": Evidence.MEASURED if verdict else Evidence.NONE,
        "builds": 3 if verdict else 0,
        "word": f"{verdict.value} {floors}" if verdict and floors is not None else "",
        "floors": floors if verdict else None,
        "driver": "580.159.04" if verdict else "",
        "cell": f"sdpa-scale/sdpa-tf32@{version}#l4" if verdict else "",
    }
    return Side(version=version, verdict=verdict, **{**known, **fields})


def case(name: str, change: Change, weight: Weight, before: Side, after: Side, why: str = "") -> CaseLine:
    return CaseLine(
        repro="sdpa-scale", case=name, change=change, weight=weight, before=before, after=after, why=why
    )


GOOD, BAD = side(BEFORE, Verdict.PASS), side(BEFORE, Verdict.FAIL, 7.36, failed=3)
RECORD = Source(title="nvidia-l4/10.7.0/sdpa-scale/sdpa-tf32/20261120t115503-22aed80b.json")
REPORT = Source(title="NVIDIA/TensorRT#4333", url=ISSUE)

FIXED = FindingLine(
    repro="sdpa-scale", title="lost √scale in fused attention", upstream="NVIDIA/TensorRT#4333", url=ISSUE,
    change=Change.FIXED, weight=Weight.FOR, why="each of 2 cases that failed passes, 3 builds each",
    cases=(
        case(
            "sdpa-tf32", Change.FIXED, Weight.FOR,
            replace(
                BAD, reason="consistent with NVIDIA/TensorRT#4333 (lost √scale, c = 1.001)",
                sources=(RECORD, REPORT),
            ),
            side(AFTER, Verdict.PASS, 1.02), "7.36 noise floors before, 1.02 after",
        ),
        case(
            "sdpa-fp16-flag", Change.FIXED, Weight.FOR,
            side(BEFORE, Verdict.FAIL, math.nan, word="FAIL NaN"), side(AFTER, Verdict.PASS, 0.915),
        ),
        case("explicit-tf32", Change.UNCHANGED_GOOD, Weight.NOTE, GOOD, side(AFTER, Verdict.PASS, 1.0)),
    ),
)  # fmt: skip
REGRESSED = FindingLine(
    repro="gemm-mha-v2", title="wrong fused FP16 attention kernel _gemm_mha_v2",
    upstream="NVIDIA/TensorRT#3777", url="https://github.com/NVIDIA/TensorRT/issues/3777",
    change=Change.REGRESSED, weight=Weight.WORKAROUND,
    why="fp16-h3 fails after and passed before; a work-around passes at the target",
    cases=(
        case(
            "fp16-h3", Change.REGRESSED, Weight.WORKAROUND, side(BEFORE, Verdict.PASS, 0.97, builds=1),
            side(AFTER, Verdict.FLAKY, 133.0, failed=1, builds=4, word="FLAKY 1/4"),
        ),
        case(
            "fp16-d24", Change.UNKNOWN, Weight.LACKING, side(BEFORE, Verdict.INVALID, None, word="INVALID"),
            side(
                AFTER, Verdict.NO_VERDICT, None, word="TIME-OUT", reason="not done after 300 s",
                cause=Cause.TIME_OUT, doubted=True,
            ),
        ),
    ),
    workarounds=(
        WorkaroundLine(
            what="build with FP32 in the attention block", case="workaround-fp32-block", counts=True,
            after=side(AFTER, Verdict.PASS, 1.1), source=REPORT,
        ),
        WorkaroundLine(
            what="disable the fused kernel", case="workaround-no-fusion", counts=False, after=None
        ),
    ),
)  # fmt: skip
ODD_ONE = FindingLine(
    repro="streams", title=ODD, upstream=ODD, url="javascript:alert(1)", change=Change.UNCHANGED_BAD,
    weight=Weight.AGAINST, why=LONG,
    cases=(
        case(
            LONG[:80], Change.UNCHANGED_BAD, Weight.AGAINST, BAD, side(AFTER, Verdict.FAIL, 7.4, failed=3),
            ODD,
        ),
    ),
)  # fmt: skip
UNKNOWN = FindingLine(
    repro="deformable-plugin", title="INT64 inputs of the deformable attention plugin", upstream="", url="",
    change=Change.UNKNOWN, weight=Weight.LACKING, why="no case was run at 10.8.0",
    cases=(
        case(
            "int64-fp32", Change.UNKNOWN, Weight.LACKING,
            side(BEFORE, Verdict.PASS, 0.92, evidence=Evidence.RECORDED, word="[PASS¹ 0.92]", builds=1),
            side(AFTER, None, absent=True),
        ),
        case(
            "int64-fp16", Change.UNKNOWN, Weight.LACKING,
            side(BEFORE, Verdict.FAIL, None, evidence=Evidence.REPORTED, word="(FAIL)", builds=0),
            side(AFTER, None, feared=REPORT),
        ),
    ),
)  # fmt: skip

REMOVED = ApiChange(
    name="ICudaEngine.num_bindings", kind=ChangeKind.REMOVED, replacement="engine.num_io_tensors",
    note="names instead of numbers: get_tensor_name(i)", source="TensorRT 10.0 release notes", url=NOTES,
)  # fmt: skip
CHANGES = (
    REMOVED,
    ApiChange(
        name="IBuilderConfig.set_flag", kind=ChangeKind.CHANGED,
        before="set_flag(self, flag: BuilderFlag) -> None",
        after="set_flag(self: IBuilderConfig, flag: BuilderFlag, value: bool = True) -> None",
        source="tensorrt_cu12_bindings-10.7.0 and -10.8.0",
    ),
    ApiChange(name="BuilderFlag.FP16", kind=ChangeKind.DEPRECATED, source=ODD, url="https://example.org/a b"),
    *(ApiChange(name=f"IAddedLayer{n}.axis", kind=ChangeKind.ADDED, after="axis: int") for n in range(6)),
)  # fmt: skip
API = ApiSection(
    changes=CHANGES,
    behaviours=(
        Behaviour(
            topic="INT64", text="ONNX int64 stays int64: feeds and bindings change type", since="10.0",
            names=("OnnxParser.parse", "ICudaEngine.get_tensor_dtype"), source="release notes", url=NOTES,
        ),
        Behaviour(topic=ODD, text=LONG, since="10.8"),
    ),
    uses=(
        ApiUse(
            file="serve/engine.py", line=41, change=REMOVED, certainty=Certainty.SURE,
            text="    for i in range(self.engine.num_bindings):",
        ),
        ApiUse(
            file="serve/engine.py", line=97, change=CHANGES[1], certainty=Certainty.POSSIBLE,
            text="    config.set_flag(flag)", why="config comes from outside the file",
        ),
        ApiUse(
            file="notebooks/try it.ipynb", line=3, cell=12, change=CHANGES[2], certainty=Certainty.SURE,
            text=ODD,
        ),
    ),
    code=("serve", "notebooks"), files=37, unread=(("serve/old.py", "line 3: invalid syntax"), (ODD, ODD)),
    surfaces=("tensorrt_cu12_bindings-10.7.0-cp312-none-manylinux_2_17_x86_64.whl", ODD),
)  # fmt: skip

MODEL = ModelSection(
    name="detector.onnx", repro="own-detector-1f2e3d",
    reference="ONNX Runtime 1.31.1 on the CPU in float64, own error 2.1e-16",
    facts=(
        ("file", "detector.onnx, 2.3 GiB with external weights"), ("opset", "17"),
        ("inputs", "image 1×3×640×640 float32; ids 1×N int64 with N 16 to 512"), (ODD, LONG),
    ),
    floor="the same graph in FP16: 4.1e-4 relative L2",
    cases=(
        case(
            "fp16", Change.REGRESSED, Weight.AGAINST, GOOD, side(AFTER, Verdict.FAIL, 12.5, failed=3),
            "boxes are off",
        ),
    ),
    samples=(
        SampleFigure(
            output="boxes", version=BEFORE, unit="floors", median=0.8, p90=1.1, worst=1.3, worst_sample=17,
            samples=64,
        ),
        SampleFigure(
            output="boxes", version=AFTER, unit="floors", median=2.5, p90=9.5, worst=math.nan,
            worst_sample=3, samples=64,
        ),
    ),
    differences=(
        Difference(
            output="boxes", max_abs=3.5, mean_abs=0.02, rel_l2=math.nan, worst_sample=3, samples=64, nan=2,
            note=ODD,
        ),
    ),
    check=CheckOutcome(script="accept.py", passed=False, figure=0.871, label="mAP"),
    wrong_layers=(
        WrongLayer(
            version=AFTER, tensor="/blocks.3/attn/MatMul_output_0", node="/blocks.3/attn/MatMul",
            operator="MatMul", error="12.5 noise floors, 1.1 before it",
            steps=(
                "marked 8 of 412 tensors: fails still",
                "marked 4 between /blocks.2 and /blocks.4: fails still",
            ),
        ),
        WrongLayer(version=BEFORE, why_not="marking any output cured the failure: it is a fusion's"),
    ),
    troubles=("sample 12 has no array for ids: left out", ODD),
    nodes=(
        FactLine(
            topic="Resize ×1 (/up/Resize)", text="antialiasing; new at 10.8.0", weight=Weight.AGAINST,
            known="reported", sources=(Source(title="NVIDIA/TensorRT#3560", url="https://github.com/NVIDIA/TensorRT/issues/3560"),),
        ),
    ),
)  # fmt: skip
