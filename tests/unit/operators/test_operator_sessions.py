"""A launch of the suite, over a probe that is played: what is handed out, taken and believed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest
from builders import make_cell
from playing import make_a_plan, make_run

from trtmatrix.launchers.launcher import Ended, Poll, Ready
from trtmatrix.operators import perform
from trtmatrix.operators.cases import Case, Suite
from trtmatrix.operators.perform import run_launches
from trtmatrix.records.operators import OperatorRecord, Verdict
from trtmatrix.suite.plan import Launch
from trtprobe import ends
from trtprobe.files import write_json
from trtprobe.operators import BUILDER, HUNG, MEMORY

Answers = Callable[[dict[str, Any]], dict[str, Any]]


class Plays:
    """A launcher whose probe gives each task the answer of a function; ``waits`` seconds before each."""

    def __init__(self, answer: Answers) -> None:
        self.answer, self.starts = answer, list[list[dict[str, Any]]]()
        self.clock, self.waits = 0.0, 0.0

    def make_ready(self, launch: Launch) -> Ready:
        return Ready(launch=launch, digests={"image": "i"}, handle=None)

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        del ready
        tasks: list[dict[str, Any]] = []
        self.starts.append(tasks)
        batch = 0
        while (file := folder / "job" / f"{batch}.cell.json").is_file():
            new = json.loads(file.read_text())["tasks"]
            batch += 1
            for task in new:
                self.clock += self.waits
                poll()
                tasks.append(task)
                process = {"process": len(tasks), "before": 0 if task["alone"] else 1, "seconds": 0.1}
                answer = {**process, "observed": {"library": "10.7.0"}, **self.answer(task)}
                write_json(folder / "out" / f"{task['index']}.record.json", answer)
            poll()
        return Ended(code=0)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[OperatorRecord], Any]]:
    """Return what runs cases (name → operator) on TensorRT; gives the records and the run."""

    def call(launcher: Plays, cases: Mapping[str, str], seconds: float = 30.0) -> Any:
        clock = SimpleNamespace(monotonic=lambda: launcher.clock)
        monkeypatch.setattr(perform, "time", clock)
        with ZipFile(tmp_path / "suite.zip", "w"):
            pass
        made = tuple(
            Case(name=name, base=name, operator=operator, opset=9, rtol=0, atol=0, model=name, inputs={},
                 outputs={}, profile={})
            for name, operator in cases.items()
        )  # fmt: skip
        suite = Suite(file=tmp_path / "suite.zip", onnx="1", digest="", cases=made)
        job, plan = make_run(tmp_path, launcher, []), make_a_plan([make_cell()])
        return list(run_launches(job, plan, suite, made, 2, seconds)), job

    return call


def ends_with(first: Mapping[str, str], alone: Mapping[str, str]) -> Answers:
    """Answer each model by how it ends beside others, and alone; it is refused where nothing is said."""
    return lambda task: {"ended": (alone if task["alone"] else first).get(task["model"], BUILDER)}


def test_single_nodes_come_first_and_of_doubtful_ones_what_hangs_then_what_is_wrong(run: Any) -> None:
    ended = {"a_expanded": ends.CRASHED, "b": ends.RAN, "c": HUNG, "d_expanded": ends.BUILT}
    probe = Plays(lambda task: {"ended": ended[task["model"]], "missing": ["y"]})
    run(probe, {"a_expanded": "", "b": "B", "c": "C", "d_expanded": ""})
    (tasks,) = probe.starts
    assert [task["model"] for task in tasks if not task["alone"]] == ["b", "c", "a_expanded", "d_expanded"]
    order = {task["model"]: task["order"] for task in tasks if task["alone"]}
    assert order["c"] < order["a_expanded"]


@pytest.mark.parametrize(
    ("first", "alone", "verdict", "flaky"),
    [
        (ends.CRASHED, BUILDER, Verdict.BUILDER, Verdict.CRASHED),
        (ends.CRASHED, ends.CRASHED, Verdict.CRASHED, None),
        (ends.CRASHED, MEMORY, Verdict.NOTHING, None),
        (MEMORY, BUILDER, Verdict.BUILDER, None),
    ],
)
def test_hosts_make_none_flaky(
    run: Any, first: str, alone: str, verdict: Verdict, flaky: Verdict | None
) -> None:
    (record,), _ = run(Plays(ends_with({"a": first}, {"a": alone})), {"a": "A"})
    assert (record.rows["a"].verdict, record.rows["a"].before) == (verdict, flaky)


def test_a_probe_may_be_silent_for_as_long_as_a_case_may_take(run: Any) -> None:
    probe = Plays(ends_with({}, {}))
    probe.waits = 700
    (record,), _ = run(probe, {"a": "A"}, seconds=400)
    assert record.rows["a"].verdict is Verdict.BUILDER
    probe.waits = 1500
    (), job = run(probe, {"a": "A"}, seconds=400)
    assert [item.detail for item in job.not_ready] == ["no case has ended for 1160 s"]
