"""An output of another shape than its reference: a failure and no trouble, believed in time."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_case, make_cell, make_record

from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.confirm import assess
from trtmatrix.judge.judge import judge, other_shapes
from trtmatrix.judge.manner import Kind, manner_in, same_manner
from trtmatrix.suite.model import Cause, Verdict

SAID = "shape (1, 1, 1), the reference has (2, 24, 1)"
SCALAR = "shape (2,), the reference has ()"
WRONG, WRONG_SCALAR = "wrong shape: (1, 1, 1) instead of (2, 24, 1)", "wrong shape: (2,) instead of ()"
CELL = make_cell(case=make_case())


@pytest.mark.parametrize(
    ("ended", "detail", "shapes"),
    [
        ("probe failed", f"raised ValueError: {SAID}", {"": WRONG}),
        ("probe failed", f"build 2 of 3: raised ValueError: {SAID}", {"": WRONG}),
        ("probe failed", f"ms: {SAID}; v.s1: {SCALAR}", {"ms": WRONG, "v.s1": WRONG_SCALAR}),
        ("probe failed", "raised ValueError: shape (1,), the defect lost has (2,)", {}),
        ("probe failed", "the probe ended with code 1", {}),
        ("crashed", f"raised ValueError: {SAID}", {}),
    ],
)  # fmt: skip
def test_shapes_are_read_from_what_the_probe_says(ended: str, detail: str, shapes: dict[str, str]) -> None:
    record = make_record(CELL, ended=ended, detail=detail)
    assert other_shapes(record) == shapes
    outcome = judge([record], CELL.case, CELL.version, CELL.repro)
    if shapes:
        assert (outcome.verdict, outcome.cause) == (Verdict.FAIL, None)
        assert all(said in outcome.reason for said in shapes.values())
    else:
        assert (outcome.verdict, outcome.cause) == (Verdict.NO_VERDICT, Cause(ended))


def test_it_is_a_way_of_failing_of_its_own() -> None:
    record = make_record(CELL, ended="probe failed", detail=f"raised ValueError: {SAID}")
    manner = manner_in([record], CELL, Calibration())
    assert manner is not None
    assert (manner.kind, manner.words) == (Kind.SHAPE, WRONG)
    assert same_manner(manner, manner) == ""


@pytest.mark.parametrize("position", [0, 1])
def test_it_is_believed_once_it_was_seen_again_alone(position: int) -> None:
    facts: dict[str, Any] = {"ended": "probe failed", "detail": f"raised ValueError: {SAID}"}
    first = make_record(
        CELL, run="20261122t000000-00000001", worker={"number": 0, "position": position}, **facts
    )
    assert assess(CELL, [first]).wanted > 0
    again = make_record(CELL, run="20261122t000001-00000002", confirms=first.run, **facts)
    assert assess(CELL, [again, first]).wanted == 0
