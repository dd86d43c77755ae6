"""Verdicts of single cases, from what the probe says and the outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operators.test_operator_cases import make_case

from trtmatrix.operators.verdicts import ENDED, Verdict, judge
from trtprobe import ends, operators

ONES = {"y": np.ones((2, 3), np.float32)}
NAN, INF = float("nan"), float("inf")


def verdict_of(y: Any, expected: Any, ended: str = ends.RAN) -> tuple[Verdict, str]:
    found = judge(make_case("t", "T"), {"y": expected}, {"ended": ended}, {} if y is None else {"y": y})
    return found.verdict, found.detail


@pytest.mark.parametrize(
    ("y", "wrong"),
    [
        (np.full((2, 3), 1.0009, np.float32), ""), (np.ones((2, 3), np.float64), ""),
        (None, "output y is not there"), (np.ones((2, 3), np.int32), "y is int32 instead of float32"),
        (np.ones((3, 2), np.float32), "y has the shape [3, 2] instead of [2, 3]"),
        (np.full((2, 3), NAN, np.float32),
         "y: 6 of 6 values are off, the furthest at [0, 0]: nan instead of 1"),
        (np.array([[1, 1, 1], [1, 1.5, 3]], np.float32),
         "y: 2 of 6 values are off, the furthest at [1, 2]: 3 instead of 1"),
    ],
)  # fmt: skip
def test_values_shape_and_type_are_held_against_onnx_s_own(y: Any, wrong: str) -> None:
    assert verdict_of(y, ONES["y"]) == (Verdict.WRONG if wrong else Verdict.RIGHT, wrong)


@pytest.mark.parametrize(
    ("y", "expected", "right"),
    [
        (np.array([NAN, INF], np.float32), np.array([NAN, INF], np.float32), True),
        (np.array([INF, INF], np.float32), np.array([NAN, INF], np.float32), False),
        (np.array([3], np.int32), np.array([3], np.int64), True),
        (np.array([2], np.int32), np.array([3], np.int64), False),
        (np.array([True, False]), np.array([True, False]), True),
        (np.array([1e-4, 500], np.float32), np.array([0, 500], np.float32), True),  # rounding, as in a DFT
        (np.array([1e-2, 500], np.float32), np.array([0, 500], np.float32), False),
        (np.array([0.3984], np.float16), np.array([0.3979], np.float16), True),  # one unit in the last place
        (np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32), True),
        (np.float32(2), np.float32(2), True),
    ],
)
def test_nan_integers_of_another_width_and_rounding(y: Any, expected: Any, right: bool) -> None:
    assert (verdict_of(np.asarray(y), np.asarray(expected))[0] is Verdict.RIGHT) is right


def test_every_way_of_ending_has_its_verdict() -> None:
    words = (
        operators.PARSER, operators.BUILDER, operators.FEED, operators.RUN, operators.MEMORY, operators.HUNG,
        ends.CRASHED, ends.BUILT,
    )  # fmt: skip
    assert [verdict_of(None, ONES["y"], word)[0] for word in words] == [ENDED[word] for word in words]
    assert {*ENDED.values(), Verdict.WRONG} == set(Verdict)
    assert verdict_of(None, ONES["y"], "a word of no probe")[0] is Verdict.NOTHING


def test_a_crash_is_told_with_the_product_s_last_words() -> None:
    log = "[ERROR] earlier\nAssertion failed: nbDims\n\nFatal Python error: Segmentation fault\n\nThread 1"
    done = {"ended": ends.CRASHED, "detail": "killed by SIGSEGV", "log": log, "seconds": 0.5}
    found = judge(make_case("t", "T"), ONES, done, {})
    assert (found.verdict, found.detail) == (Verdict.CRASHED, "killed by SIGSEGV; Assertion failed: nbDims")


def test_an_error_that_stays_with_the_context_is_a_crash_although_outputs_came() -> None:
    found = judge(make_case("t", "T"), ONES, {"ended": ends.RAN, "trouble": "illegal address"}, ONES)
    assert found.verdict is Verdict.CRASHED
    assert "illegal address" in found.detail


def test_bad_good_refused_and_missing_are_apart() -> None:
    for verdict in Verdict:
        kinds = (verdict.is_bad, verdict.is_good, verdict.is_refused, verdict is Verdict.NOTHING)
        assert sum(kinds) == 1, verdict
    assert all(verdict.is_doubtful for verdict in Verdict if verdict.is_bad)
