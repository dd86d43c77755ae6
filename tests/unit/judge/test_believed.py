"""A cell is believed only as far as its controls came out as they must."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from builders import make_case, make_cell, make_control, make_entry, make_expectation, make_repro

from trtmatrix.judge.controls import apply_controls
from trtmatrix.judge.entry import Entry
from trtmatrix.suite.cells import CONTROLS
from trtmatrix.suite.model import Control, Evidence, Outcome, Verdict

COMMON = make_repro(
    make_case("right-tf32", control=Control.POSITIVE), make_control("wrong-tf32"), id=CONTROLS,
)  # fmt: skip
REPRO = make_repro(make_case("sdpa-tf32"), make_control("control-tf32"))
BASE, OWN = REPRO.cases
RIGHT, WRONG = COMMON.cases
ORT = "onnxruntime-1.31.1"
ANSWERS = {Verdict.PASS, Verdict.FAIL, Verdict.FLAKY}


def entry(case: Any, verdict: Verdict, version: str = "10.7.0", **more: Any) -> Entry:
    repro = COMMON if case in COMMON.cases else REPRO
    made = make_entry(make_cell(repro, case, version), **more)
    return replace(made, outcome=Outcome(verdict=verdict, reason=f"was {verdict.value}", builds=3, failed=1))


def believed(*entries: Entry) -> Outcome:
    """What becomes of the first."""
    outcome = apply_controls(entries)[0].outcome
    assert outcome is not None
    return outcome


@pytest.mark.parametrize(("case", "seen"), list(itertools.product((RIGHT, WRONG, OWN), Verdict)))
@pytest.mark.parametrize("verdict", Verdict)
def test_a_control_that_came_out_wrong_takes_every_answer_away(
    case: Any, seen: Verdict, verdict: Verdict
) -> None:
    wrong = {Verdict.PASS, Verdict.FAIL, Verdict.FLAKY, Verdict.INVALID}
    wrong -= {Verdict.PASS if case is RIGHT else Verdict.FAIL}
    before, control = entry(BASE, verdict), entry(case, seen)
    after = believed(before, control)
    if seen not in wrong or verdict not in ANSWERS:
        assert after == before.outcome
        return
    assert (after.verdict, after.builds, after.failed) == (Verdict.INVALID, 3, 1)
    kind = "positive" if case is RIGHT else "negative"
    must = "PASS" if case is RIGHT else "FAIL"
    assert after.reason == f"the {kind} control {control.cell.id} is {seen.value}, not {must}"


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("seen", Verdict)
def test_a_graph_that_fails_in_onnx_runtime_says_nothing_of_tensorrt(verdict: Verdict, seen: Verdict) -> None:
    before = entry(BASE, verdict)
    after = believed(before, entry(BASE, seen, ORT))
    if seen is Verdict.FAIL and verdict in ANSWERS:
        assert after.verdict is Verdict.INVALID
        assert after.reason == "the graph disagrees with its reference in ONNX Runtime: was FAIL"
    else:
        assert after == before.outcome


@pytest.mark.parametrize("name", ["repro", "case"])
def test_onnx_runtime_speaks_of_its_own_graph_only(name: str) -> None:
    before = entry(BASE, Verdict.PASS, digests={name: "now"})
    assert believed(before, entry(BASE, Verdict.FAIL, ORT, digests={name: "before"})) == before.outcome
    assert believed(before, entry(BASE, Verdict.FAIL, ORT, digests={name: "now"})).verdict is Verdict.INVALID


def test_a_control_of_another_version_time_or_driver_does_not_count() -> None:
    before = entry(BASE, Verdict.PASS, gpu={"driver": "1"})
    for other, counts in (
        (entry(RIGHT, Verdict.FAIL, "10.8.0", gpu={"driver": "1"}), False),
        (entry(WRONG, Verdict.PASS, evidence=Evidence.RECORDED), False),
        (entry(WRONG, Verdict.PASS, gpu={"driver": "2"}), False),
        (entry(WRONG, Verdict.PASS, gpu={"driver": "1"}), True),
    ):
        assert (believed(before, other).verdict is Verdict.INVALID) is counts
    recorded = replace(before, evidence=Evidence.RECORDED)
    wrong = entry(WRONG, Verdict.PASS, evidence=Evidence.RECORDED)
    assert believed(recorded, wrong).verdict is Verdict.INVALID


def test_what_was_only_reported_is_no_control_and_needs_none() -> None:
    failed, before = entry(RIGHT, Verdict.FAIL), entry(BASE, Verdict.PASS)
    reported, said = (replace(each, record=None, evidence=Evidence.REPORTED) for each in (failed, before))
    assert believed(before, reported) == before.outcome
    assert believed(said, failed) == said.outcome


def test_controls_stay_what_they_are() -> None:
    """That one is wrong must be seen, and stays a surprise."""
    entries = [entry(WRONG, Verdict.PASS), entry(RIGHT, Verdict.FAIL), entry(OWN, Verdict.PASS)]
    assert apply_controls(entries) == tuple(entries)
    assert all(item.surprise for item in entries)


@pytest.mark.parametrize("case", [RIGHT, WRONG, OWN])
def test_a_control_that_says_nothing_is_a_surprise_unless_that_was_expected(case: Any) -> None:
    silent = entry(case, Verdict.INVALID)
    assert silent.surprise
    assert not replace(silent, evidence=Evidence.RECORDED).surprise
    assert not replace(silent, expectation=make_expectation(Verdict.INVALID)).surprise
    assert not entry(BASE, Verdict.INVALID).surprise
