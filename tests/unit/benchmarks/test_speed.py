"""The benchmark of speed: its goals and its page."""

from __future__ import annotations

import math

import pytest
from bench.speed import __main__ as speed
from bench.speed.page import render_page
from bench.speed.rows import Goal, parse_rows


@pytest.mark.parametrize(
    ("value", "at_least", "met"),
    [
        (4.0, True, True), (3.99, True, False), (4.0, False, True), (4.01, False, False),
        (math.nan, True, False), (math.nan, False, False),
    ],
)  # fmt: skip
def test_a_goal_holds_at_its_limit_and_never_for_what_is_no_number(
    value: float, at_least: bool, met: bool
) -> None:
    assert Goal(what="x", value=value, limit=4.0, at_least=at_least).met is met


def test_the_kept_page_is_that_of_the_kept_figures() -> None:
    rows = parse_rows(speed.JSON.read_text(encoding="utf-8"))
    assert speed.PAGE.read_text(encoding="utf-8") == render_page(rows, speed.NEEDS)
