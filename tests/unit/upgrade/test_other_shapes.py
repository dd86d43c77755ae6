"""An output of another shape than its reference: a failure and no trouble, believed in time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from builders import make_case, make_cell, make_record

from trtmatrix.judge.judge import judge
from trtmatrix.suite.model import Cause, Verdict
from trtprobe.answer import measure_all

SAID = "shape (1, 1, 1), the reference has (2, 24, 1)"
SCALAR = "shape (2,), the reference has ()"
SHAPES = "ms: wrong shape: (1, 1, 1) instead of (2, 24, 1); v.s1: wrong shape: (2,) instead of ()"
WRONG = "wrong shape: (1, 1, 1) instead of (2, 24, 1)"
CELL = make_cell(case=make_case())


@pytest.mark.parametrize(
    ("ended", "detail", "reason"),
    [
        ("probe failed", f"build 2 of 3: raised ValueError: {SAID}", WRONG),
        ("probe failed", f"ms: {SAID}; v.s1: {SCALAR}", SHAPES),
        ("probe failed", "raised ValueError: shape (1,), the defect lost has (2,)", ""),
        ("crashed", f"raised ValueError: {SAID}", ""),
    ],
)  # fmt: skip
def test_shapes_are_read_from_what_the_probe_says(ended: str, detail: str, reason: str) -> None:
    record = make_record(CELL, ended=ended, detail=detail)
    outcome = judge([record], CELL.case, CELL.version, CELL.repro)
    if reason:
        assert (outcome.verdict, outcome.cause, outcome.reason) == (Verdict.FAIL, None, reason)
    else:
        assert (outcome.verdict, outcome.cause) == (Verdict.NO_VERDICT, Cause(ended))


def test_the_probe_names_every_output_of_another_shape_and_measures_the_others() -> None:
    reference = {"ms": np.ones((2, 24, 1)), "v.s1": np.ones(()), "y": np.ones(3)}
    files: Any = SimpleNamespace(reference=reference, defects={})
    odd: list[str] = []
    found = measure_all({"ms": np.ones((1, 1, 1)), "v.s1": np.ones(2), "y": np.ones(3)}, files, odd)
    assert list(found["outputs"]) == ["y"]
    record = make_record(CELL, ended="probe failed", detail="; ".join(odd))
    assert judge([record], CELL.case, CELL.version, CELL.repro).reason == SHAPES
