"""Which process of a job of many models gets which task, and which is ended: one that is warm is dear."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from trtprobe.job import Job
from trtprobe.operators import Operators, Process


class Idle:
    """Stands in for a process that is ready, and has served some tasks."""

    def __init__(self, served: int) -> None:
        self.served, self.ready, self.dead = served, True, False
        self.task: dict[str, Any] | None = None

    def give(self, task: dict[str, Any]) -> None:
        self.task = task

    def kill(self) -> None:
        self.dead = True

    @property
    def got(self) -> str:
        return self.task["index"] if self.task else "dead" if self.dead else ""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job of two models at once."""
    told = {"product": "tensorrt", "operators": {"suite": "suite.zip", "workers": 2}}
    (tmp_path / "job.json").write_text(json.dumps(told))
    return Job(tmp_path)


def supervisor(job: Job, names: str, processes: list[Idle]) -> Operators:
    """Return the supervisor of processes with tasks that wait (an upper letter: alone; Z: soon)."""
    tasks = [{"index": name, "alone": name.isupper(), "soon": name == "Z"} for name in names]
    (job.folder / "0.cell.json").write_text(json.dumps({"tasks": tasks}))
    operators = Operators(job, cast("Any", None), job.folder, job.folder)
    operators.processes = cast("list[Process]", list(processes))
    operators.take_batches()
    return operators


@pytest.mark.parametrize(
    ("names", "served", "got"),
    [
        ("abA", (5, 3), ["a", "b"]),  # none is ended for what needs a fresh one while there are others
        ("abA", (5, 3, 0), ["a", "", "A"]),  # a fresh one goes first where both are ready
        ("abAZ", (0, 0), ["Z", "A"]),
        ("ab", (0, 4, 3), ["", "a", "b"]),  # a fresh one is kept
        ("a", (0,), ["a"]),
        ("A", (5, 3), ["dead", "dead"]),  # nothing else is left to do
        ("A", (5, 0), ["", "A"]),
        ("abc", (5, 3, 2), ["a", "b", ""]),  # no more than two at once
    ],
)
def test_who_gets_what(job: Job, names: str, served: tuple[int, ...], got: list[str]) -> None:
    processes = [Idle(number) for number in served]
    supervisor(job, names, processes).give()
    assert [process.got for process in processes] == got
