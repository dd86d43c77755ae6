"""The upgrade reports that the renderers are tested with: one that has everything, one that has nothing.

The first has odd characters, long texts, NaN and None: in its findings, the API and a model of one's own.
"""

import math
from dataclasses import is_dataclass, replace
from functools import cache, partial
from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from trtmatrix.api.types import ApiChange, ApiSection, ApiUse, ChangeKind, Kept
from trtmatrix.judge.differences import Difference
from trtmatrix.model.outcomes import CheckOutcome, WrongLayer
from trtmatrix.suite.model import Cause, Evidence, Product, Verdict
from trtmatrix.upgrade import report
from trtmatrix.upgrade.report import (
    Change,
    Decision,
    FactLine,
    Lacking,
    Side,
    Source,
    Spread,
    Upgrade,
    Weight,
)

BEFORE, AFTER = "10.7.0", "10.8.0"
ISSUE = "https://github.com/NVIDIA/TensorRT/issues/4333"
NOTES = "https://docs.nvidia.com/deeplearning/tensorrt/latest/getting-started/release-notes.html"
ODD = (
    "<script>alert(1)</script> & \"quotes\" 'n' `ticks` | bars | √x ≤ ∞ \x1b[31m 日本語 "
    "\N{ZERO WIDTH SPACE}end"
)
LONG = "a-very-long-name-without-any-place-to-break_" * 6


def side(version: str, verdict: Verdict | None, floors: float | None = 1.3, **fields: Any) -> Side:
    """A case at one version, measured unless it is said otherwise."""
    known: dict[str, Any] = {"evidence": Evidence.NONE}
    if verdict:
        known = {
            "evidence": Evidence.MEASURED, "builds": 3, "floors": floors, "driver": "580.159.04",
            "word": "" if floors is None else f"{verdict.value} {floors}",
            "cell": f"sdpa-scale/sdpa-tf32@{version}#l4",
        }  # fmt: skip
    return Side(version=version, verdict=verdict, **{**known, **fields})


was, will = partial(side, BEFORE), partial(side, AFTER)


def case(
    name: str, change: Change, weight: Weight, before: Side, after: Side, why: str = ""
) -> report.CaseLine:
    return report.CaseLine(
        repro="sdpa-scale", case=name, change=change, weight=weight, before=before, after=after, why=why
    )


def fact(topic: str, text: str, weight: Weight, known: str = "", *sources: Source) -> FactLine:
    return FactLine(topic=topic, text=text, weight=weight, known=known, sources=sources)


PASS, FAIL = Verdict.PASS, Verdict.FAIL
GOOD, BAD = was(PASS), was(FAIL, 7.36)
RECORD = Source(title="nvidia-l4/10.7.0/sdpa-scale/sdpa-tf32/20261120t115503-22aed80b.json")
REPORT = Source(title="NVIDIA/TensorRT#4333", url=ISSUE)
LOST = "consistent with NVIDIA/TensorRT#4333 (lost √scale, c = 1.001)"

