"""The judge: the records of a cell to an outcome. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trtmatrix.common.short import short
from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.noise import NO_FLOOR, NO_FLOOR_OF, why_no_floor
from trtmatrix.judge.numbers import Subject, judge_build, measured, read_floors
from trtmatrix.judge.record import BUILT, RAN, Measured, Record
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import Cause, Known, Product, Verdict
from trtmatrix.suite.outcome import Outcome
from trtmatrix.suite.repros import Case, Repro

NOT_CALIBRATED = Calibration()


def judge(
    records: Sequence[Record],
    case: Case,
    version: Version,
    repro: Repro,
    calibration: Calibration = NOT_CALIBRATED,
) -> Outcome:
    """Say what comparable records of one cell mean for its case; the newest comes first.

    The newest decides whether there is a verdict at all. A build failure, crash or time-out is a FAIL only
    where the case says that it is the bug; a record of another library than the pinned one gives no verdict.
    Where it ran, every engine of every record is judged (:func:`trtmatrix.judge.numbers.judge_build`) and all
    count: some right and some wrong is FLAKY. ``ValueError`` where there is no record.
    """
    if not records:
        raise ValueError("no record to judge")
    record = records[0]
    if (mismatch := mismatched_library(record, version)) is not None:
        return Outcome(verdict=Verdict.NO_VERDICT, cause=Cause.VERSION_MISMATCH, reason=mismatch)
    if record.ended == BUILT:
        return Outcome(verdict=Verdict.BUILT, reason=record.detail)
    if shapes := other_shapes(record):
        words = "; ".join(f"{name or 'an output'}: {said}" for name, said in shapes.items())
        return Outcome(verdict=Verdict.FAIL, reason=f"output of another shape: {words}")
    if record.ended != RAN:
        cause = Cause(record.ended)
        if cause in case.bug_is:
            return Outcome(verdict=Verdict.FAIL, reason=f"{cause.value}: {record.detail}")
        return Outcome(verdict=Verdict.NO_VERDICT, cause=cause, reason=record.detail)
    ran = [item for item in records if item.ended == RAN]
    outcomes = [outcome for item in ran for outcome in _judge_all(item, case, repro, calibration)]
    return _pool(outcomes, counted=record.product is Product.TENSORRT)


_SHAPES = re.compile(r"(?:^|; |: )(?:([\w.-]+): )?(shape \([\d, ]*\), the reference has \([\d, ]*\))")


def other_shapes(record: Record) -> Mapping[str, str]:
    """Return the outputs that have another shape than their reference, each with both shapes in words.

    The probe compares nothing then and says that it failed; the name is empty where it names none.
    """
    if record.ended != Cause.PROBE_FAILED.value:
        return {}
    return dict(_SHAPES.findall(record.detail))


def subject_of(record: Record, case: Case, repro: Repro, calibration: Calibration) -> Subject:
    """Return what a record's numbers are judged by; an older record's noise is the calibration's."""
    noise = record.emulation or calibration.noises.get(case.noise_key)
    return Subject(
        case=case, noise=noise, calibration=calibration, known=repro.defects, product=record.product
    )


