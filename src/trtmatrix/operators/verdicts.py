"""What a version makes of a case, from what came out. Pure.

Outputs are held against ONNX's own with ONNX's own tolerances, as its runner does:
``|y - r| <= atol + rtol·|r|``, NaN where NaN is expected
(https://github.com/onnx/onnx/blob/main/onnx/backend/test/runner/__init__.py). Real numbers that are no
further off than :data:`ROUNDING` are as good: in which order a sum is formed is nobody's promise, and where
it should come to 0 (DFT) ONNX asks for 1e-7. An engine may give integers, or real numbers, in another width:
TensorRT before 10 has no INT64, and none has float64.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtmatrix.common.text import one_line
from trtmatrix.operators.cases import Case
from trtmatrix.records.operators import Row, Verdict
from trtprobe import ends, operators

ENDED = {
    operators.PARSER: Verdict.PARSER, operators.BUILDER: Verdict.BUILDER, operators.FEED: Verdict.NOT_FED,
    operators.RUN: Verdict.AT_RUN_TIME, operators.MEMORY: Verdict.NOTHING, operators.HUNG: Verdict.HUNG,
    ends.CRASHED: Verdict.CRASHED, ends.BUILT: Verdict.BUILT, ends.RAN: Verdict.RIGHT,
    ends.PROBE_FAILED: Verdict.NOTHING,
}  # fmt: skip
"""How the probe says that a case has ended, unless its outputs are wrong."""
ROUNDING = 8
"""Units in the last place of the largest value that is expected, in the type that came out."""
WORDS = 300
"""Letters of a product's message that are kept."""
Arrays = Mapping[str, NDArray[Any]]


def is_chosen(case: Case | Row, patterns: Sequence[str]) -> bool:
    """Whether a pattern is of a case's name, of that of ONNX's own or of its operator; or there is none."""
    names = (case.name, case.name.partition("@")[0], case.operator)
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in names)


def row_of(case: Case, verdict: Verdict, detail: str, seconds: object = 0.0) -> Row:
    """Return a case's row; ``detail`` is cut and made printable, ``seconds`` may be of any type."""
    return Row(
        name=case.name, operator=case.operator, opset=case.opset, verdict=verdict,
        detail=one_line(detail, WORDS),
        seconds=round(float(seconds), 4) if isinstance(seconds, (int, float)) else 0.0,
    )  # fmt: skip


def judge(case: Case, expected: Arrays, done: Mapping[str, Any], outputs: Arrays) -> Row:
    """Return what became of a case; ``done``: what the probe says (:func:`trtprobe.operators.run_task`)."""
    verdict = ENDED.get(str(done.get("ended")), Verdict.NOTHING)
    detail, trouble = str(done.get("detail", "")), str(done.get("trouble", ""))
    lost = expected.keys() - outputs.keys() - set(done.get("missing", []))
    if trouble:
        told = f"the GPU's context reports an error after it: {trouble}"
        verdict, detail = Verdict.CRASHED, "; ".join(filter(None, [detail, told]))
    elif verdict is Verdict.RIGHT and lost:
        verdict, detail = Verdict.NOTHING, f"output {min(lost)} was lost on its way out of the container"
    elif verdict is Verdict.RIGHT and (wrong := find_wrong(case, expected, outputs)):
        verdict, detail = Verdict.WRONG, wrong
    if verdict in {Verdict.CRASHED, Verdict.HUNG}:
        # The last line that the product printed before it died; what Python adds is no word of it.
        own = re.split(r"Fatal Python error|Traceback \(most recent", str(done.get("log", "")), maxsplit=1)[0]
        lines = [line.strip() for line in own.splitlines() if line.strip()]
        detail = "; ".join(filter(None, [detail, *lines[-1:]]))
    return row_of(case, verdict, detail, done.get("seconds"))


def find_wrong(case: Case, expected: Arrays, outputs: Arrays) -> str:
    """Say what is wrong with outputs, of values how many are off; nothing where all are as expected."""
    for name, r in expected.items():
        y = outputs.get(name)
        if y is None:
            return f"output {name} is not there"
        if y.shape != r.shape:
            return f"{name} has the shape {list(y.shape)} instead of {list(r.shape)}"
        if y.dtype.kind.replace("u", "i") != r.dtype.kind.replace("u", "i"):
            return f"{name} is {y.dtype} instead of {r.dtype}"
        found, wanted = y.astype(np.float64), r.astype(np.float64)
        atol, finite = case.atol, np.abs(wanted[np.isfinite(wanted)])
        if y.dtype.kind == "f" and finite.size:
            atol = max(atol, ROUNDING * float(np.finfo(y.dtype).eps) * float(finite.max()))
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.isclose(found, wanted, case.rtol, atol, equal_nan=True)
            off = np.where(near, -1.0, np.nan_to_num(np.abs(found - wanted), nan=np.inf))
        if count := int(np.count_nonzero(~near)):
            at = np.unravel_index(int(off.argmax()), off.shape)
            place = f" at {[int(i) for i in at]}" if at else ""
            values = f"{found[at]:.6g} instead of {wanted[at]:.6g}"
            return f"{name}: {count} of {y.size} values are off, the furthest{place}: {values}"
    return ""
