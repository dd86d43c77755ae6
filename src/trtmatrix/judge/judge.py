"""The judge: what a record's numbers mean, and the records of a cell together. Pure.

Noise floors, signatures of known defects, the case's own limits: the rules and what they were calibrated on
are told in docs/verdicts.md; their numbers are in :mod:`trtmatrix.judge.factors`. Sizes in noise floors are
relative L2 errors over the noise floor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from trtmatrix.common.text import short
from trtmatrix.judge import factors
from trtmatrix.judge.noise import (
    HIDES,
    NO_FLOOR,
    NO_FLOOR_OF,
    NOT_CALIBRATED,
    Calibration,
    Noise,
    fits,
    is_allowed,
    is_near,
    noise_troubles,
    precision_of,
)
from trtmatrix.judge.record import BUILT, RAN, Measured, Record
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import Cause, Control, Known, Outcome, Product, Verdict
from trtmatrix.suite.repros import BEYOND, Case, Defect


def computed_in(asked: str, product: Product) -> str:
    """Return the precision in which a product computes what was asked: ONNX Runtime has no TF32, no flags."""
    on_cpu = product is Product.ONNXRUNTIME and asked in {"tf32", "fp16-flag"}
    return "fp32" if on_cpu else asked


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What an engine's numbers are judged by."""

    case: Case
    noise: Noise | None
    calibration: Calibration
    known: Mapping[str, Defect]
    product: Product

    @cached_property
    def precision(self) -> str:
        """The precision in which the product may compute the graph."""
        return computed_in(self.noise.precision if self.noise else self.case.precision, self.product)

    def floor(self, output: str) -> float | None:
        """Return the noise floor of an output, None where none is known."""
        return self.noise.floor(output, self.precision) if self.noise else None


@dataclass(frozen=True, kw_only=True)
class Sign:
    """A known defect's signature in an output: c, the share of the error explained, what bounds c.

    ``size``: the defect's, in noise floors; ``c`` is None where the record does not have it; ``output``: the
    one that shows it best.
    """

    name: str
    size: float
    bound: float
    c: float | None = None
    explained: float = 0.0
    output: str = ""

    @property
    def usable(self) -> bool:
        """Whether c tells a right engine from one with the defect."""
        return self.bound <= factors.VALID_BOUND

    @property
    def named(self) -> bool:
        """Whether c is what the defect as it is known gives."""
        return self.c is not None and factors.NAMED[0] <= self.c <= factors.NAMED[1]

    def exceeds(self, bounds: float = 1.0) -> bool:
        """Whether c is larger than so many bounds of a right engine's; NaN is beyond all."""
        return self.usable and self.c is not None and not abs(self.c) <= bounds * self.bound

    @property
    def residual(self) -> float:
        """The error (its square, as a share of the whole) that is left when the defect is taken away once."""
        c = self.c or math.inf
        return 1 - 2 * self.explained / c + self.explained / c**2


def nan_last(value: float) -> float:
    """Return what numbers are ordered by, the worst last: NaN is as bad as infinity."""
    return math.inf if math.isnan(value) else value


def measured(build: Measured, measure: str) -> float | None:
    """Return a measurement: the case's own scalar, or the worst over its outputs (NaN is worst)."""
    if measure in build.scalars:
        return float(build.scalars[measure])
    found = (float(values[measure]) for values in build.outputs.values() if measure in values)
    return max(found, key=nan_last, default=None)


def unexpected_in(build: Measured) -> Mapping[str, Mapping[str, Any]]:
    """Return the outputs that are NaN or infinite where the reference is not just that."""
    return {name: values for name, values in build.outputs.items() if values.get("nan_unexpected", 0) != 0}


def above_limits(build: Measured, case: Case) -> dict[str, float]:
    """Return the measurements that are above their limits in the case; NaN is above all."""
    found = {name: measured(build, name) for name in case.limits}
    return {k: value for k, value in found.items() if value is not None and not value <= case.limits[k]}


