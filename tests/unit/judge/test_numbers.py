"""What the judge says of one engine's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trtmatrix.judge.factors import FAIL_FACTOR, PASS_FACTOR
from trtmatrix.judge.noise import Calibration, Noise
from trtmatrix.judge.numbers import Subject, judge_build
from trtmatrix.judge.record import Measured
from trtmatrix.suite.model import Control, Outcome, Product, Verdict
from trtmatrix.suite.repros import Case, Defect
from trtprobe.measure import measure_with_signatures

FLOOR = 2.0**-10
MEMBERS = {"fp32": FLOOR / 2000, "tf32": FLOOR, "tf32-late": FLOOR / 2, "tf32-truncated": 6 * FLOOR}
KNOWN = {
    "lost-scale": Defect(what="one √scale lost", upstream="NVIDIA/TensorRT#4333"),
    "lost-mask": Defect(what="the mask ignored"),
}


def make_noise(size: float = 8.0, *, bound: float = 0.001, **fields: Any) -> Noise:
    """Noise of a TF32 case with a defect of ``size`` floors; ten times the ensemble's |c| is the bound."""
    return Noise(
        **{
            "key": "k", "precision": "tf32", "outputs": {"y": MEMBERS},
            "defects": {"lost-scale": {"y": size * FLOOR}}, "c": {"lost-scale": {"tf32": bound / 10}},
            **fields,
        }
    )  # fmt: skip


def make_subject(noise: Noise | None = None, **case: Any) -> Subject:
    fields: dict[str, Any] = {"defects": ("lost-scale",), **case}
    return Subject(
        case=Case(id="c", params={"precision": "tf32"}, **{"limits": {}, **fields}),
        noise=noise or make_noise(), calibration=Calibration(), known=KNOWN, product=Product.TENSORRT,
    )  # fmt: skip


def engine(floors: float = 1.0, c: float = 0.0, explained: float = 0.0, **values: Any) -> Measured:
    outputs = {"y": {"count": 12, "nan_unexpected": 0, "rel_l2": floors * FLOOR, **values}}
    return Measured(
        outputs=outputs, scalars={}, signatures={"lost-scale": {"y": {"c": c, "explained": explained}}}
    )


def judged(build: Measured, **subject: Any) -> Outcome:
    return judge_build(build, make_subject(**subject))


PASS, FAIL, INVALID = Verdict.PASS, Verdict.FAIL, Verdict.INVALID
HIDDEN = {"noise": make_noise(2.9, bound=0.31)}
SMALL = {"noise": make_noise(0.5)}
LIMITED: dict[str, Any] = {"limits": {"rows_differ": 0.0}}
CONTROL: dict[str, Any] = {"control": Control.NEGATIVE, "defect": "lost-scale"}
OTHERWISE = [
    engine(8.0, c=1.0, explained=0.99, **values) for values in ({"nan_unexpected": 12}, {"rows_differ": 3.0})
]
BARE = replace(engine(), signatures={})
SUBJECTS: list[tuple[Measured, dict[str, Any], Verdict, str]] = [
    # the norm is held against the floor
    (engine(0.0), {}, PASS, ""), (engine(PASS_FACTOR), {}, PASS, ""),
    (engine(PASS_FACTOR * 1.01), {}, INVALID, ""), (engine(FAIL_FACTOR * 0.99), {}, INVALID, ""),
    *((engine(floors), {}, FAIL, "") for floors in (FAIL_FACTOR, math.inf, math.nan)),
    # what truncation would explain passes and says so, where no known defect was left out
    (engine(5.8), {}, PASS, "tf32-truncated, which no GPU has shown yet"),
    (replace(engine(5.8), signatures={}), {}, INVALID, "no signature of lost-scale"),
    # below the noise the signature decides
    (engine(1.2, c=0.02, explained=0.2), SMALL, PASS, ""),
    (engine(1.2, c=0.03, explained=0.2), SMALL, INVALID, ""),
    *((engine(1.2, c=c, explained=0.2), SMALL, FAIL, "") for c in (0.041, 1.0, -0.5, math.nan)),
    # one that was not measured is unknown where the norm cannot tell
    (BARE, {"noise": make_noise(4.9)}, INVALID, "unknown"), (BARE, {"noise": make_noise(5.0)}, PASS, ""),
    # a case whose noise hides the defect says nothing; a usable shape or a large defect is enough
    *((engine(floors, c=1.0), HIDDEN, INVALID, "neither its size nor its shape would show")
      for floors in (0.5, 100.0)),
    *((engine(), {"noise": make_noise(size, bound=bound)}, PASS, "")
      for size, bound in ((2.9, 0.3), (3.0, 5.0))),
    # without a known defect the floor must be useful
    (engine(), {"defects": (), "useful": FLOOR}, PASS, ""),
    (engine(), {"defects": (), "useful": FLOOR / 2}, INVALID, "hides too much"),
    (engine(), {"noise": make_noise(1e6, precision="fp32")}, FAIL, "as tf32 computes, which was"),
    # a limit that was not measured says nothing, and one that is NaN fails
    (engine(), LIMITED, INVALID, ""),
    (replace(engine(), scalars={"rows_differ": math.nan}), LIMITED, FAIL, ""),
    # a negative control must fail, by what was put in; where nothing was named, any failure will do
    (engine(8.0, c=1.0, explained=0.99), CONTROL, FAIL, ""),
    (engine(8.0, c=0.5, explained=0.99), CONTROL, INVALID, "c = 0.5 of lost-scale instead of 1"),
    (OTHERWISE[0], CONTROL, INVALID, "it fails, but not by what was put in (lost-scale): "),
    (OTHERWISE[0], {**CONTROL, "defect": ""}, FAIL, ""),
    (OTHERWISE[1], {**CONTROL, **LIMITED}, INVALID, "it fails, but not by what was put in (lost-scale): "),
    (OTHERWISE[1], {**CONTROL, **LIMITED, "defect": ""}, FAIL, ""),
]  # fmt: skip


