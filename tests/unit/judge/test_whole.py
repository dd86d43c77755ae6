"""A right verdict takes every output and every known defect, and a control fails by its own defect alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from judge.test_numbers import FLOOR, MEMBERS, judged, make_build, make_noise, make_subject

from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.noise import Noise
from trtmatrix.judge.numbers import judge_build
from trtmatrix.judge.record import Measured
from trtmatrix.suite.model import Control, Verdict

TWO = make_noise(outputs={"y": MEMBERS, "z": MEMBERS})


def with_outputs(**rel_l2: float) -> Measured:
    outputs = {name: {"nan_unexpected": 0, "rel_l2": error} for name, error in rel_l2.items()}
    return replace(make_build(), outputs=outputs)


def test_an_output_that_the_run_did_not_give_is_no_pass() -> None:
    assert judged(with_outputs(y=FLOOR, z=FLOOR), noise=TWO).verdict is Verdict.PASS
    outcome = judged(with_outputs(y=FLOOR), noise=TWO)
    assert (outcome.verdict, outcome.reason) == (Verdict.INVALID, "the run did not give z")


@pytest.mark.parametrize("noise", [make_noise(), replace(TWO, outputs={"y": MEMBERS, "z": {}})])
@pytest.mark.parametrize("error", [1.0, math.inf, math.nan])
def test_an_output_without_a_floor_is_no_pass(noise: Noise, error: float) -> None:
    outcome = judged(with_outputs(y=FLOOR, z=error), noise=noise)
    assert (outcome.verdict, outcome.reason) == (Verdict.INVALID, "no noise floor is known of z")


@pytest.mark.parametrize("outputs", [{"y": 9 * FLOOR}, {"y": 9 * FLOOR, "z": FLOOR, "w": 1.0}])
def test_what_is_wrong_is_wrong_whatever_was_not_seen(outputs: Mapping[str, float]) -> None:
    assert judged(with_outputs(**outputs), noise=TWO).verdict is Verdict.FAIL


@pytest.mark.parametrize(("size", "verdict"), [(4.9, Verdict.INVALID), (5.0, Verdict.PASS)])
def test_a_defect_that_was_added_since_is_unknown_where_the_noise_could_hide_it(
    size: float, verdict: Verdict
) -> None:
    """The record's own noise is older than the defect; how large it is, the calibration knows."""
    today = make_noise(defects={"lost-mask": {"y": size * FLOOR}}, c={"lost-mask": {"tf32": 0.001}})
    calibration = Calibration(noises={"k": today})
    case: dict[str, Any] = {"defects": ("lost-scale", "lost-mask"), "noise_key": "k"}
    subject = replace(make_subject(make_noise(), **case), calibration=calibration)
    outcome = judge_build(make_build(), subject)
    assert outcome.verdict is verdict
    assert ("no signature of lost-mask" in outcome.reason) is (verdict is Verdict.INVALID)


@pytest.mark.parametrize(
    ("values", "limits"),
    [({"nan_unexpected": 12}, {}), ({"rows_differ": 3.0}, {"rows_differ": 0.0})],
    ids=["NaN", "limit"],
)
def test_a_negative_control_that_fails_by_something_else_shows_nothing(
    values: Mapping[str, Any], limits: Mapping[str, float]
) -> None:
    build = make_build(8.0, c=1.0, explained=0.99, **values)
    case: dict[str, Any] = {"control": Control.NEGATIVE, "limits": limits}
    outcome = judged(build, defect="lost-scale", **case)
    assert outcome.verdict is Verdict.INVALID
    assert "it fails, but not by what was put in (lost-scale): " in outcome.reason
    assert judged(build, **case).verdict is Verdict.FAIL, "where nothing was named, any failure will do"
