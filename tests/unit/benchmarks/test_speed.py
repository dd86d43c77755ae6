"""The benchmark of speed: its rows, its page, what it reads of records, its command line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from bench.speed import __main__ as speed
from bench.speed import bench as handed
from bench.speed import project
from bench.speed.bench import Bench
from bench.speed.gpu import read_bound
from bench.speed.page import render_page
from bench.speed.project import Timed
from bench.speed.rows import CannotMeasure, Goal, Row, parse_rows
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


def engine(**facts: float) -> dict[str, Any]:
    return {"engine": facts}


def test_the_least_is_the_first_builder_and_all_runs() -> None:
    warm = {"builder_seconds": 6.5}
    records = [
        {"worker": warm, **engine(run_seconds=0.75, build_seconds=0.5, run_ms=1000.0)},
        {"worker": warm, "builds": [engine(run_seconds=1.0), engine(run_seconds=2.0)], **engine()},
        {"worker": {"builder_seconds": 7.0}, **engine(run_seconds=8.0, builder_seconds=7.0)},
        {"worker": {"builder_seconds": None}, **engine(build_seconds=9.0)},
        {},
    ]
    bound = read_bound(records)
    assert (bound.builder, bound.inside, bound.strict, bound.builds) == (6.5, 4.75, 1.5, 4)
    assert math.isnan(read_bound([{}]).builder)


class StandInRun(project.Scratch):
    """A project whose command is any."""

    def command(self, name: str, *words: str, results: str) -> list[str]:
        assert (name, results) == ("run", "r")
        return ["/bin/sh", "-c", " ".join(words)]


def run_shell(folder: Path, line: str, **how: Any) -> Timed:
    return StandInRun(folder=folder, matrix=folder, repros=folder).run(line, results="r", **how)


def test_a_run_is_timed_and_its_new_records_read(tmp_path: Path) -> None:
    line = 'mkdir -p {0}; echo \'{{"started": "{1}"}}\' > {0}/{1}.json; echo said >&2; exit 1'
    place = tmp_path / "r" / "local"
    first = run_shell(tmp_path, line.format(place, "b"))
    second = run_shell(tmp_path, line.format(place, "c") + "; sleep 0.1")
    assert [record["started"] for record in (*first.records, *second.records)] == ["b", "c"]
    assert (first.code, first.told, first.cut) == (1, "said\n", False)
    with pytest.raises(RuntimeError, match=r"ended with 3:\ngone"):
        run_shell(tmp_path, "echo gone >&2; exit 3")


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