@pytest.mark.parametrize(("build", "subject", "verdict", "words"), SUBJECTS)
def test_an_engine_s_numbers(build: Measured, subject: dict[str, Any], verdict: Verdict, words: str) -> None:
    outcome = judged(build, **subject)
    assert (outcome.verdict, words in outcome.reason) == (verdict, True), outcome.reason


@pytest.mark.parametrize("c", [0.89, 1.11, 3.66, -0.52, 0.03])
def test_a_known_bug_is_not_named_at_another_c_but_its_shape_is(c: float) -> None:
    assert "4333" not in judged(engine(30.0, c=c, explained=0.98)).reason
    reason = judged(engine(16.0, c=9.0, explained=0.99)).reason
    assert "the shape of lost-scale, 9 times its size" in reason


def test_where_two_known_defects_fit_as_well_both_are_named() -> None:
    pairs = {"lost-scale": (1.0, 0.97), "lost-mask": (1.01, 0.96)}
    noise = make_noise(
        defects={name: {"y": 8 * FLOOR} for name in pairs}, c={name: {"tf32": 0.0} for name in pairs}
    )
    signatures = {name: {"y": {"c": c, "explained": share}} for name, (c, share) in pairs.items()}
    build = replace(engine(8.0), signatures=signatures)
    reason = judge_build(build, make_subject(noise, defects=tuple(pairs))).reason
    assert "#4333" in reason
    assert " or consistent with: the mask ignored" in reason


@pytest.mark.parametrize(
    ("floors", "share", "fit"),
    [(1.0, 0.0, "tf32"), (1.05, 1.0, "fp16"), (3.0, 1.0, "fp16"), (0.0005, 0.0, "fp32"), (5.0, 1.0, "")],
)
def test_under_the_flag_the_precision_that_shows_is_said(floors: float, share: float, fit: str) -> None:
    members = {**MEMBERS, "fp16": 1.1 * FLOOR, "fp16-blocks": 3 * FLOOR}
    noise = make_noise(1e4, precision="fp16-flag", outputs={"y": members})
    outcome = judged(engine(floors, share_10_bits=share), noise=noise)
    assert (outcome.verdict, outcome.fit) == (Verdict.PASS, fit)


def test_on_onnx_runtime_a_float32_graph_has_the_floor_of_float32() -> None:
    subject = replace(make_subject(make_noise(1e6)), product=Product.ONNXRUNTIME)
    assert judge_build(engine(1.0), subject).verdict is Verdict.FAIL
    assert judge_build(engine(0.001), subject).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("wrong", "verdict", "reason"),
    [
        (0, PASS, "none of 30 trials: a rate above 9.5% is excluded with 95%, if they are independent"),
        (1, FAIL, "wrong 1 > 0 (of 30 trials)"),
    ],
)
def test_trials_say_what_they_exclude(wrong: int, verdict: Verdict, reason: str) -> None:
    build = Measured(outputs={}, scalars={"wrong": wrong, "trials": 30})
    outcome = judged(build, limits={"wrong": 0.0}, defects=())
    assert (outcome.verdict, outcome.reason) == (verdict, reason)


