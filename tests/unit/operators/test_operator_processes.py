"""The processes that run models inside of a version, over a backend that does what a model's bytes say."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from trtmatrix.operators.verdicts import ENDED
from trtmatrix.records.operators import Verdict
from trtprobe import ends, operators
from trtprobe.backends.base import Backend, BuildOptions, Engine
from trtprobe.channel import open_channels
from trtprobe.files import write_json
from trtprobe.job import Job, Stopped

Records = dict[int, dict[str, Any]]
RunTasks = Callable[..., Records]


class Plays(Backend):
    """A backend whose models are words: ``killed``, or any other."""

    def _build(self, model: Path, options: BuildOptions) -> Engine:
        del options
        if model.read_text() == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return Runs()

    def observed(self) -> dict[str, Any]:
        return {"library": "1"}


class Runs(Engine):
    """An engine that gives an array, or what the backend's module cannot hand over."""

    def run(self, inputs: Any) -> dict[str, Any]:
        del inputs
        return {"y": np.zeros(2), "objects": np.array([object()])}


@pytest.fixture
def run_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTasks:
    """Return what runs tasks (a model, and what else is said of it) with one worker; gives their records."""
    monkeypatch.setattr(operators, "open_backend", lambda _: Plays())
    monkeypatch.setenv("CUDA_MODULE_LOADING", "LAZY")

    def run(*tasks: dict[str, Any], suite: bool = True, of: type = operators.Operators) -> Records:
        job, ours, theirs = tmp_path / "job", *open_channels()
        job.mkdir()
        told: list[dict[str, Any]] = []
        with ZipFile(tmp_path / "suite.zip", "w") as archive:
            for index, task in enumerate(tasks):
                archive.writestr(f"{index}", task["model"])
                plain: dict[str, Any] = {"inputs": {}, "outputs": ["y"], "profile": None, "seconds": 20}
                more = {"index": index, "alone": False, "order": 1}
                told.append({**plain, **more, **task, "model": f"{index}"})
        if not suite:
            (tmp_path / "suite.zip").unlink()
        write_json(job / "job.json", {
            "product": "none", "output_bytes": 1, "operators": {"suite": "suite.zip", "workers": 1},
        })  # fmt: skip
        write_json(job / "0.cell.json", {"tasks": told})
        for name in ("end", "heartbeat"):
            (job / name).touch()
        monkeypatch.setattr(operators, "Operators", of)
        try:
            operators.run_operators(Job(job), theirs, tmp_path, tmp_path / "out")
        finally:
            records: Records = {}
            for message, file in ours.take():
                name = str(message["file"])
                if file is not None and name.endswith("record.json"):
                    os.lseek(file, 0, os.SEEK_SET)
                    with os.fdopen(file) as stream:
                        records[int(name.partition(".")[0])] = json.load(stream)
                elif file is not None:
                    os.close(file)
            ours.close()
            theirs.close()
        return records

    return run


def test_killed_for_memory_is_no_crash(run_tasks: RunTasks, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([0, 1])
    monkeypatch.setattr(operators, "oom_kills", lambda: next(counts, 1))
    records = run_tasks({"model": "killed"}, {"model": "killed"})
    assert [records[n]["ended"] for n in (0, 1)] == [operators.MEMORY, ends.CRASHED]
    assert "memory" in records[0]["detail"]


class DiesIdle(operators.Operators):
    """Its first process dies once it is ready and before it is given anything."""

    def give(self) -> None:
        first = self.processes[0]
        if first.number == 1 and first.ready and not first.served:
            os.kill(first.child.pid, signal.SIGKILL)
            time.sleep(0.2)
        super().give()


def test_a_task_is_not_given_to_a_process_that_has_died(run_tasks: RunTasks) -> None:
    records = run_tasks({"model": "well"}, of=DiesIdle)
    assert records[0]["ended"] == ends.RAN


def test_a_suite_that_cannot_be_read_is_no_crash_of_its_models(run_tasks: RunTasks) -> None:
    with pytest.raises(Stopped, match=r"suite\.zip"):
        run_tasks({"model": "well"}, suite=False)


@pytest.mark.parametrize("task", [{"inputs": {"x": "absent"}}, {"outputs": ["objects"]}])
def test_what_cannot_be_read_or_given_is_no_verdict(run_tasks: RunTasks, task: dict[str, Any]) -> None:
    record = run_tasks({"model": "well", **task}, {"model": "well"})[0]
    assert ENDED[record["ended"]] is Verdict.NOTHING


def test_a_product_that_kills_all_is_told(run_tasks: RunTasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "open_backend", lambda _: os.kill(os.getpid(), signal.SIGSEGV))
    with pytest.raises(Stopped, match="killed by SIGSEGV"):
        run_tasks({"model": "well"})