def read_floors(build: Measured, subject: Subject) -> dict[str, float]:
    """Return each output's relative L2 error in noise floors, of those that have a floor."""
    found: dict[str, float] = {}
    for name, values in build.outputs.items():
        floor = subject.floor(name)
        if floor is not None and "rel_l2" in values:
            error = float(values["rel_l2"])
            found[name] = error / floor if floor else math.inf if error else 0.0
    return found


def read_signs(build: Measured, subject: Subject) -> list[Sign]:
    """Return the signature of each known defect of the case, in the output that shows it best.

    Of a defect that was added since, the noise knows nothing; its size is then the calibration's.
    """
    noise, signs = subject.noise, list[Sign]()
    if noise is None:
        return []
    today = subject.calibration.noises.get(subject.case.noise_key, noise)
    for name in subject.case.defects:
        output, size = (noise if name in noise.defects else today).size(name, subject.precision)
        if output:
            values = build.signatures.get(name, {}).get(output, {})
            bound = subject.calibration.bound(noise, name, subject.precision)
            signs.append(Sign(
                name=name, size=size, bound=bound, output=output, c=values.get("c"),
                explained=values.get("explained", 0.0),
            ))  # fmt: skip
    return signs


def judge_build(build: Measured, subject: Subject) -> Outcome:
    """Say what the measurements of one engine mean.

    NaN or infinity where the reference is finite always fails, anything but the same infinity where it is
    infinite too, and so does a measurement of the case's own above its limit. Then the outputs are held
    against the noise floor, and their error against the known defects. A case that can say nothing is
    INVALID; so is one whose numbers lie between right and wrong.
    """
    case, tolerance = subject.case, subject.case.tolerance
    accepted = f"atol {tolerance['atol']:g}, rtol {tolerance['rtol']:g}" if tolerance else ""
    if reason := _plainly_wrong(build, case):
        if case.control is Control.NEGATIVE and case.defect:
            return _invalid(f"it fails, but not by what was put in ({case.defect}): {reason}")
        return Outcome(verdict=Verdict.FAIL, reason=reason)
    if accepted and measured(build, BEYOND) is None:
        return _invalid(f"no reference: {accepted} cannot be applied; {NO_FLOOR}")
    if absent := [name for name in case.limits if measured(build, name) is None]:
        return _invalid(f"the run did not measure {', '.join(absent)}, for which the case has a limit")
    if not build.outputs and case.limits:
        reason, count = "", build.scalars.get("trials", 0.0)
        if count > 0:  # the rate of failure p that so many good trials exclude: 1 − (1 − p)^n = 95%
            rate = f"a rate above {100 * (1 - 0.05 ** (1 / count)):.2g}% is excluded with 95%"
            reason = f"none of {count:g} trials: {rate}, if they are independent"
        return Outcome(verdict=Verdict.PASS, reason=reason)
    if subject.noise is None:
        if accepted or case.limits or (case.keep and _is_exact(build)):
            within = f"within {accepted}; there is no noise floor" if accepted else ""
            return Outcome(verdict=Verdict.PASS, reason=within)
        unknown = "no noise floor is known of this case, and it has no limit: it can say nothing"
        return _invalid(NO_FLOOR if case.keep else unknown)
    outcome = _judge_outputs(build, subject, subject.noise)
    if not accepted or outcome.verdict is Verdict.PASS:
        return outcome
    said = "fails it" if outcome.verdict is Verdict.FAIL else "does not decide"
    within = f"within {accepted}; the noise floor {said}: {outcome.reason}"
    return Outcome(verdict=Verdict.PASS, reason=within)


def _invalid(reason: str) -> Outcome:
    return Outcome(verdict=Verdict.INVALID, reason=reason)


