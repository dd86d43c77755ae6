"""Judges what was measured of one engine: noise floors, signatures of known defects, the case's own limits.

The rules and what they were calibrated on are told in docs/verdicts.md; their numbers are in
:mod:`trtmatrix.judge.factors`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trtmatrix.common.short import short
from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.factors import (
    ALLOWED,
    CLOSER_BOUND,
    EXPLAINED,
    FAIL_FACTOR,
    PASS_FACTOR,
    POSSIBLE,
    SHOWN_FIT,
    SIGNATURE_FLOORS,
    VALID_FLOORS,
)
from trtmatrix.judge.noise import NO_FLOOR, NO_FLOOR_OF, Noise, fits, is_allowed, is_near, precision_of
from trtmatrix.judge.record import Measured
from trtmatrix.judge.signs import Sign, best_sign, name_signs
from trtmatrix.suite.model import Control, Product, Verdict
from trtmatrix.suite.outcome import Outcome
from trtmatrix.suite.repros import BEYOND, Case, Defect


def computed_in(asked: str, product: Product) -> str:
    """Return the precision in which a product computes what was asked: ONNX Runtime has no TF32, no flags."""
    on_cpu = product is Product.ONNXRUNTIME and asked in {"tf32", "fp16-flag"}
    return "fp32" if on_cpu else asked


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What an engine's numbers are judged by. ``precision``: that in which the product computes the graph."""

    case: Case
    noise: Noise | None
    calibration: Calibration
    known: Mapping[str, Defect]
    product: Product

    @cached_property
    def precision(self) -> str:
        """The precision in which the graph may be computed: ONNX Runtime has no TF32 and no flags."""
        return computed_in(self.noise.precision if self.noise else self.case.precision, self.product)


def judge_build(build: Measured, subject: Subject) -> Outcome:
    """Say what the measurements of one engine mean.

    NaN or infinity where the reference is finite always fails, and so does a measurement of the case's own
    above its limit. Then the outputs are held against the noise floor, and their error against the known
    defects. A case that can say nothing is INVALID; so is one whose numbers lie between right and wrong.
    """
    if reason := _unexpected(build) or _above_limit(build, subject.case):
        if subject.case.control is Control.NEGATIVE and (put_in := subject.case.defect):
            reason = f"it fails, but not by what was put in ({put_in}): {reason}"
            return Outcome(verdict=Verdict.INVALID, reason=reason)
        return Outcome(verdict=Verdict.FAIL, reason=reason)
    if subject.case.tolerance and measured(build, BEYOND) is None:
        reason = f"no reference: {tolerance_text(subject.case)} cannot be applied; {NO_FLOOR}"
        return Outcome(verdict=Verdict.INVALID, reason=reason)
    if absent := [name for name in subject.case.limits if measured(build, name) is None]:
        reason = f"the run did not measure {', '.join(absent)}, for which the case has a limit"
        return Outcome(verdict=Verdict.INVALID, reason=reason)
    if not build.outputs and subject.case.limits:
        return Outcome(verdict=Verdict.PASS, reason=_trials(build))
    if subject.noise is None:
        return _without_noise(build, subject.case)
    outcome = _judge_outputs(build, subject, subject.noise)
    return _within_tolerance(outcome, subject.case) if subject.case.tolerance else outcome


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


def _within_tolerance(outcome: Outcome, case: Case) -> Outcome:
    """Accept what is within the user's tolerance, and tell what the noise floor says against it."""
    if outcome.verdict is Verdict.PASS:
        return outcome
    said = "fails it" if outcome.verdict is Verdict.FAIL else "does not decide"
    reason = f"within {tolerance_text(case)}; the noise floor {said}: {outcome.reason}"
    return Outcome(verdict=Verdict.PASS, reason=reason)


def tolerance_text(case: Case) -> str:
    """Return a case's tolerance in words."""
    return f"atol {case.tolerance['atol']:g}, rtol {case.tolerance['rtol']:g}"


