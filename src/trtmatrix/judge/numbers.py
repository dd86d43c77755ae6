"""Judges what was measured of one engine: noise floors, signatures of known defects, the case's own limits.

The rules and what they were calibrated on are told in docs/verdicts.md; their numbers are in
:mod:`trtmatrix.judge.factors`. Sizes in noise floors are relative L2 errors over the noise floor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trtmatrix.common.words import short
from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.factors import (
    ALLOWED,
    CLOSER_BOUND,
    EXPLAINED,
    FAIL_FACTOR,
    NAMED,
    PASS_FACTOR,
    POSSIBLE,
    SHOWN_FIT,
    SIGNATURE_FLOORS,
    VALID_BOUND,
    VALID_FLOORS,
)
from trtmatrix.judge.noise import HIDES, NO_FLOOR, NO_FLOOR_OF, Noise, fits, is_allowed, is_near, precision_of
from trtmatrix.judge.record import Measured
from trtmatrix.suite.model import Control, Outcome, Product, Verdict
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
        return self.bound <= VALID_BOUND

    @property
    def named(self) -> bool:
        """Whether c is what the defect as it is known gives."""
        return self.c is not None and NAMED[0] <= self.c <= NAMED[1]

    @property
    def beyond(self) -> bool:
        """Whether no right engine has such a c; NaN is beyond all bounds."""
        return self.usable and self.c is not None and not abs(self.c) <= CLOSER_BOUND * self.bound

    @property
    def doubtful(self) -> bool:
        """Whether c is somewhat larger than in a right engine."""
        return self.usable and self.c is not None and not abs(self.c) <= self.bound

    @property
    def residual(self) -> float:
        """The error (its square, as a share of the whole) that is left when the defect is taken away once."""
        if not self.c:
            return math.inf
        return 1 - 2 * self.explained / self.c + self.explained / self.c**2


def nan_last(value: float) -> float:
    """Return what numbers are ordered by, the worst last: NaN is as bad as infinity."""
    return math.inf if math.isnan(value) else value


def measured(build: Measured, measure: str) -> float | None:
    """Return a measurement: the case's own scalar, or the worst over its outputs (NaN is worst)."""
    if measure in build.scalars:
        return float(build.scalars[measure])
    found = [float(values[measure]) for values in build.outputs.values() if measure in values]
    return math.nan if any(map(math.isnan, found)) else max(found, default=None)


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
        floor = subject.noise.floor(name, subject.precision) if subject.noise else None
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
            signs.append(
                Sign(
                    name=name, size=size, bound=bound, output=output, c=values.get("c"),
                    explained=values.get("explained", 0.0),
                )
            )  # fmt: skip
    return signs


def name_signs(signs: Sequence[Sign]) -> list[Sign]:
    """Return the known defects that an error may be named by, the best first."""
    named = sorted((sign for sign in signs if sign.usable and sign.named), key=lambda sign: sign.residual)
    return [sign for sign in named if sign.residual <= 2 * named[0].residual + 0.02]


def best_sign(signs: Sequence[Sign]) -> Sign | None:
    """Return the known defect that explains most of an error, if no right engine has so much of it."""
    seen = [sign for sign in signs if sign.c is not None and sign.usable]
    best = max(seen, key=lambda sign: sign.explained, default=None)
    return best if best is not None and best.doubtful else None


def judge_build(build: Measured, subject: Subject) -> Outcome:
    """Say what the measurements of one engine mean.

    NaN or infinity where the reference is finite always fails, anything but the same infinity where it is
    infinite too, and so does a measurement of the case's own above its limit. Then the outputs are held
    against the noise floor, and their error against the known defects. A case that can say nothing is
    INVALID; so is one whose numbers lie between right and wrong.
    """
    case = subject.case
    if reason := _unexpected(build) or _above_limit(build, case):
        if case.control is Control.NEGATIVE and case.defect:
            return _invalid(f"it fails, but not by what was put in ({case.defect}): {reason}")
        return Outcome(verdict=Verdict.FAIL, reason=reason)
    if case.tolerance and measured(build, BEYOND) is None:
        return _invalid(f"no reference: {_tolerance_text(case)} cannot be applied; {NO_FLOOR}")
    if absent := [name for name in case.limits if measured(build, name) is None]:
        return _invalid(f"the run did not measure {', '.join(absent)}, for which the case has a limit")
    if not build.outputs and case.limits:
        return Outcome(verdict=Verdict.PASS, reason=_trials(build))
    if subject.noise is None:
        return _without_noise(build, case)
    outcome = _judge_outputs(build, subject, subject.noise)
    if not case.tolerance or outcome.verdict is Verdict.PASS:
        return outcome
    said = "fails it" if outcome.verdict is Verdict.FAIL else "does not decide"
    reason = f"within {_tolerance_text(case)}; the noise floor {said}: {outcome.reason}"
    return Outcome(verdict=Verdict.PASS, reason=reason)


