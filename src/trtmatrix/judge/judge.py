"""The judge: the records of a cell to an outcome. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trtmatrix.common.text import short
from trtmatrix.judge.noise import NO_FLOOR, NO_FLOOR_OF, NOT_CALIBRATED, Calibration, noise_troubles
from trtmatrix.judge.numbers import Subject, judge_build, measured, nan_last, read_floors
from trtmatrix.judge.record import BUILT, RAN, Measured, Record
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import Cause, Known, Outcome, Product, Verdict
from trtmatrix.suite.repros import Case, Repro


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A record, and what each of its engines means by itself; none where nothing ran."""

    record: Record
    engines: tuple[Outcome, ...]


def judge(
    records: Sequence[Record],
    case: Case,
    version: Version,
    repro: Repro,
    calibration: Calibration = NOT_CALIBRATED,
) -> Outcome:
    """Say what comparable records of one cell mean for its case; the newest comes first."""
    return combine([judge_record(record, case, repro, calibration) for record in records], case, version)


def judge_record(record: Record, case: Case, repro: Repro, calibration: Calibration) -> Judged:
    """Judge every engine of a record; those of several processes share what was counted."""
    if record.ended != RAN:
        return Judged(record=record, engines=())
    subject = subject_of(record, case, repro, calibration)
    outcomes = [judge_engine(build, subject) for build in record.builds]
    for number, outcome in enumerate(outcomes):
        if outcome.verdict is Verdict.INVALID and outcome.reason.startswith((NO_FLOOR, NO_FLOOR_OF)):
            about, why = record.noise.get("reference", {}), noise_troubles(record.noise)
            if about and not about.get("by"):
                why = (f"no reference: {about.get('why_not') or 'it could not be computed'}",)
            outcomes[number] = replace(outcome, reason="; ".join((outcome.reason, *why)))
    return Judged(record=record, engines=tuple(outcomes * (record.engines // len(outcomes))))


def combine(judged: Sequence[Judged], case: Case, version: Version) -> Outcome:
    """Return the outcome of comparable records, the newest first; ``ValueError`` where there is none.

    The newest decides whether there is a verdict at all. A build failure, crash or time-out is a FAIL only
    where the case says that it is the bug; a record of another library than the pinned one gives no verdict.
    Where it ran, every engine of every record counts: some right and some wrong is FLAKY.
    """
    if not judged:
        raise ValueError("no record to judge")
    record = judged[0].record
    library = record.observed.get("library")
    if isinstance(library, str) and (mismatch := wrong_library(library, version)):
        return Outcome(verdict=Verdict.NO_VERDICT, cause=Cause.VERSION_MISMATCH, reason=mismatch)
    if record.ended == BUILT:
        return Outcome(verdict=Verdict.BUILT, reason=record.detail)
    if shapes := other_shapes(record):
        return Outcome(verdict=Verdict.FAIL, reason=shapes_text(shapes))
    if record.ended != RAN:
        cause = Cause(record.ended)
        if cause in case.bug_is:
            return Outcome(verdict=Verdict.FAIL, reason=f"{cause.value}: {record.detail}")
        return Outcome(verdict=Verdict.NO_VERDICT, cause=cause, reason=record.detail)
    engines = [outcome for item in judged for outcome in item.engines]
    count = len(engines) if record.product is Product.TENSORRT else 0
    failing, passing, invalid = (
        [outcome for outcome in engines if outcome.verdict is verdict]
        for verdict in (Verdict.FAIL, Verdict.PASS, Verdict.INVALID)
    )
    if failing and passing:
        reason = f"{len(failing)} of {len(engines)} builds fail: {failing[0].reason}"
        return Outcome(verdict=Verdict.FLAKY, reason=reason, builds=count, failed=len(failing))
    first = (failing or invalid or engines)[0]
    fit = "+".join(sorted({outcome.fit for outcome in passing if outcome.fit}))
    return replace(first, builds=count, failed=len(failing) if count else 0, fit=fit)


_SHAPES = re.compile(r"(?:^|; |: )(?:([\w.-]+): )?shape (\([\d, ]*\)), the reference has (\([\d, ]*\))")


def other_shapes(record: Record) -> Mapping[str, str]:
    """Return the outputs that have another shape than their reference, each with both shapes in words.

    The probe compares nothing then and says that it failed; the name is empty where it names none.
    """
    if record.ended != Cause.PROBE_FAILED.value:
        return {}
    return {
        name: f"wrong shape: {given} instead of {wanted}"
        for name, given, wanted in _SHAPES.findall(record.detail)
    }


def shapes_text(shapes: Mapping[str, str]) -> str:
    """Return what :func:`other_shapes` gives as one line."""
    return "; ".join(f"{name}: {words}" if name else words for name, words in shapes.items())


def subject_of(record: Record, case: Case, repro: Repro, calibration: Calibration) -> Subject:
    """Return what a record's numbers are judged by; an older record's noise is the calibration's."""
    noise = record.emulation or calibration.noises.get(case.noise_key)
    return Subject(
        case=case, noise=noise, calibration=calibration, known=repro.defects, product=record.product
    )


def judge_engine(build: Measured, subject: Subject) -> Outcome:
    """Say what one engine means: its numbers, then the run's word about it.

    The word counts where the case says which ones pass and the product can have one.
    """
    outcome, remarks = judge_build(build, subject), subject.case.remarks
    counts = outcome.verdict is Verdict.PASS and subject.product is Product.TENSORRT
    if not counts or not remarks or build.remark in remarks:
        return outcome
    wanted = " or ".join(sorted(remarks))
    if build.remark in {"", "?"}:
        reason = f"right, but it cannot be seen whether {wanted}"
        return replace(outcome, verdict=Verdict.INVALID, reason=reason)
    return replace(outcome, verdict=Verdict.FAIL, reason=f"right, but {build.remark}, not {wanted}")


def wrong_library(seen: str, version: Version) -> str | None:
    """Return how the library that was loaded differs from the pinned one, or None.

    The parts that both numbers have are compared (``10.7.0`` as reported by a binding agrees with
    the pin ``10.7.0.23``). Of a pin that is only recalled or inferred the first three parts decide;
    a fourth that differs is a difference to report, not a mismatch.
    """
    parts = 3 if version.library.known in {Known.RECALLED, Known.INFERRED} else 4
    if _agrees(version.library.value, seen, parts):
        return None
    return f"pinned for {version.library.value}, the image or wheel ships {seen}"


def observed_differences(record: Record, version: Version) -> Mapping[str, tuple[str, str]]:
    """Return the facts of matrix.yaml that the image contradicts: name → (pinned, seen)."""
    return {
        name: (fact.value, seen)
        for name, fact in version.facts().items()
        if isinstance(seen := record.observed.get(name), str) and not _agrees(fact.value, seen)
    }


def _agrees(pinned: str, seen: str, parts: int = 9) -> bool:
    """Whether two version numbers agree in the leading numbers that both have, at most ``parts``."""
    ours, theirs = (
        [int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", text)[0])]  # 9.2.0 of 9.2.0.post12.dev5
        for text in (pinned, seen)
    )
    shared = min(len(ours), len(theirs), parts)
    return ours[:shared] == theirs[:shared]


FLOORS = "floors"
"""The measure that is made of a record and its noise: the worst output's error in noise floors."""


def measured_in(
    record: Record, measure: str, case: Case, repro: Repro, calibration: Calibration
) -> float | None:
    """Return a measurement of a record, the worst over its engines (NaN is); None where it has none."""
    if measure == FLOORS:
        subject = subject_of(record, case, repro, calibration)
        floors = (read_floors(build, subject).values() for build in record.builds)
        values = [max(found, key=nan_last, default=None) for found in floors]
    else:
        values = [measured(build, measure) for build in record.builds]
    known = [value for value in values if value is not None]
    return math.nan if any(map(math.isnan, known)) else max(known, default=None)


def read_figure(
    record: Record, case: Case, repro: Repro, calibration: Calibration = NOT_CALIBRATED
) -> tuple[str, float | None]:
    """Return what stands behind a verdict: the run's word and the figure as shown, and its value."""
    if record.ended != RAN:
        return "", None
    value = measured_in(record, repro.figure.measure, case, repro, calibration)
    return f"{record.builds[0].remark} {'' if value is None else short(value)}".strip(), value