def rounded(y: NDArray[Any], reference: NDArray[Any], kind: str = "float32", member: float = 0.0) -> Outcome:
    """Judge an output of a user's model whose floor is of one member, which may have been exact."""
    noise = Noise(key="", precision="fp32", outputs={"y": {"fp32": member}}, defects={}, types={"y": kind})
    values = measure_with_signatures(y, reference, {})[0]
    build = Measured(outputs={"y": values}, scalars={})
    return judged(build, noise=noise, defects=(), keep=True)


@pytest.mark.parametrize(
    ("kind", "rounding"), [("float32", 2.0**-24), ("float16", 2.0**-11), ("bfloat16", 2.0**-8)]
)
def test_no_floor_is_below_the_rounding_of_the_outputs_own_type(kind: str, rounding: float) -> None:
    reference = np.linspace(1, 2, 50)
    for floors, verdict in ((0.0, Verdict.PASS), (3.9, Verdict.PASS), (8.1, Verdict.FAIL)):
        assert rounded(reference * (1 + floors * rounding), reference, kind).verdict is verdict
    assert rounded(reference * (1 + 2.0e-7), reference).verdict is Verdict.PASS  # a second right engine
    assert rounded(reference * 1.01, reference, member=0.01).verdict is Verdict.PASS  # a floor may be higher


def test_an_infinity_that_the_output_lacks_is_wrong() -> None:
    r = np.array([1.0, math.inf, 2.0])
    for found, reason in ((1.0, "y: 1 of 3 not infinite as the reference is"), (math.inf, "")):
        values, _ = measure_with_signatures(np.array([1.0, found, 2.0], np.float32), r, {})
        outcome = judge_build(Measured(outputs={"y": values}, scalars={}), make_subject(defects=()))
        assert (outcome.verdict is Verdict.FAIL, outcome.reason) == (bool(reason), reason)


def test_an_integer_beyond_2_to_the_53_that_is_off_by_one_does_not_pass() -> None:
    subject = replace(make_subject(keep=True), noise=None)
    for off, verdict in ((0, Verdict.PASS), (1, Verdict.INVALID)):
        values, _ = measure_with_signatures(np.array([2**60 + off]), np.array([2**60]), {})
        assert judge_build(Measured(outputs={"y": values}, scalars={}), subject).verdict is verdict


TWO = make_noise(outputs={"y": MEMBERS, "z": MEMBERS})


def with_outputs(**rel_l2: float) -> Measured:
    outputs = {name: {"nan_unexpected": 0, "rel_l2": error} for name, error in rel_l2.items()}
    return replace(engine(), outputs=outputs)


@pytest.mark.parametrize(
    ("outputs", "noise", "verdict", "reason"),
    [
        ({"y": FLOOR, "z": FLOOR}, TWO, Verdict.PASS, ""),
        ({"y": FLOOR}, TWO, Verdict.INVALID, "the run did not give z"),
        *(
            ({"y": FLOOR, "z": error}, noise, Verdict.INVALID, "no noise floor is known of z")
            for noise in (make_noise(), replace(TWO, outputs={"y": MEMBERS, "z": {}}))
            for error in (1.0, math.inf, math.nan)
        ),
        ({"y": 9 * FLOOR}, TWO, Verdict.FAIL, "y: 9 noise floors"),  # whatever was not seen
        ({"y": 9 * FLOOR, "z": FLOOR, "w": 1.0}, TWO, Verdict.FAIL, "y: 9 noise floors"),
    ],
)
def test_an_output_that_is_not_there_or_has_no_floor_is_no_pass(
    outputs: Mapping[str, float], noise: Noise, verdict: Verdict, reason: str
) -> None:
    outcome = judged(with_outputs(**outputs), noise=noise)
    assert (outcome.verdict, outcome.reason.startswith(reason)) == (verdict, True), outcome.reason


@pytest.mark.parametrize(("size", "verdict"), [(4.9, Verdict.INVALID), (5.0, Verdict.PASS)])
def test_a_defect_added_since_is_unknown_where_noise_could_hide_it(size: float, verdict: Verdict) -> None:
    """The record's own noise is older than the defect; how large it is, the calibration knows."""
    today = make_noise(defects={"lost-mask": {"y": size * FLOOR}}, c={"lost-mask": {"tf32": 0.001}})
    calibration = Calibration(noises={"k": today})
    case: dict[str, Any] = {"defects": ("lost-scale", "lost-mask"), "noise_key": "k"}
    subject = replace(make_subject(make_noise(), **case), calibration=calibration)
    outcome = judge_build(engine(), subject)
    assert outcome.verdict is verdict
    assert ("no signature of lost-mask" in outcome.reason) is (verdict is Verdict.INVALID)
