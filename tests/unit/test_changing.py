"""What is told of each change: what was measured, by a case of the repro's own or by a changed one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_case, make_cell, make_entry, make_repro
from test_manner import AS_BUG, WRONG, engine, entry_of
from test_published import GPU, entries

from trtmatrix import change_runs, changing
from trtmatrix.change_runs import ChangedRuns, seconds_of
from trtmatrix.changing import measure_changes
from trtmatrix.context import Context, open_context
from trtmatrix.core.bundle.changes import Change
from trtmatrix.core.bundle.facts import ChangeLine
from trtmatrix.core.calibration import Calibration
from trtmatrix.core.entry import Entry
from trtmatrix.core.errors import UsageError
from trtmatrix.core.manner import manner_of
from trtmatrix.core.model import Cause, Outcome, Verdict
from trtmatrix.effects.calibration import read_calibration
from trtmatrix.effects.gpu import GpuScan

ROOT = Path(__file__).resolve().parents[2]
STORED = argparse.Namespace(no_changes=True)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    files = {name: ROOT / name for name in ("matrix.yaml", "repros", "results")}
    args = {"matrix": files["matrix.yaml"], "repros": files["repros"], "results": files["results"]}
    return open_context(argparse.Namespace(**args, cache=tmp_path))


def published(repro: str, case: str, version: str = "8.6.0") -> Entry:
    wanted = f"{repro}/{case}@{version}#{GPU}"
    return next(entry for entry in entries() if str(entry.cell.id) == wanted)


def told(context: Context, entry: Entry, args: argparse.Namespace = STORED) -> dict[str, ChangeLine]:
    lines = measure_changes(context, entry, read_calibration(), args, lambda _: None)
    return {line.change: line for line in lines}


def test_cases_that_the_repro_has_anyway_answer_from_published_records(context: Context) -> None:
    lines = told(context, published("gemm-mha-v2", "control-lost-mask-fp32"))
    assert lines["TF32 off: FP32 throughout (as in this case)"].fails
    assert lines["optimization level 3, the default (as in this case)"].verdict is Verdict.FAIL
    assert lines["optimization level 5"].why_not == "not measured: --no-changes"
    assert lines["optimization level 5"].fails is None
    assert "one more output marked: /Softmax_output_0 (Softmax)" in lines
    assert "batch 3 instead of 2" in lines


def test_another_case_s_record_answers_where_it_is_the_changed_one(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = published("deformable-plugin", "control-exchanged-fp16")
    monkeypatch.setattr(ChangedRuns, "prepare", lambda _: context.project.cache)
    line = told(context, failing)["FP32: the graph typed in float32, TF32 off"]
    assert (line.fails, line.verdict, line.builds) == (True, Verdict.FAIL, 3)
    assert "heights and widths exchanged" in line.reason
    assert line.figure == published("deformable-plugin", "control-exchanged-fp32").figure


def test_without_a_gpu_it_is_said_and_nothing_is_prepared(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trtmatrix.effects.gpu.find_gpus", _no_gpus)
    monkeypatch.setattr(change_runs.Changed, "_prepared", _none)
    lines = told(context, published("gemm-mha-v2", "control-lost-mask-fp32"), argparse.Namespace())
    assert lines["optimization level 5"].why_not.startswith("not measured: no NVIDIA GPU here")


def _no_gpus() -> GpuScan:
    return GpuScan(gpus=())


def _none(_: object, changes: Sequence[Change]) -> tuple[list[Change], dict[str, str]]:
    assert not changes, "they cannot run: nothing is to be prepared"
    return [], {}


def test_what_does_not_fail_has_no_changes(context: Context) -> None:
    right = next(entry for entry in entries() if entry.outcome and entry.outcome.verdict is Verdict.PASS)
    assert told(context, right) == {}


def test_what_cannot_be_prepared_is_one_line_that_says_so(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> Path:
        raise UsageError("prepare() of the case failed:\n  why")

    monkeypatch.setattr(ChangedRuns, "prepare", fail)
    (line,) = told(context, published("gemm-mha-v2", "control-lost-mask-fp32")).values()
    assert line.why_not == "not measured: prepare() of the case failed: why"


RIGHT, OTHER = engine(), engine(z=WRONG)
UNSAID = make_case(limits={}, defects=("lost-scale",), bug_is=frozenset())
LINES: list[tuple[Entry, bool | None, str, str]] = [
    (entry_of(AS_BUG), True, "one √scale lost", ""),
    (entry_of(RIGHT), False, "", ""),
    (entry_of(OTHER), False, "it fails otherwise: z: wrong by 100 noise floors", ""),
    (entry_of(RIGHT, AS_BUG, AS_BUG), True, "2 of 3 builds fail", ""),
    (entry_of(ended="built"), None, "", "BUILT"),
    (entry_of(ended=Cause.TIME_OUT.value, detail="after 9 s"), None, "", "time-out: after 9 s"),
    (entry_of(ended=Cause.BUILD_FAILED.value, detail="x", case=UNSAID), None, "", "build failed: x"),
    (entry_of(ended=Cause.BUILD_FAILED.value, detail="x"), False, "it fails otherwise", ""),
]


@pytest.mark.parametrize(("found", "fails", "reason", "why_not"), LINES)
def test_a_line_says_whether_the_same_failure_is_there(
    found: Entry, fails: bool | None, reason: str, why_not: str
) -> None:
    wanted = manner_of(entry_of(AS_BUG), Calibration())
    assert wanted is not None
    change = Change(id="level-5", words="level 5", level=5)
    answers = changing.Answers(entries={"level-5": found})
    line = changing._line(change, answers, entry_of(AS_BUG), wanted, Calibration())
    assert (line.change, line.fails, line.why_not) == ("level 5", fails, why_not)
    assert reason in line.reason
    assert (line.verdict, line.builds) == (found.outcome and found.outcome.verdict, line.builds)


def test_a_level_that_the_builder_does_not_have_was_not_tried() -> None:
    entry = entry_of(AS_BUG, engine={"level_ignored": 5})
    wanted = manner_of(entry, Calibration())
    assert wanted is not None
    answers = changing.Answers(entries={"level-5": entry})
    line = changing._line(Change(id="level-5", words="l"), answers, entry, wanted, Calibration())
    assert (line.fails, line.why_not) == (None, "this version has no optimization levels")

    own = Change(id="level-3", words="level 3", level=3, as_it_is=True)
    assert changing._line(own, answers, entry, wanted, Calibration()).why_not == line.why_not


def test_a_failure_of_some_engines_is_gone_only_where_luck_would_not_hide_it() -> None:
    now_and_then = entry_of(RIGHT, AS_BUG, RIGHT, RIGHT)
    wanted = manner_of(now_and_then, Calibration())
    assert wanted is not None
    change = Change(id="level-5", words="level 5", level=5)
    for builds, gone in ((1, None), (8, None), (12, False)):
        answers = changing.Answers(entries={"level-5": entry_of(*[RIGHT] * builds)})
        line = changing._line(change, answers, now_and_then, wanted, Calibration())
        assert line.fails is gone
        assert (line.why_not == "") is (gone is False)
    assert changing._luck(entry_of(AS_BUG).outcome, 1) == 0


def test_what_fails_now_and_then_is_built_more_often(context: Context) -> None:
    entry = published("gemm-mha-v2", "control-lost-mask-fp32")
    runs = ChangedRuns(context, entry, Calibration(), STORED)
    assert runs.builds == 3
    flaky = replace(entry, outcome=Outcome(verdict=Verdict.FLAKY, builds=4, failed=1))
    assert ChangedRuns(context, flaky, Calibration(), STORED).builds == 8


def test_no_more_is_run_than_the_time_allows(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = published("gemm-mha-v2", "control-lost-mask-fp32")
    runs = ChangedRuns(context, entry, Calibration(), STORED)
    changed = runs.open([Change(id=f"level-{n}", words="l", level=n) for n in range(4)], None)
    monkeypatch.setattr(change_runs, "BUDGET_SECONDS", 2.5 * 3 * seconds_of(entry.record))
    chosen, late = changed._within_budget(changed._changes)
    assert [change.id for change in chosen] == ["level-0", "level-1"]
    assert list(late) == ["level-2", "level-3"]
    assert "for all" in late["level-3"]
    monkeypatch.setattr(change_runs, "BUDGET_SECONDS", 0.001)
    assert len(changed._within_budget(changed._changes)[0]) == 1, "one is tried in any case"
    assert seconds_of(None) == 0.0 == seconds_of(make_entry(make_cell(make_repro())).record)