def _without_noise(build: Measured, case: Case) -> Outcome:
    if case.tolerance:
        return Outcome(verdict=Verdict.PASS, reason=f"within {tolerance_text(case)}; there is no noise floor")
    if case.limits:
        return Outcome(verdict=Verdict.PASS)
    if case.keep:
        exact = _is_exact(build)
        return Outcome(verdict=Verdict.PASS if exact else Verdict.INVALID, reason="" if exact else NO_FLOOR)
    reason = "no noise floor is known of this case, and it has no limit: it can say nothing"
    return Outcome(verdict=Verdict.INVALID, reason=reason)


def _unexpected(build: Measured) -> str:
    for name, values in unexpected_in(build).items():
        bad = values["nan_unexpected"]
        return f"{name}: {bad} of {values.get('count')} NaN or infinite where the reference is finite"
    return ""


def unexpected_in(build: Measured) -> Mapping[str, Mapping[str, Any]]:
    """Return the outputs that are NaN or infinite where the reference is finite."""
    return {name: values for name, values in build.outputs.items() if values.get("nan_unexpected", 0) != 0}


def above_limits(build: Measured, case: Case) -> dict[str, float]:
    """Return the measurements that are above their limits in the case; NaN is above all."""
    found = {name: measured(build, name) for name in case.limits}
    return {k: value for k, value in found.items() if value is not None and not value <= case.limits[k]}


def _above_limit(build: Measured, case: Case) -> str:
    values = above_limits(build, case)
    above = [f"{name} {value:.6g} > {case.limits[name]:g}" for name, value in values.items()]
    trials = build.scalars.get("trials")
    return "; ".join(above) + (f" (of {trials:g} trials)" if above and trials else "")


def _trials(build: Measured) -> str:
    """Say what rate of failure so many good trials exclude: 1 − (1 − p)^n = 95%."""
    count = build.scalars.get("trials", 0.0)
    if not count > 0:
        return ""
    rate = 100 * (1 - 0.05 ** (1 / count))
    return f"none of {count:g} trials: a rate above {rate:.2g}% is excluded with 95%, if they are independent"


def _judge_outputs(build: Measured, subject: Subject, noise: Noise) -> Outcome:
    signs = list(read_signs(build, subject, noise))
    if reason := says_nothing(subject, noise, signs):
        return Outcome(verdict=Verdict.INVALID, reason=reason)
    floors = read_floors(build, subject, noise)
    if not floors:
        if subject.case.keep and _is_exact(build):
            return Outcome(verdict=Verdict.PASS)
        return Outcome(verdict=Verdict.INVALID, reason=NO_FLOOR)
    name = max(sorted(floors), key=lambda output: nan_last(floors[output]))
    outcome = _by_norm(build, subject, noise, name, floors[name])
    if outcome.verdict is not Verdict.FAIL:
        outcome = _by_signature(signs, outcome, f"{name}: {short(floors[name])} noise floors")
    if outcome.verdict is Verdict.PASS and (
        reason := _not_seen(build, subject, noise, floors) or _not_known(signs, outcome)
    ):
        return Outcome(verdict=Verdict.INVALID, reason=reason)
    if outcome.verdict is Verdict.FAIL:
        words = describe_error(signs, subject, noise) or _forbidden_fit(build, subject, noise, name)
        reason = "; ".join(part for part in (outcome.reason, words) if part)
        outcome = _check_control(Outcome(verdict=Verdict.FAIL, reason=reason), signs, subject)
    return Outcome(
        verdict=outcome.verdict, reason=outcome.reason, fit=_shown_fit(build, subject, noise, name, outcome)
    )


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