def _judge_all(record: Record, case: Case, repro: Repro, calibration: Calibration) -> list[Outcome]:
    """Return the outcome of each engine; those of several processes share what was counted."""
    subject = subject_of(record, case, repro, calibration)
    outcomes = [_with_cause(judge_engine(build, subject), record) for build in record.builds]
    return outcomes * (record.engines // len(outcomes))


def _with_cause(outcome: Outcome, record: Record) -> Outcome:
    """Return an outcome for want of a noise floor with the reason why there is none."""
    lacking = outcome.verdict is Verdict.INVALID and outcome.reason.startswith((NO_FLOOR, NO_FLOOR_OF))
    why = why_no_floor(record.noise) if lacking else ""
    return replace(outcome, reason=f"{outcome.reason}; {why}") if why else outcome


def judge_engine(build: Measured, subject: Subject) -> Outcome:
    """Say what one engine means: its numbers, then its remark."""
    outcome = judge_build(build, subject)
    if outcome.verdict is not Verdict.PASS:
        return outcome
    return _judge_remark(build, subject, outcome)


def _pool(outcomes: Sequence[Outcome], *, counted: bool) -> Outcome:
    """Make one outcome of those of several engines, the newest record's first."""
    count = len(outcomes) if counted else 0
    by_verdict = {verdict: [o for o in outcomes if o.verdict is verdict] for verdict in Verdict}
    failing, passing = by_verdict[Verdict.FAIL], by_verdict[Verdict.PASS]
    fit = "+".join(sorted({outcome.fit for outcome in passing if outcome.fit}))
    if failing and passing:
        reason = f"{len(failing)} of {len(outcomes)} builds fail: {failing[0].reason}"
        return Outcome(verdict=Verdict.FLAKY, reason=reason, builds=count, failed=len(failing))
    first = next(iter(failing or by_verdict[Verdict.INVALID] or outcomes))
    return replace(first, builds=count, failed=len(failing) if count else 0, fit=fit)


def mismatched_library(record: Record, version: Version) -> str | None:
    """Return how the library that was loaded differs from the pinned one, or None.

    The parts that both numbers have are compared (``10.7.0`` as reported by a binding agrees with
    the pin ``10.7.0.23``). Of a pin that is only recalled or inferred the first three parts decide;
    a fourth that differs is a difference to report, not a mismatch.
    """
    seen = record.observed.get("library")
    return wrong_library(seen, version) if isinstance(seen, str) else None


def wrong_library(seen: str, version: Version) -> str | None:
    """Return how a library's version differs from the pinned one, or None; see :func:`mismatched_library`."""
    sure = version.library.known not in {Known.RECALLED, Known.INFERRED}
    if _agrees(version.library.value, seen, parts=4 if sure else 3):
        return None
    return f"pinned for {version.library.value}, the image or wheel ships {seen}"


def _judge_remark(build: Measured, subject: Subject, outcome: Outcome) -> Outcome:
    """Judge the run's word, where the case says which ones pass and the product can have one."""
    case = subject.case
    if not case.remarks or build.remark in case.remarks or subject.product is not Product.TENSORRT:
        return outcome
    wanted = " or ".join(sorted(case.remarks))
    if build.remark in {"", "?"}:
        return replace(
            outcome, verdict=Verdict.INVALID, reason=f"right, but it cannot be seen whether {wanted}"
        )
    return replace(outcome, verdict=Verdict.FAIL, reason=f"right, but {build.remark}, not {wanted}")


FLOORS = "floors"
"""The measure that is made of a record and its noise: the worst output's error in noise floors."""


def measured_in(
    record: Record, measure: str, case: Case, repro: Repro, calibration: Calibration
) -> float | None:
    """Return a measurement of a record, the worst over its engines; None where it has none."""
    subject = subject_of(record, case, repro, calibration)
    found = [_measured_build(build, measure, subject) for build in record.builds]
    values = [value for value in found if value is not None]
    if not values:
        return None
    return math.nan if any(math.isnan(value) for value in values) else max(values)


def _measured_build(build: Measured, measure: str, subject: Subject) -> float | None:
    if measure != FLOORS:
        return measured(build, measure)
    floors = read_floors(build, subject, subject.noise).values() if subject.noise else ()
    return max(floors, key=lambda value: math.inf if math.isnan(value) else value, default=None)


def figure_text(record: Record, case: Case, repro: Repro, calibration: Calibration = NOT_CALIBRATED) -> str:
    """Return what stands behind a verdict: the remark, the figure in at most six characters."""
    if record.ended != RAN:
        return ""
    return write_figure(record, measured_in(record, repro.figure.measure, case, repro, calibration))


def write_figure(record: Record, value: float | None) -> str:
    """Return a record's remark with its figure's value, where it has one."""
    return f"{record.remark} {'' if value is None else short(value)}".strip()


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