FIXED = report.FindingLine(
    repro="sdpa-scale", title="lost √scale in fused attention", source=REPORT,
    change=Change.FIXED, weight=Weight.FOR, why="each of 2 cases that failed passes, 3 builds each",
    cases=(
        case("sdpa-tf32", Change.FIXED, Weight.FOR, replace(BAD, reason=LOST, sources=(RECORD, REPORT)),
             will(PASS, 1.02), "7.36 noise floors before, 1.02 after"),
        case("sdpa-fp16-flag", Change.FIXED, Weight.FOR, was(FAIL, math.nan, word="FAIL NaN"),
             will(PASS, 0.915)),
        case("explicit-tf32", Change.UNCHANGED_GOOD, Weight.NOTE, GOOD, will(PASS, 1.0)),
    ),
)  # fmt: skip
REGRESSED = report.FindingLine(
    repro="gemm-mha-v2", title="wrong fused FP16 attention kernel _gemm_mha_v2",
    source=Source(title="NVIDIA/TensorRT#3777", url="https://github.com/NVIDIA/TensorRT/issues/3777"),
    change=Change.REGRESSED, weight=Weight.WORKAROUND,
    why="fp16-h3 fails after and passed before; a work-around passes at the target",
    cases=(
        case("fp16-h3", Change.REGRESSED, Weight.WORKAROUND, was(PASS, 0.97, builds=1),
             will(Verdict.FLAKY, 133.0, builds=4, word="FLAKY 1/4")),
        case("fp16-d24", Change.UNKNOWN, Weight.LACKING, was(Verdict.INVALID, None, word="INVALID"),
             will(Verdict.NO_VERDICT, None, word="TIME-OUT", reason="not done after 300 s",
                  cause=Cause.TIME_OUT, doubted=True)),
    ),
    workarounds=(
        report.WorkaroundLine(
            what="build with FP32 in the attention block", case="workaround-fp32-block", counts=True,
            after=will(PASS, 1.1), source=REPORT,
        ),
        report.WorkaroundLine(
            what="disable the fused kernel", case="workaround-no-fusion", counts=False, after=None
        ),
    ),
)  # fmt: skip
ODD_ONE = report.FindingLine(
    repro="streams", title=ODD, source=Source(title=ODD, url="javascript:alert(1)"),
    change=Change.UNCHANGED_BAD, weight=Weight.AGAINST, why=LONG,
    cases=(
        case(LONG[:80], Change.UNCHANGED_BAD, Weight.AGAINST, BAD, will(FAIL, 7.4), ODD),
    ),
)  # fmt: skip
UNKNOWN = report.FindingLine(
    repro="deformable-plugin", title="INT64 inputs of the deformable attention plugin",
    source=Source(title=""),
    change=Change.UNKNOWN, weight=Weight.LACKING, why="no case was run at 10.8.0",
    cases=(
        case("int64-fp32", Change.UNKNOWN, Weight.LACKING,
             was(PASS, 0.92, evidence=Evidence.RECORDED, word="[PASS¹ 0.92]", builds=1),
             will(None, absent=True)),
        case("int64-fp16", Change.UNKNOWN, Weight.LACKING,
             was(FAIL, None, evidence=Evidence.REPORTED, word="(FAIL)", builds=0),
             will(None, feared=REPORT)),
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
        Kept(
            name="INT64", note="ONNX int64 stays int64: feeds and bindings change type", since="10.0",
            names=("OnnxParser.parse", "ICudaEngine.get_tensor_dtype"), source="release notes", url=NOTES,
        ),
        Kept(name=ODD, note=LONG, since="10.8"),
    ),
    uses=(
        ApiUse(file="serve/engine.py", line=41, change=REMOVED,
               text="    for i in range(self.engine.num_bindings):"),
        ApiUse(file="serve/engine.py", line=97, change=CHANGES[1],
               text="    config.set_flag(flag)", why="config comes from outside the file"),
        ApiUse(file="notebooks/try it.ipynb", line=3, cell=12, change=CHANGES[2],
               text=ODD),
    ),
    code=("serve", "notebooks"), files=37, unread=(("serve/old.py", "line 3: invalid syntax"), (ODD, ODD)),
    surfaces=("tensorrt_cu12_bindings-10.7.0-cp312-none-manylinux_2_17_x86_64.whl", ODD),
)  # fmt: skip

RESIZE = Source(title="NVIDIA/TensorRT#3560", url="https://github.com/NVIDIA/TensorRT/issues/3560")
boxes = partial(report.SampleFigure, output="boxes", unit="floors", samples=64)
MODEL = report.ModelSection(
    name="detector.onnx", repro="own-detector-1f2e3d",
    reference="ONNX Runtime 1.31.1 on the CPU in float64, own error 2.1e-16",
    facts=(
        ("file", "detector.onnx, 2.3 GiB with external weights"), ("opset", "17"),
        ("inputs", "image 1×3×640×640 float32; ids 1×N int64 with N 16 to 512"), (ODD, LONG),
    ),
    floor="the same graph in FP16: 4.1e-4 relative L2",
    cases=(
        case("fp16", Change.REGRESSED, Weight.AGAINST, GOOD, will(FAIL, 12.5), "boxes are off"),
    ),
    samples=(
        boxes(version=BEFORE, median=0.8, p90=1.1, worst=1.3, worst_sample=17),
        boxes(version=AFTER, median=2.5, p90=9.5, worst=math.nan, worst_sample=3),
    ),
    differences=(
        Difference(output="boxes", max_abs=3.5, mean_abs=0.02, rel_l2=math.nan, worst_sample=3, samples=64,
                   nan=2, note=ODD),
    ),
    check=CheckOutcome(script="accept.py", passed=False, figure=0.871, label="mAP"),
    wrong_layers=(
        WrongLayer(
            version=AFTER, tensor="/blocks.3/attn/MatMul_output_0", node="/blocks.3/attn/MatMul",
            operator="MatMul", error="12.5 noise floors, 1.1 before it",
            steps=("marked 8 of 412 tensors: fails still",
                   "marked 4 between /blocks.2 and /blocks.4: fails still"),
        ),
        WrongLayer(version=BEFORE, why_not="marking any output cured the failure: it is a fusion's"),
    ),
    troubles=("sample 12 has no array for ids: left out", ODD),
    nodes=(
        fact("Resize ×1 (/up/Resize)", "antialiasing; new at 10.8.0", Weight.AGAINST, "reported", RESIZE),
    ),
)  # fmt: skip

