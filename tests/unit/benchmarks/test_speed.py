"""The benchmark of speed: its rows, its page, what it reads of records, its command line."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench.speed import __main__ as speed
from bench.speed import bench as handed
from bench.speed.bench import Bench
from bench.speed.page import render_page
from bench.speed.rows import CannotMeasure, Goal, Row, parse_rows
from bench.speed.whole import measure_whole
from goldenfile import check_golden

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


def test_the_page_shows_goals_figures_machines_and_what_is_missing() -> None:
    rows = [make_row("gpu:8.6.0", note=""), make_row("again", FASTER, SLOW), make_row("pull", goals=())]
    check_golden("speed.md", render_page(rows, speed.NEEDS))


def test_the_kept_page_is_that_of_the_kept_figures() -> None:
    rows = parse_rows(speed.JSON.read_text(encoding="utf-8"))
    assert speed.PAGE.read_text(encoding="utf-8") == render_page(rows, speed.NEEDS)


def engine(*engines: dict[str, Any], **facts: float) -> dict[str, Any]:
    return {"engine": {**facts, "engines": list(engines)}}


def built(name: str, seconds: float, **more: str) -> dict[str, Any]:
    return {"name": name, "build_seconds": seconds, **more}


def test_a_whole_version_is_timed_by_the_records_of_its_run(tmp_path: Path) -> None:
    def write(case: str, version: str, began: str, ended: str, **more: Any) -> None:
        cell = {"repro": "r", "case": case, "version": version, "gpu": "g"}
        facts = {"product": "tensorrt", "started": began, "finished": ended, "cell": cell}
        (tmp_path / f"{case}-{version}.json").write_text(json.dumps({**facts, **more}))

    worker = {"builder_seconds": 6.0, "alone": False}
    served = engine(built("a-0", 2.0, shared_with="r/b"), run_seconds=1.0)
    write("a", "8.6.0", "2026-01-01T00:00:04.000Z", "2026-01-01T00:00:10.000Z", worker=worker, **served)
    first = engine(built("a-0", 2.0), run_seconds=3.0)
    write("b", "8.6.0", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:04.000Z", worker=worker, **first)
    write("b", "8.5.3.1", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:04.000Z", worker=worker, **first)
    write("c", "8.6.0", "2025-01-01T00:00:00.000Z", "2026-01-01T00:00:04.000Z")  # it could not run
    rows: list[Row] = []
    bench = Bench(folder=tmp_path, tell=rows.append, records=tmp_path)
    measure_whole(bench)
    assert [row.name for row in rows] == ["whole:8.5.3.1", "whole:8.6.0"]
    assert rows[1].figures["the run"] == [16.0]
    assert rows[1].figures["the least"] == [10.0]
    assert [goal.value for goal in rows[1].goals] == [1.6, 16.0 / 60]
    assert not rows[1].met
    rows.clear()
    measure_whole(replace(bench, versions=("8.5.3.1",)))
    assert [row.name for row in rows] == ["whole:8.5.3.1"]
    for without in (replace(bench, records=None), replace(bench, versions=("10.8.0",))):
        with pytest.raises(CannotMeasure):
            measure_whole(without)


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
