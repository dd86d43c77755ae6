"""The benchmarks of verdicts, speed and very many records: intervals, goals, made-up engines, memory."""

import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from bench.outcomes import RIGHT
from bench.rates import interval
from bench.records import make_records
from bench.speed import __main__ as speed
from bench.speed.page import render_page
from bench.speed.rows import Goal, parse_rows
from bench.verdicts import Judged, judge_group, missed_goals
from benchmarks.test_calibration import groups

from trtmatrix.judge.record import Pool, parse_record
from trtmatrix.records.store import read_records
from trtmatrix.suite.model import Verdict

WRONG_SCALE = "controls:graph=wrong-scale precision=tf32"
SEED = 5000
"""Neither the calibration's nor the benchmark's own."""


def make_judged(label: str = RIGHT, size: float = 0.0, verdict: str = "PASS", **fields: Any) -> Judged:
    return Judged(
        **{
            "repro": "sdpa-scale", "precision": "tf32", "key": "sdpa-scale:precision=tf32", "seed": SEED,
            "label": label, "member": "tf32-late", "size": size, "error": max(size, 0.9), "known": False,
            "usable": False, "mute": False, "verdict": verdict, "reason": "as made up", **fields,
        }
    )  # fmt: skip


# Clopper and Pearson's intervals of 95%, as tables of them and R's binom.test give them.
@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [(0, 30, 0.0, 0.1157033), (30, 30, 1 - 0.1157033, 1.0), (1, 10, 0.0025286, 0.4450161), (0, 0, 0.0, 1.0)],
)
def test_intervals_are_those_of_clopper_and_pearson(hits: int, count: int, low: float, high: float) -> None:
    assert interval(hits, count) == pytest.approx((low, high), abs=1e-6)


def test_each_goal_that_is_missed_is_named() -> None:
    good = [
        make_judged(), make_judged(verdict="INVALID"), make_judged("zeroed tile", 9.9),
        make_judged("zeroed tile", 10, "FAIL"), make_judged("zeroed tile", 500, "INVALID", mute=True),
        make_judged("lost-scale", 0.4, known=True, usable=True), make_judged("lost-scale", 0.6, known=True),
    ]  # fmt: skip
    assert missed_goals(good) == []
    told = ": sdpa-scale:precision=tf32 seed 5000"
    fails, missed = "a right engine fails", "a defect of 10 floors is not found"
    for bad, words in (
        (make_judged(verdict="FAIL"), f"{fails}{told} right by tf32-late: 0 floors, FAIL as made"),
        (make_judged(verdict="FAIL", mute=True), fails),
        (make_judged("zeroed tile", 10), f"{missed}{told} zeroed tile by"),
        (make_judged("zeroed tile", 10, "INVALID"), missed),
        (make_judged("lost-scale", 0.5, known=True, usable=True),
         f"a known defect of half a floor is not found{told} lost-scale by tf32-late: 0.5 floors, PASS"),
    ):  # fmt: skip
        (only,) = missed_goals([*good, bad])
        assert only.startswith(words)


def test_a_small_blind_run_misses_no_goal() -> None:
    judged = judge_group(groups()[WRONG_SCALE], [SEED], 4)
    assert len(judged) == 8
    right = [one for one in judged if one.label == RIGHT]
    assert [(one.size, one.verdict) for one in right] == [(0.0, Verdict.PASS.value)] * 4
    assert len({one.member for one in right}) > 1
    wrong = [one for one in judged if one.label != RIGHT]
    assert all(one.size > 0 for one in wrong)
    assert Verdict.FAIL.value in {one.verdict for one in wrong}
    assert any(one.known and one.usable for one in wrong)
    assert not any(one.mute for one in judged)
    assert missed_goals(judged) == []


def test_a_goal_holds_at_its_limit_and_never_for_what_is_no_number() -> None:
    """As the least, and as the most."""
    for value, met in {4.0: [1, 1], 3.99: [0, 1], 4.01: [1, 0], math.nan: [0, 0]}.items():
        assert [Goal(what="x", value=value, limit=4.0, at_least=least).met for least in (True, False)] == met


def test_the_kept_page_is_that_of_the_kept_figures() -> None:
    rows = parse_rows(speed.JSON.read_text(encoding="utf-8"))
    assert speed.PAGE.read_text(encoding="utf-8") == render_page(rows, speed.NEEDS)


PUBLISHED = sorted((Path(__file__).parents[3] / "results").glob("nvidia-*/*/*/*/*.json"))


def test_a_published_record_says_the_same_from_a_pool_and_by_itself() -> None:
    assert len(PUBLISHED) > 500
    pool = Pool(lambda file: json.loads(Path(file).read_text(encoding="utf-8")))
    for path in PUBLISHED[::7]:
        content = path.read_bytes()
        small, whole = parse_record(content, str(path), pool), parse_record(content, str(path))
        # NaN, which an engine may give, equals nothing.
        assert repr((small, small.builds, small.engines)) == repr((whole, whole.builds, whole.engines))
        assert small.data == whole.data == json.loads(content)


def test_a_stored_record_takes_little_memory(tmp_path: Path) -> None:
    """It is unpacked only where it counts."""
    make_records(tmp_path, 60)
    read_records(tmp_path)  # what is made once
    tracemalloc.start()
    try:
        stored = read_records(tmp_path)
        held = tracemalloc.get_traced_memory()[0] / len(stored)
    finally:
        tracemalloc.stop()
    size = sum(Path(item.record.file).stat().st_size for item in stored) / len(stored)
    assert size > 4000
    assert held < 3000, "with its data a record takes ten times as much"
