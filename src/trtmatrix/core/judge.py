"""The judge: a record and its case to an outcome. Pure, and the only place that says PASS."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from trtmatrix.core.config import Version
from trtmatrix.core.model import Case, Cause, Figure, Known, Outcome, Product, Verdict
from trtmatrix.core.record import BUILT, RAN, Record


def judge(record: Record, case: Case, version: Version) -> Outcome:
    """Say what a record means for its case.

    NaN or infinity where the reference is finite always fails. A measurement above its limit fails
    (rule: ``measured ≤ limit``, NaN never holds). A build failure, crash or time-out is a FAIL only
    where the case says that it is the bug. A run whose numbers pass and whose remark is none that the
    case wants fails; where the remark is unknown it is invalid. A record of another library than the
    pinned one gives no verdict.
    """
    if (mismatch := mismatched_library(record, version)) is not None:
        return Outcome(verdict=Verdict.NO_VERDICT, cause=Cause.VERSION_MISMATCH, reason=mismatch)
    if record.ended == BUILT:
        return Outcome(verdict=Verdict.BUILT, reason=record.detail)
    if record.ended != RAN:
        cause = Cause(record.ended)
        if cause in case.bug_is:
            return Outcome(verdict=Verdict.FAIL, reason=f"{cause.value}: {record.detail}")
        return Outcome(verdict=Verdict.NO_VERDICT, cause=cause, reason=record.detail)
    return _judge_numbers(record, case)


def mismatched_library(record: Record, version: Version) -> str | None:
    """Return how the library that was loaded differs from the pinned one, or None.

    The parts that both numbers have are compared (``10.7.0`` as reported by a binding agrees with
    the pin ``10.7.0.23``). Of a pin that is only recalled or inferred the first three parts decide;
    a fourth that differs is a difference to report, not a mismatch.
    """
    seen = record.observed.get("library")
    if not isinstance(seen, str):
        return None
    sure = version.library.known not in {Known.RECALLED, Known.INFERRED}
    if _agrees(version.library.value, seen, parts=4 if sure else 3):
        return None
    return f"pinned for {version.library.value}, the image or wheel ships {seen}"


def _judge_numbers(record: Record, case: Case) -> Outcome:
    for name, values in record.outputs.items():
        bad = values.get("nan_unexpected", 0)
        if bad != 0:
            reason = f"{name}: {bad} of {values.get('count')} NaN or infinite where the reference is finite"
            return Outcome(verdict=Verdict.FAIL, reason=reason)
    above, absent = [], []
    for measure, limit in case.limits.items():
        value = measured(record, measure)
        if value is None:
            absent.append(measure)
        elif math.isnan(value) or value > limit:
            above.append(f"{measure} {value:.6g} > {limit:g}")
    if above:
        return Outcome(verdict=Verdict.FAIL, reason="; ".join(above))
    if absent:
        reason = f"the run did not measure {', '.join(absent)}, for which the case has a limit"
        return Outcome(verdict=Verdict.INVALID, reason=reason)
    if not case.limits:
        return Outcome(verdict=Verdict.INVALID, reason="the case has no limit: it can say nothing")
    return _judge_remark(record, case)


def _judge_remark(record: Record, case: Case) -> Outcome:
    """Judge the run's word, where the case says which ones pass and the product can have one."""
    if not case.remarks or record.remark in case.remarks or record.product is not Product.TENSORRT:
        return Outcome(verdict=Verdict.PASS, reason="")
    wanted = " or ".join(sorted(case.remarks))
    if record.remark in {"", "?"}:
        return Outcome(verdict=Verdict.INVALID, reason=f"right, but it cannot be seen whether {wanted}")
    return Outcome(verdict=Verdict.FAIL, reason=f"right, but {record.remark}, not {wanted}")


def measured(record: Record, measure: str) -> float | None:
    """Return a measurement: the case's own scalar, or the worst over its outputs (NaN is worst)."""
    if measure in record.scalars:
        return float(record.scalars[measure])
    values = [float(v[measure]) for v in record.outputs.values() if measure in v]
    if not values:
        return None
    return math.nan if any(math.isnan(value) for value in values) else max(values)


def figure_text(record: Record, figure: Figure) -> str:
    """Return what stands behind a verdict: the remark, the figure in at most six characters."""
    if record.ended != RAN:
        return ""
    value = measured(record, figure.measure)
    return f"{record.remark} {'' if value is None else short(value)}".strip()


def short(value: float) -> str:
    """Write a number in at most six characters: ``0.31``, ``1373``, ``1.6e6``, ``1.2e-3``, ``NaN``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == int(value) and abs(value) < 100_000:
        return str(int(value))
    size = abs(value)
    if size >= 100_000 or size < 0.01:
        texts = [re.sub(r"e\+?(-?)0?", r"e\1", f"{value:.{digits}e}") for digits in (1, 0)]
        return next((text for text in texts if len(text) <= 6), texts[-1])
    return f"{value:.0f}" if size >= 100 else f"{value:.3g}"


def observed_differences(record: Record, version: Version) -> Mapping[str, tuple[str, str]]:
    """Return the facts of matrix.yaml that the image contradicts: name → (pinned, seen)."""
    found: dict[str, tuple[str, str]] = {}
    for name, fact in version.facts().items():
        seen = record.observed.get(name)
        if isinstance(seen, str) and not _agrees(fact.value, seen):
            found[name] = (fact.value, seen)
    return found


def _agrees(pinned: str, seen: str, parts: int = 9) -> bool:
    """Whether two version numbers agree in the leading numbers that both have, at most ``parts``."""
    ours, theirs = _leading_numbers(pinned), _leading_numbers(seen)
    shared = min(len(ours), len(theirs), parts)
    return ours[:shared] == theirs[:shared]


def _leading_numbers(text: str) -> list[int]:
    """Return the numbers that a version starts with: ``9.2.0.post12.dev5`` gives 9, 2, 0."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return [int(part) for part in found.group().split(".")] if found else []