def _not_known(signs: list[Sign], outcome: Outcome) -> str:
    """Return which known defect could hide in what passes otherwise, as its signature was not measured."""
    unknown = [sign for sign in signs if sign.c is None]
    if outcome.reason and unknown:
        names = ", ".join(sign.name for sign in unknown)
        return f"undecided: {outcome.reason}, and the record has no signature of {names}"
    hidden = ", ".join(sign.name for sign in unknown if sign.size < SIGNATURE_FLOORS)
    return f"unknown: the record has no signature of {hidden}, which is below the noise" if hidden else ""


def nan_last(value: float) -> float:
    """Return what numbers are ordered by, the worst last: NaN is as bad as infinity."""
    return math.inf if math.isnan(value) else value


def read_floors(build: Measured, subject: Subject, noise: Noise) -> dict[str, float]:
    """Return each output's relative L2 error in noise floors."""
    found: dict[str, float] = {}
    for name, values in build.outputs.items():
        floor = noise.floor(name, subject.precision)
        if floor is not None and "rel_l2" in values:
            error = float(values["rel_l2"])
            found[name] = error / floor if floor else math.inf if error else 0.0
    return found


def read_signs(build: Measured, subject: Subject, noise: Noise) -> Iterator[Sign]:
    """Yield the signature of each known defect of the case, in the output that shows it best.

    Of a defect that was added since, the noise knows nothing; its size is then the calibration's.
    """
    today = subject.calibration.noises.get(subject.case.noise_key, noise)
    for name in subject.case.defects:
        output, size = (noise if name in noise.defects else today).size(name, subject.precision)
        if not output:
            continue
        bound = subject.calibration.bound(noise, name, subject.precision)
        values = build.signatures.get(name, {}).get(output, {})
        yield Sign(
            name=name, size=size, bound=bound, output=output, c=values.get("c"),
            explained=values.get("explained", 0.0),
        )  # fmt: skip


def says_nothing(subject: Subject, noise: Noise, signs: list[Sign]) -> str:
    """Return why a case can say nothing, or nothing where it can."""
    if not signs:
        floors = [noise.floor(output, subject.precision) or 0.0 for output in noise.outputs]
        worst = max(floors, default=0.0)
        useful = subject.case.useful
        return f"the noise floor {worst:.2g} is above {useful:g}: it hides too much" if worst > useful else ""
    if not any(sign.size >= VALID_FLOORS or sign.usable for sign in signs):
        best = max(signs, key=lambda sign: sign.size)
        return (
            f"the known defect {best.name} is {short(best.size)} noise floors, and a right engine's c may be "
            f"{short(best.bound)}: neither its size nor its shape would show"
        )
    return ""


def _by_norm(build: Measured, subject: Subject, noise: Noise, name: str, floors: float) -> Outcome:
    """Judge the worst output's relative L2 error: the factors on the noise floor, else a closer look."""
    if floors <= PASS_FACTOR:
        return Outcome(verdict=Verdict.PASS)
    error = float(build.outputs[name]["rel_l2"])
    for member in sorted(POSSIBLE & set(noise.outputs[name])) if floors < FAIL_FACTOR else ():
        if precision_of(member) in ALLOWED[subject.precision] and is_near(error, noise.outputs[name][member]):
            return Outcome(verdict=Verdict.PASS, reason=f"fits {member}, which no GPU has shown yet")
    reason = f"{name}: {short(floors)} noise floors (relative L2 error {short(error)})"
    if not floors < FAIL_FACTOR:
        return Outcome(verdict=Verdict.FAIL, reason=reason)
    return Outcome(verdict=Verdict.INVALID, reason=f"{reason}: undecided, right is up to {PASS_FACTOR:g}, "
                   f"wrong from {FAIL_FACTOR:g}")  # fmt: skip


def _forbidden_fit(build: Measured, subject: Subject, noise: Noise, name: str) -> str:
    """Say which member an error fits that was not allowed, or nothing."""
    member = forbidden_fit(build, subject, noise, name)
    return f"as {member} computes, which was not allowed" if member else ""


