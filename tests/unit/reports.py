"""The upgrade reports that the renderers are tested with: one that has everything, one that has nothing."""

from __future__ import annotations

import math
from dataclasses import is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from reportparts import (
    AFTER,
    API,
    BEFORE,
    FIXED,
    LONG,
    MODEL,
    NOTES,
    ODD,
    ODD_ONE,
    RECORD,
    REGRESSED,
    UNKNOWN,
)

from trtmatrix.suite.model import Product
from trtmatrix.upgrade.report import (
    Decision,
    FactLine,
    Lacking,
    PerformanceLine,
    Source,
    Spread,
    Upgrade,
    Weight,
)

GPU_AND_DRIVER: tuple[FactLine, ...] = (
    FactLine(
        topic="compute capability", text="8.9 is supported by both.", weight=Weight.NOTE,
        known="read", sources=(Source(title="support matrix", url=NOTES),),
    ),
    FactLine(
        topic="driver", text="the image of 10.8.0 wants 570 or later, here is 580.159.04.",
        weight=Weight.FOR, known="read",
    ),
)  # fmt: skip
PERFORMANCE: tuple[PerformanceLine, ...] = (
    PerformanceLine(
        repro="gemm-mha-v2", case="fp16-h3", measure="latency", unit="ms",
        before=Spread(median=0.28, low=0.27, high=0.31, count=50),
        after=Spread(median=0.12, low=0.12, high=0.14, count=50), ratio=0.43, told_apart=True,
        p_value=0.05, clocks="1980 MHz at both",
    ),
    PerformanceLine(
        repro="gemm-mha-v2", case="fp16-h3", measure="engine size", unit="bytes",
        before=Spread(median=1329220.0, low=1329220.0, high=1329220.0, count=1),
        after=Spread(median=2329220.0, low=2329220.0, high=2329220.0, count=1), ratio=1.75,
        told_apart=False, why_not="another driver",
    ),
    PerformanceLine(
        repro="sdpa-scale", case="sdpa-tf32", measure="build time", unit="s", before=None,
        after=Spread(median=math.nan, low=0.5, high=math.inf, count=3), ratio=None,
        told_apart=False,
    ),
)  # fmt: skip


def full_upgrade() -> Upgrade:
    """A report in which every section is filled, with odd characters, long texts, NaN and None."""
    return Upgrade(
        product=Product.TENSORRT, before=BEFORE, after=AFTER, gpu="NVIDIA L4",
        gpu_note="compute capability 8.9 · driver 580.159.04 · in this host", decision=Decision.DONT,
        summary="Don't move to 10.8.0 on an L4: one finding is unchanged and bad, one regressed.",
        reasons=(
            FactLine(
                topic="streams", text="still gives zeros where the engine and the caller do not wait.",
                weight=Weight.AGAINST, known="measured here: 20 of 1000 trials",
                sources=(
                    RECORD,
                    Source(
                        title="pytorch/TensorRT#2991", url="https://github.com/pytorch/TensorRT/issues/2991"
                    ),
                ),
            ),
            FactLine(
                topic="gemm-mha-v2", text="regressed in fp16-h3; building the block in FP32 helps.",
                weight=Weight.WORKAROUND, known="measured here", sources=(RECORD,),
            ),
            FactLine(
                topic="deformable-plugin", text="was not run at 10.8.0.", weight=Weight.LACKING, known=""
            ),
            FactLine(
                topic="sdpa-scale", text="is fixed: 7.36 noise floors before, 1.02 after.",
                weight=Weight.FOR, known="measured here",
            ),
            FactLine(
                topic=ODD, text=ODD, weight=Weight.NOTE, known=ODD,
                sources=(Source(title=ODD, url="http://example.org"),),
            ),
        ),
        findings=(ODD_ONE, REGRESSED, UNKNOWN, FIXED),
        gpu_and_driver=GPU_AND_DRIVER, performance=PERFORMANCE,
        api=API,
        engines=(
            FactLine(
                topic="engines", text="all: an engine runs only with the version that built it.",
                weight=Weight.NOTE, known="read", sources=(Source(title="developer guide", url=NOTES),),
            ),
        ),
        models=(MODEL,),
        lacking=(
            Lacking(
                what="No case of deformable-plugin was run at 10.8.0.",
                command="nox -s upgrade -- --from 10.7.0 --to 10.8.0 --gpu L4 --repro deformable-plugin",
                whole=True,
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