def _invalid(reason: str) -> Outcome:
    return Outcome(verdict=Verdict.INVALID, reason=reason)


def _unexpected(build: Measured) -> str:
    for name, values in unexpected_in(build).items():
        bad, of = values["nan_unexpected"], values.get("count")
        missed = values.get("inf_missed", 0)
        if bad > missed or not missed:
            return f"{name}: {bad - missed} of {of} NaN or infinite where the reference is finite"
        return f"{name}: {missed} of {of} not infinite as the reference is"
    return ""


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


def _tolerance_text(case: Case) -> str:
    return f"atol {case.tolerance['atol']:g}, rtol {case.tolerance['rtol']:g}"


def _without_noise(build: Measured, case: Case) -> Outcome:
    if case.tolerance:
        within = f"within {_tolerance_text(case)}; there is no noise floor"
        return Outcome(verdict=Verdict.PASS, reason=within)
    if case.limits or (case.keep and _is_exact(build)):
        return Outcome(verdict=Verdict.PASS)
    if case.keep:
        return _invalid(NO_FLOOR)
    return _invalid("no noise floor is known of this case, and it has no limit: it can say nothing")


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
    signs, floors = read_signs(build, subject), read_floors(build, subject)
    if reason := says_nothing(subject, signs):
        return _invalid(reason)
    if not floors:
        exact = subject.case.keep and _is_exact(build)
        return Outcome(verdict=Verdict.PASS) if exact else _invalid(NO_FLOOR)
    name = max(sorted(floors), key=lambda output: nan_last(floors[output]))
    outcome = _by_norm(build, subject, noise, name, floors[name])
    if outcome.verdict is not Verdict.FAIL:
        outcome = _by_signature(signs, outcome, f"{name}: {short(floors[name])} noise floors")
    if outcome.verdict is Verdict.PASS:
        unseen = _not_seen(build, subject, noise, floors) or _not_known(signs, outcome)
        fit = _shown_fit(build, subject, noise, name)
        return _invalid(unseen) if unseen else Outcome(verdict=Verdict.PASS, reason=outcome.reason, fit=fit)
    if outcome.verdict is Verdict.FAIL:
        words = describe_error(signs, subject)
        if not words and (member := forbidden_fit(build, subject, name)):
            words = f"as {member} computes, which was not allowed"
        reason = "; ".join(filter(None, (outcome.reason, words)))
        return _check_control(Outcome(verdict=Verdict.FAIL, reason=reason), signs, subject.case)
    return outcome


def says_nothing(subject: Subject, signs: Sequence[Sign]) -> str:
    """Return why a case with a noise can say nothing, or nothing where it can."""
    if not signs:
        noise, useful = subject.noise, subject.case.useful
        floors = [noise.floor(output, subject.precision) or 0.0 for output in noise.outputs] if noise else []
        worst = max(floors, default=0.0)
        return f"the noise floor {worst:.2g} is above {useful:g}: {HIDES}" if worst > useful else ""
    if any(sign.size >= VALID_FLOORS or sign.usable for sign in signs):
        return ""
    best = max(signs, key=lambda sign: sign.size)
    return (
        f"the known defect {best.name} is {short(best.size)} noise floors, and a right engine's c may be "
        f"{short(best.bound)}: neither its size nor its shape would show"
    )