def forbidden_fit(build: Measured, subject: Subject, noise: Noise, name: str) -> str:
    """Return the member that an output's error fits and that was not allowed, or nothing."""
    member = fits(noise, {name: build.outputs[name]})[name]
    near = is_near(float(build.outputs[name]["rel_l2"]), noise.outputs[name][member])
    forbidden = near and member not in POSSIBLE and not is_allowed(member, subject.precision)
    return member if forbidden else ""


def _by_signature(signs: list[Sign], outcome: Outcome, size: str) -> Outcome:
    """Judge an output that the norm does not fail by the known defects that it may contain.

    ``size``: of its error, in words, which then stands in place of what the norm alone would say.
    """
    if any(sign.beyond for sign in signs):
        return Outcome(verdict=Verdict.FAIL, reason=size)
    doubtful = next((sign for sign in signs if sign.doubtful), None)
    if doubtful is not None:
        return Outcome(
            verdict=Verdict.INVALID,
            reason=f"undecided: c = {doubtful.c:.3g} of {doubtful.name}, a right engine's is below "
            f"{doubtful.bound:.2g}, a wrong one's above {CLOSER_BOUND * doubtful.bound:.2g}",
        )  # fmt: skip
    return outcome


def describe_error(signs: list[Sign], subject: Subject, noise: Noise) -> str:
    """Say which known defect an error is consistent with, or what else its shape tells."""
    if named := name_signs(signs):
        return " or ".join(_name(sign, subject) for sign in named)
    best = best_sign(signs)
    if best is None or best.c is None:
        return ""
    if best.explained >= EXPLAINED:
        scale = noise.effective_scale(best.c) if best.name == "lost-scale" else None
        if scale is not None and noise.right_scale is not None:
            return (
                f"softmax temperature off: effective scale {scale:.3g} instead of {noise.right_scale:.3g} "
                f"(c = {best.c:.3g} of {best.name})"
            )
        return f"the shape of {best.name}, {best.c:.3g} times its size"
    return f"c = {best.c:.3g} of {best.name}, which explains {100 * best.explained:.0f}% of the error"


def _name(sign: Sign, subject: Subject) -> str:
    defect = subject.known.get(sign.name)
    what = f"{defect.what if defect else sign.name}, c = {sign.c:.4g}"
    upstream = defect.upstream if defect else ""
    return f"consistent with {upstream} ({what})" if upstream else f"consistent with: {what}"


def _check_control(outcome: Outcome, signs: list[Sign], subject: Subject) -> Outcome:
    """Hold a negative control against what was put in: it must fail by just that."""
    case = subject.case
    if case.control is not Control.NEGATIVE or not case.defect:
        return outcome
    sign = next((sign for sign in signs if sign.name == case.defect), None)
    if sign is None or sign.c is None or not sign.usable or sign.named:
        return outcome
    return Outcome(
        verdict=Verdict.INVALID,
        reason=f"it fails, but not by what was put in: c = {sign.c:.3g} of {sign.name} instead of 1",
    )


def _shown_fit(build: Measured, subject: Subject, noise: Noise, name: str, outcome: Outcome) -> str:
    """Return the precision that a right engine shows, where it is not simply the one asked for."""
    if subject.product is not Product.TENSORRT or outcome.verdict is not Verdict.PASS:
        return ""
    member = fits(noise, {name: build.outputs[name]})[name]
    error = float(build.outputs[name]["rel_l2"])
    seen = is_allowed(member, subject.precision) and is_near(error, noise.outputs[name][member], SHOWN_FIT)
    precision = precision_of(member)
    return precision if seen and precision != subject.precision else ""


def measured(build: Measured, measure: str) -> float | None:
    """Return a measurement: the case's own scalar, or the worst over its outputs (NaN is worst)."""
    if measure in build.scalars:
        return float(build.scalars[measure])
    values = [float(v[measure]) for v in build.outputs.values() if measure in v]
    if not values:
        return None
    return math.nan if any(math.isnan(value) for value in values) else max(values)
