"""The benchmark of speed: its rows, its page, what it reads of records, its command line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from bench.speed import __main__ as speed
from bench.speed import bench as handed
from bench.speed.bench import Bench
from bench.speed.page import render_page
from bench.speed.rows import CannotMeasure, Goal, Row, parse_rows

MACHINE = {"processor": "A processor", "cores": "2", "GPU": "", "commit": "0123456789ab"}
FASTER = Goal(what="times faster", value=5.25, limit=4.0, at_least=True)
SLOW = Goal(what="in all", value=1.5, limit=1.0, unit="s")


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask no engine what it is."""
    monkeypatch.setattr(handed, "read_machine", lambda: MACHINE)


def make_row(name: str = "worker", *goals: Goal, **fields: Any) -> Row:
    return Row(
        **{
            "name": name, "what": "a warm worker", "against": "a fresh container a cell",
            "goals": goals or (FASTER,), "figures": {"warm": [1.0, 3.0, 2.0], "plain": [10.5]},
            "note": "All 3 cells.", "command": f"nox -s bench -- speed --only {name}", "machine": MACHINE,
            **fields,
        }
    )  # fmt: skip


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


def lacking(bench: Bench) -> None:
    bench.say("looking")
    raise CannotMeasure("no such thing here")


def broken(bench: Bench) -> None:
    bench.say("looking")
    raise RuntimeError("it ended with 3\nand more")


def slow(bench: Bench) -> None:
    bench.row(make_row("start", SLOW, command="", machine={}))


def good(bench: Bench) -> None:
    bench.row(make_row("gpu:8.6.0", command="", machine={}))


@pytest.mark.parametrize(
    ("function", "words", "code", "told"),
    [
        (good, [], 0, "all goals were met"),
        (slow, [], 1, "start: in all: at most 1 s, was 1.5 s"),
        (lacking, [], 0, "start is left out: no such thing here"),
        (lacking, ["--only", "start"], 1, "start: no such thing here"),
        (broken, [], 1, "start failed: it ended with 3"),
    ],
)
def test_what_is_missed_or_cannot_be_measured_is_told(
    function: Any, words: list[str], code: int, told: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setattr(speed, "KINDS", {"start": (function, "nothing")})
    assert speed.main([*words, "--folder", str(tmp_path)]) == code
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [], "the scratch is gone"