def _by_norm(build: Measured, subject: Subject, noise: Noise, name: str, floors: float) -> Outcome:
    """Judge the worst output's relative L2 error: the factors on the noise floor, else a closer look."""
    if floors <= PASS_FACTOR:
        return Outcome(verdict=Verdict.PASS)
    error = float(build.outputs[name]["rel_l2"])
    reason = f"{name}: {short(floors)} noise floors (relative L2 error {short(error)})"
    if not floors < FAIL_FACTOR:
        return Outcome(verdict=Verdict.FAIL, reason=reason)
    for member in sorted(POSSIBLE & set(noise.outputs[name])):
        if precision_of(member) in ALLOWED[subject.precision] and is_near(error, noise.outputs[name][member]):
            return Outcome(verdict=Verdict.PASS, reason=f"fits {member}, which no GPU has shown yet")
    return _invalid(f"{reason}: undecided, right is up to {PASS_FACTOR:g}, wrong from {FAIL_FACTOR:g}")


def _by_signature(signs: Sequence[Sign], outcome: Outcome, size: str) -> Outcome:
    """Judge an output that the norm does not fail by the known defects that it may contain.

    ``size``: of its error, in words, which then stands in place of what the norm alone would say.
    """
    if any(sign.beyond for sign in signs):
        return Outcome(verdict=Verdict.FAIL, reason=size)
    for sign in signs:
        if sign.doubtful:
            return _invalid(
                f"undecided: c = {sign.c:.3g} of {sign.name}, a right engine's is below {sign.bound:.2g}, "
                f"a wrong one's above {CLOSER_BOUND * sign.bound:.2g}"
            )
    return outcome


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


def _not_known(signs: Sequence[Sign], outcome: Outcome) -> str:
    """Return which known defect could hide in what passes otherwise, as its signature was not measured."""
    unknown = [sign for sign in signs if sign.c is None]
    if outcome.reason and unknown:
        names = ", ".join(sign.name for sign in unknown)
        return f"undecided: {outcome.reason}, and the record has no signature of {names}"
    hidden = ", ".join(sign.name for sign in unknown if sign.size < SIGNATURE_FLOORS)
    return f"unknown: the record has no signature of {hidden}, which is below the noise" if hidden else ""


def forbidden_fit(build: Measured, subject: Subject, name: str) -> str:
    """Return the member that an output's error fits and that was not allowed, or nothing."""
    if subject.noise is None:
        return ""
    member = fits(subject.noise, {name: build.outputs[name]})[name]
    near = is_near(float(build.outputs[name]["rel_l2"]), subject.noise.outputs[name][member])
    forbidden = near and member not in POSSIBLE and not is_allowed(member, subject.precision)
    return member if forbidden else ""


def _shown_fit(build: Measured, subject: Subject, noise: Noise, name: str) -> str:
    """Return the precision that a right engine shows, where it is not simply the one asked for."""
    if subject.product is not Product.TENSORRT:
        return ""
    member = fits(noise, {name: build.outputs[name]})[name]
    error, precision = float(build.outputs[name]["rel_l2"]), precision_of(member)
    seen = is_allowed(member, subject.precision) and is_near(error, noise.outputs[name][member], SHOWN_FIT)
    return precision if seen and precision != subject.precision else ""


def describe_error(signs: Sequence[Sign], subject: Subject) -> str:
    """Say which known defect an error is consistent with, or what else its shape tells."""
    if named := name_signs(signs):
        return " or ".join(_name(sign, subject) for sign in named)
    best = best_sign(signs)
    if best is None or best.c is None:
        return ""
    if best.explained < EXPLAINED:
        return f"c = {best.c:.3g} of {best.name}, which explains {100 * best.explained:.0f}% of the error"
    return f"the shape of {best.name}, {best.c:.3g} times its size"


def _name(sign: Sign, subject: Subject) -> str:
    defect = subject.known.get(sign.name)
    what = f"{defect.what if defect else sign.name}, c = {sign.c:.4g}"
    upstream = defect.upstream if defect else ""
    return f"consistent with {upstream} ({what})" if upstream else f"consistent with: {what}"


def _check_control(outcome: Outcome, signs: Sequence[Sign], case: Case) -> Outcome:
    """Hold a failing negative control against what was put in: it must fail by just that."""
    if case.control is Control.NEGATIVE and case.defect:
        for sign in signs:
            if sign.name == case.defect and sign.c is not None and sign.usable and not sign.named:
                return _invalid(
                    f"it fails, but not by what was put in: c = {sign.c:.3g} of {sign.name} instead of 1"
                )
    return outcome