GPU_AND_DRIVER = (
    fact("compute capability", "8.9 is supported by both.", Weight.NOTE, "read",
         Source(title="support matrix", url=NOTES)),
    fact("driver", "the image of 10.8.0 wants 570 or later, here is 580.159.04.", Weight.FOR, "read"),
)  # fmt: skip


def same(value: float) -> Spread:
    return Spread(median=value, low=value, high=value, count=1)


LATENCIES = (
    Spread(median=0.28, low=0.27, high=0.31, count=50), Spread(median=0.12, low=0.12, high=0.14, count=50),
)  # fmt: skip
PERFORMANCE = (
    report.PerformanceLine(
        repro="gemm-mha-v2", case="fp16-h3", measure="latency", unit="ms", before=LATENCIES[0],
        after=LATENCIES[1], ratio=0.43, told_apart=True, p_value=0.05, by_turns=True,
    ),
    report.PerformanceLine(
        repro="gemm-mha-v2", case="fp16-h3", measure="engine size", unit="bytes", before=same(1329220.0),
        after=same(2329220.0), ratio=1.75, told_apart=False, why_not="another driver",
    ),
    report.PerformanceLine(
        repro="sdpa-scale", case="sdpa-tf32", measure="build time", unit="s", before=None,
        after=Spread(median=math.nan, low=0.5, high=math.inf, count=3), ratio=None, told_apart=False,
    ),
)  # fmt: skip
ZEROS = Source(title="pytorch/TensorRT#2991", url="https://github.com/pytorch/TensorRT/issues/2991")


def full_upgrade() -> Upgrade:
    """A report in which every section is filled."""
    return Upgrade(
        product=Product.TENSORRT, before=BEFORE, after=AFTER, gpu="NVIDIA L4",
        gpu_note="compute capability 8.9 · driver 580.159.04 · in this host", decision=Decision.DONT,
        summary="Don't move to 10.8.0 on an L4: one finding is unchanged and bad, one regressed.",
        reasons=(
            fact("streams", "still gives zeros where the engine and the caller do not wait.", Weight.AGAINST,
                 "measured here: 20 of 1000 trials", RECORD, ZEROS),
            fact("gemm-mha-v2", "regressed in fp16-h3; building the block in FP32 helps.", Weight.WORKAROUND,
                 "measured here", RECORD),
            fact("deformable-plugin", "was not run at 10.8.0.", Weight.LACKING),
            fact("sdpa-scale", "is fixed: 7.36 noise floors before, 1.02 after.", Weight.FOR,
                 "measured here"),
            fact(ODD, ODD, Weight.NOTE, ODD, Source(title=ODD, url="http://example.org")),
        ),
        findings=(ODD_ONE, REGRESSED, UNKNOWN, FIXED), gpu_and_driver=GPU_AND_DRIVER,
        performance=PERFORMANCE, api=API,
        engines=(
            fact("engines", "all: an engine runs only with the version that built it.", Weight.NOTE, "read",
                 Source(title="developer guide", url=NOTES)),
        ),
        models=(MODEL,),
        lacking=(
            Lacking(
                what="No case of deformable-plugin was run at 10.8.0.",
                command="nox -s upgrade -- --from 10.7.0 --to 10.8.0 --gpu L4 --repro deformable-plugin",
            ),
            Lacking(what=ODD, command="first line \\\n  --second '<line>' && echo \"$HOME\""),
        ),
        not_looked_at=("Accuracy of INT8 with your own calibration.", "Multi-GPU.", ODD),
        command="python -m trtmatrix upgrade --from 10.7.0 --to 10.8.0 --gpu L4 --model detector.onnx",
        generated="2026-11-21 20:00 UTC",
    )  # fmt: skip


def bare_upgrade() -> Upgrade:
    """A report of which nothing is known."""
    return Upgrade(
        product=Product.TENSORRT, before="8.6.1", after="10.8.0", gpu="", gpu_note="",
        decision=Decision.NOT_ENOUGH, summary="", reasons=(), findings=(),
    )  # fmt: skip


@cache
def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values made by chance, as their type allows them; of what there may be many, at most two."""
    match kind, get_origin(kind), get_args(kind):
        case _, _, (part, end) if end is ...:
            return st.lists(any_of(part), max_size=2).map(tuple)
        case _, origin, parts if origin is tuple:
            return st.tuples(*map(any_of, parts))
        case type(), None, _ if is_dataclass(kind):
            return st.builds(kind, **{name: any_of(hint) for name, hint in get_type_hints(kind).items()})
        case _, _, (*parts,) if parts:
            return st.one_of(*map(any_of, parts))
    return st.text(max_size=9) | st.sampled_from((ODD, LONG)) if kind is str else st.from_type(kind)