def _plainly_wrong(build: Measured, case: Case) -> str:
    """Say which output is NaN or infinite where it must not be, or what is above its limit; or nothing."""
    for name, values in unexpected_in(build).items():
        bad, of, missed = values["nan_unexpected"], values.get("count"), values.get("inf_missed", 0)
        if bad > missed or not missed:
            return f"{name}: {bad - missed} of {of} NaN or infinite where the reference is finite"
        return f"{name}: {missed} of {of} not infinite as the reference is"
    above = above_limits(build, case).items()
    words = "; ".join(f"{name} {value:.6g} > {case.limits[name]:g}" for name, value in above)
    trials = build.scalars.get("trials")
    return words + (f" (of {trials:g} trials)" if words and trials else "")


def _is_exact(build: Measured) -> bool:
    """Whether every output is the reference itself, and any has an element but zeros, NaN and infinity.

    Of integers a zero tells as much as another number; they have no ``share_10_bits``.
    """
    telling = any(
        values.get("count", 0) > sum(values.get(kind, 0) for kind in ("nan", "inf", "zeros"))
        or ("share_10_bits" not in values and values.get("count", 0))
        for values in build.outputs.values()
    )
    return telling and all(map(_is_reference, build.outputs.values()))


def _is_reference(values: Mapping[str, Any]) -> bool:
    """Whether an output is the reference itself, also where that is infinite: no norm looks there."""
    return values.get("rel_l2") == 0 and not values.get("share_not_close")


def _judge_outputs(build: Measured, subject: Subject, noise: Noise) -> Outcome:
    """Judge the worst output by its norm, then by the known defects that its error may contain."""
    signs, floors, case = read_signs(build, subject), read_floors(build, subject), subject.case
    if reason := says_nothing(subject, signs):
        return _invalid(reason)
    if not floors:
        exact = case.keep and _is_exact(build)
        return Outcome(verdict=Verdict.PASS) if exact else _invalid(NO_FLOOR)
    name = max(sorted(floors), key=lambda output: nan_last(floors[output]))
    size, error = f"{name}: {short(floors[name])} noise floors", float(build.outputs[name]["rel_l2"])
    outcome = _by_norm(floors[name], error, noise.outputs[name], subject, size)
    if outcome.verdict is not Verdict.FAIL:
        if any(sign.exceeds(factors.CLOSER_BOUND) for sign in signs):
            outcome = Outcome(verdict=Verdict.FAIL, reason=size)
        elif sign := next((sign for sign in signs if sign.exceeds()), None):
            outcome = _invalid(
                f"undecided: c = {sign.c:.3g} of {sign.name}, a right engine's is below {sign.bound:.2g}, "
                f"a wrong one's above {factors.CLOSER_BOUND * sign.bound:.2g}"
            )
    member = fits(noise, {name: build.outputs[name]})[name]
    allowed, fitting = is_allowed(member, subject.precision), noise.outputs[name][member]
    if outcome.verdict is Verdict.PASS:
        if unseen := _not_seen(build, subject, noise, floors) or _not_known(signs, outcome.reason):
            return _invalid(unseen)
        seen = allowed and is_near(error, fitting, factors.SHOWN_FIT)
        fit = precision_of(member) if seen and subject.product is Product.TENSORRT else ""
        return replace(outcome, fit=fit if fit != subject.precision else "")
    if outcome.verdict is Verdict.FAIL:
        for sign in signs if case.control is Control.NEGATIVE else ():
            if sign.name == case.defect and sign.c is not None and sign.usable and not sign.named:
                words = f"c = {sign.c:.3g} of {sign.name} instead of 1"
                return _invalid(f"it fails, but not by what was put in: {words}")
        words = _describe_error(signs, subject)
        if not (words or allowed or member in factors.POSSIBLE) and is_near(error, fitting):
            words = f"as {member} computes, which was not allowed"
        return replace(outcome, reason="; ".join(filter(None, (outcome.reason, words))))
    return outcome


