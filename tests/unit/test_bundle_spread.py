"""Which figures of a run count as those that were recorded."""

from __future__ import annotations

import math

import pytest

from trtmatrix.core.bundle.spread import Figure, compare_figures
from trtmatrix.core.factors import PASS_FACTOR

RULES = {
    "pass": PASS_FACTOR, "outputs": {"y": {"floor": 1e-3}, "z": {"floor": None}},
    "defects": [{"name": "lost-scale", "bound": 0.05}],
}  # fmt: skip
FLOORS, ERROR, C = "y: error in noise floors", "y: relative L2 error", "c of lost-scale"


def within(name: str, recorded: list[float], found: list[float]) -> bool:
    (figure,) = compare_figures([{name: v} for v in recorded], [{name: v} for v in found], RULES)
    return figure.within


@pytest.mark.parametrize(
    ("name", "recorded", "found", "same"),
    [
        (FLOORS, [2310.0, 2313.0], [2311.0], True),
        (FLOORS, [2310.0, 2313.0], [2313.0 + 2 * PASS_FACTOR], True),
        (FLOORS, [2310.0, 2313.0], [2313.1 + 2 * PASS_FACTOR], False),
        (FLOORS, [2310.0, 2313.0], [2309.9 - 2 * PASS_FACTOR], False),
        (FLOORS, [2310.0], [2310.0, 9.0], False),  # each engine
        (ERROR, [1.98], [1.98 + 2e-3 * PASS_FACTOR], True),
        (ERROR, [1.98], [1.989], False),
        ("z: relative L2 error", [1.0], [1.019], True),
        ("z: relative L2 error", [1.0], [1.03], False),
        (C, [0.998, 0.999], [1.09], True),
        (C, [0.998, 0.999], [1.11], False),
        (C, [1.0], [-1.0], False),
        ("wrong", [30.0], [1.0], True),  # a count: that it is above its limit is the verdict
        ("y: largest |y - r|", [2.0], [4.0], True),
        (FLOORS, [math.nan], [math.nan], True),
        (FLOORS, [10.0], [math.nan], False),
        (FLOORS, [math.nan], [10.0], False),
        (FLOORS, [math.inf], [math.inf], True),
        (FLOORS, [10.0], [math.inf], False),
    ],
)
def test_a_figure_is_within_the_spread(
    name: str, recorded: list[float], found: list[float], same: bool
) -> None:
    assert within(name, recorded, found) is same


def test_the_spread_is_that_of_all_engines() -> None:
    (figure,) = compare_figures([{C: 0.9}, {C: 1.1}], [{C: 1.0}, {C: 0.95}], RULES)
    assert figure == Figure(name=C, recorded=(0.9, 1.1), found=(0.95, 1.0), slack=0.1)


def test_a_recorded_figure_that_is_absent_now_is_told() -> None:
    (figure,) = compare_figures([{C: 1.0}], [{FLOORS: 1.0}], RULES)
    assert (figure.found, figure.within) == (None, False)
    (figure,) = compare_figures([{"wrong": 1.0}], [{}], RULES)
    assert (figure.found, figure.within, figure.slack) == (None, True, None)


def test_what_was_not_recorded_is_not_compared() -> None:
    assert compare_figures([], [{FLOORS: 1.0}], RULES) == ()


NAN = "y: NaN or infinite"
HUGE = [{ERROR: 2.06e23, FLOORS: 8.4e29, NAN: 2.0}, {ERROR: 1.48e11, FLOORS: 6e17, NAN: 1.0}]
SOME = [{ERROR: 1.08, FLOORS: 1080.0, NAN: 736.0}, {ERROR: 1.04, FLOORS: 1040.0}]


@pytest.mark.parametrize("recorded", [HUGE, SOME])
def test_errors_of_garbage_are_told_and_not_compared(recorded: list[dict[str, float]]) -> None:
    lines = compare_figures(recorded, [{ERROR: 1.0439, FLOORS: 4.2e6, NAN: 2.0}], RULES)
    assert {line.name for line in lines} >= {ERROR, FLOORS}
    assert all(line.within and line.slack is None for line in lines)


def test_the_error_of_a_single_engine_is_compared_however_large() -> None:
    recorded = [{ERROR: 5e25, FLOORS: 5e28}]
    assert all(line.within for line in compare_figures(recorded, recorded, RULES))
    lines = compare_figures(recorded, [{ERROR: 1.0439, FLOORS: 4.2e6}], RULES)
    assert not any(line.within for line in lines)


def test_nan_in_each_engine_is_no_garbage() -> None:
    lines = compare_figures([{**one, ERROR: 0.5, FLOORS: 500.0} for one in HUGE], [{ERROR: 0.9}], RULES)
    assert not all(line.within for line in lines)