def says_nothing(subject: Subject, signs: Sequence[Sign]) -> str:
    """Return why a case with a noise can say nothing, or nothing where it can."""
    if not signs:
        useful, outputs = subject.case.useful, subject.noise.outputs if subject.noise else ()
        worst = max((subject.floor(output) or 0.0 for output in outputs), default=0.0)
        return f"the noise floor {worst:.2g} is above {useful:g}: {HIDES}" if worst > useful else ""
    if any(sign.size >= factors.VALID_FLOORS or sign.usable for sign in signs):
        return ""
    best = max(signs, key=lambda sign: sign.size)
    return (
        f"rounding hides the known defect {best.name} ({short(best.size)} noise floors): neither its size "
        "nor its shape would show"
    )


def _by_norm(
    floors: float, error: float, members: Mapping[str, float], subject: Subject, size: str
) -> Outcome:
    """Judge the worst output's relative L2 error: the factors on the noise floor, else a closer look."""
    if floors <= factors.PASS_FACTOR:
        return Outcome(verdict=Verdict.PASS)
    reason = f"{size} (relative L2 error {short(error)})"
    if not floors < factors.FAIL_FACTOR:
        return Outcome(verdict=Verdict.FAIL, reason=reason)
    for member in sorted(factors.POSSIBLE & set(members)):
        if precision_of(member) in factors.ALLOWED[subject.precision] and is_near(error, members[member]):
            return Outcome(verdict=Verdict.PASS, reason=f"fits {member}, which no GPU has shown yet")
    right, wrong = factors.PASS_FACTOR, factors.FAIL_FACTOR
    return _invalid(f"{reason}: undecided, right is up to {right:g}, wrong from {wrong:g}")


def _not_seen(build: Measured, subject: Subject, noise: Noise, floors: Mapping[str, float]) -> str:
    """Return which outputs were not judged, so that the others' being right is not enough.

    Only TensorRT can be made to write inner tensors: elsewhere a graph's own outputs are all there is.
    """
    absent = sorted(set(noise.outputs) - set(build.outputs))
    if absent and subject.product is Product.TENSORRT:
        return f"the run did not give {', '.join(absent)}"
    exact = {name for name, values in build.outputs.items() if _is_reference(values)}
    bare = sorted(set(build.outputs) - set(floors) - exact)
    return f"{NO_FLOOR_OF} {', '.join(bare)}" if bare else ""


def _not_known(signs: Sequence[Sign], doubt: str) -> str:
    """Return which known defect could hide in what passes otherwise, as its signature was not measured."""
    unknown = [sign for sign in signs if sign.c is None]
    if doubt and unknown:
        return f"undecided: {doubt}, and the record has no signature of {', '.join(s.name for s in unknown)}"
    hidden = ", ".join(sign.name for sign in unknown if sign.size < factors.SIGNATURE_FLOORS)
    return f"unknown: the record has no signature of {hidden}, which is below the noise" if hidden else ""


def _describe_error(signs: Sequence[Sign], subject: Subject) -> str:
    """Say which known defects an error is consistent with, or what else its shape tells."""
    words, usable = list[str](), [sign for sign in signs if sign.usable and sign.c is not None]
    named = sorted((sign for sign in usable if sign.named), key=lambda sign: sign.residual)
    for sign in named:
        if sign.residual <= 2 * named[0].residual + 0.02:
            defect = subject.known.get(sign.name)
            what = f"{defect.what if defect else sign.name}, c = {sign.c:.4g}"
            by = f" with {defect.upstream} ({what})" if defect and defect.upstream else f" with: {what}"
            words.append("consistent" + by)
    best = max(usable, key=lambda sign: sign.explained, default=None)
    if words or best is None or not best.exceeds():
        return " or ".join(words)
    if best.explained < factors.EXPLAINED:
        return f"c = {best.c:.3g} of {best.name}, which explains {100 * best.explained:.0f}% of the error"
    return f"the shape of {best.name}, {best.c:.3g} times its size"


Judged = tuple[Record, tuple[Outcome, ...]]
"""A record, and what each of its engines means by itself; none where nothing ran."""


def judge(records: Sequence[Record], cell: Cell, calibration: Calibration = NOT_CALIBRATED) -> Outcome:
    """Say what comparable records of one cell mean for its case; the newest comes first."""
    return combine([judge_record(record, cell, calibration) for record in records], cell)


def judge_record(record: Record, cell: Cell, calibration: Calibration) -> Judged:
    """Judge every engine of a record; those of several processes share what was counted."""
    if record.ended != RAN:
        return record, ()
    subject = subject_of(record, cell, calibration)
    outcomes = [judge_engine(build, subject) for build in record.builds]
    for number, outcome in enumerate(outcomes):
        if outcome.verdict is Verdict.INVALID and outcome.reason.startswith((NO_FLOOR, NO_FLOOR_OF)):
            about, why = record.noise.get("reference", {}), noise_troubles(record.noise)
            if about and not about.get("by"):
                why = (f"no reference: {about.get('why_not') or 'it could not be computed'}",)
            outcomes[number] = replace(outcome, reason="; ".join((outcome.reason, *why)))
    return record, tuple(outcomes * (record.engines // len(outcomes)))


def combine(judged: Sequence[Judged], cell: Cell) -> Outcome:
    """Return the outcome of comparable records, the newest first, one at least.

    The newest decides whether there is a verdict at all. A build failure, crash or time-out is a FAIL only
    where the case says that it is the bug; a record of another library than the pinned one gives no verdict.
    Where it ran, every engine of every record counts: some right and some wrong is FLAKY.
    """
    record, _ = judged[0]
    library = record.observed.get("library")
    if isinstance(library, str) and (mismatch := wrong_library(library, cell.version)):
        return Outcome(verdict=Verdict.NO_VERDICT, cause=Cause.VERSION_MISMATCH, reason=mismatch)
    if record.ended == BUILT:
        return Outcome(verdict=Verdict.BUILT, reason=record.detail)
    if shapes := other_shapes(record):
        words = (f"{name}: {text}" if name else text for name, text in shapes.items())
        return Outcome(verdict=Verdict.FAIL, reason="; ".join(words))
    if record.ended != RAN:
        cause = Cause(record.ended)
        if cause in cell.case.bug_is:
            return Outcome(verdict=Verdict.FAIL, reason=f"{cause.value}: {record.detail}")
        return Outcome(verdict=Verdict.NO_VERDICT, cause=cause, reason=record.detail)
    engines = [outcome for _, outcomes in judged for outcome in outcomes]
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


def subject_of(record: Record, cell: Cell, calibration: Calibration) -> Subject:
    """Return what a record's numbers are judged by; an older record's noise is the calibration's."""
    noise = record.content.emulation or calibration.noises.get(cell.case.noise_key)
    known = cell.repro.defects
    return Subject(case=cell.case, noise=noise, calibration=calibration, known=known, product=record.product)


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


def measured_in(record: Record, measure: str, cell: Cell, calibration: Calibration) -> float | None:
    """Return a measurement of a record, the worst over its engines (NaN is); None where it has none."""
    if measure == FLOORS:
        subject = subject_of(record, cell, calibration)
        values = [value for build in record.builds for value in read_floors(build, subject).values()]
    else:
        values = [value for build in record.builds if (value := measured(build, measure)) is not None]
    return max(values, key=nan_last, default=None)


def read_figure(
    record: Record, cell: Cell, calibration: Calibration = NOT_CALIBRATED
) -> tuple[str, float | None]:
    """Return what stands behind a verdict: the run's word and the figure as shown, and its value."""
    if record.ended != RAN:
        return "", None
    value = measured_in(record, cell.repro.figure.measure, cell, calibration)
    return f"{record.builds[0].remark} {'' if value is None else short(value)}".strip(), value
