"""The processes that run models inside of a version, and a launch of them: handed out, taken and believed."""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from builders import make_cell
from playing import make_a_plan, make_run

from trtmatrix.launchers.launcher import Ended, Poll, Ready
from trtmatrix.operators import perform
from trtmatrix.operators.cases import Case, Suite
from trtmatrix.operators.perform import run_launches
from trtmatrix.operators.verdicts import ENDED
from trtmatrix.records.operators import OperatorRecord, Row, Verdict
from trtmatrix.suite.model import Product
from trtmatrix.suite.plan import Launch
from trtprobe import ends, operators
from trtprobe.backends.base import Backend, BuildOptions, Engine
from trtprobe.channel import open_channels
from trtprobe.files import write_json
from trtprobe.job import Job, Stopped
from trtprobe.operators import BUILDER, HUNG, MEMORY, mps

Records = dict[int, dict[str, Any]]
RunTasks = Callable[..., Records]


class Plays(Backend):
    """A backend whose models are words: ``killed``, ``slow``, or any other."""

    def _build(self, model: Path, options: BuildOptions) -> Engine:
        del options
        if model.read_text() == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.2 if model.read_text() == "slow" else 0)
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

    def run(
        *tasks: dict[str, Any], suite: bool = True, of: type = operators.Operators, sharing: int = 0
    ) -> Records:
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
            "product": "none", "output_bytes": 1,
            "operators": {"suite": "suite.zip", "workers": 1, "sharing": sharing, "processes": 6},
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
            os.waitid(os.P_PID, first.child.pid, os.WEXITED | os.WNOWAIT)
        super().give()


def test_a_task_is_not_given_to_a_process_that_has_died(run_tasks: RunTasks) -> None:
    records = run_tasks({"model": "well"}, of=DiesIdle)
    assert records[0]["ended"] == ends.RAN


def test_what_needs_a_fresh_process_leaves_room_for_the_rest(
    run_tasks: RunTasks, control: Callable[..., Path]
) -> None:
    alone: set[int] = set()

    class Watched(operators.Operators):
        def give(self) -> None:
            waited = bool(self.tasks)
            super().give()
            if waited:
                alone.add(sum(1 for process in self.processes if process.task and process.task["alone"]))

    control()
    tasks = [{"model": "slow", "alone": n < 8} for n in range(16)]
    records = run_tasks(*tasks, of=Watched, sharing=4)
    assert {records[n]["before"] for n in range(8)} == {0}
    assert max(alone) <= 2


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


CONTROL = """#!/bin/sh
[ "$1" = -d ] && exit {started}
read words
echo "$words" >> {said}
case $words in get_server_list) echo 7;; get_server_status*) echo {status};; esac
"""
"""Stands in for the driver's program, which is on GPU hosts alone."""


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return what puts a control program of MPS on the PATH; gives the file of what it is told."""

    def make(started: int = 0, status: str = "ACTIVE") -> Path:
        program, said = tmp_path / "bin" / "nvidia-cuda-mps-control", tmp_path / "said.txt"
        program.parent.mkdir()
        program.write_text(CONTROL.format(started=started, status=status, said=said))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        monkeypatch.setattr(mps, "SECONDS", 2.0)
        return said

    for name in (mps.PIPES, mps.LOGS):  # the probe sets them: they are to go again
        monkeypatch.setenv(name, "")
    return make


def test_processes_share_the_gpu_where_mps_runs(run_tasks: RunTasks, control: Callable[..., Path]) -> None:
    said = control()
    record = run_tasks({"model": "well"}, sharing=3)[0]
    assert (record["workers"], record["mps"], record["without_mps"]) == (3, True, "")
    told = said.read_text().splitlines()
    assert (told[0], told[-1]) == (f"start_server -uid {os.getuid()}", "quit -t 1")


@pytest.mark.parametrize(
    ("started", "status", "why"),
    [
        (1, "ACTIVE", "non-zero exit status 1"),
        (0, "INITIALIZING", "no server after 2 s"),
        (None, "", "is not in"),
    ],
)
def test_processes_take_turns_where_mps_does_not_run(
    run_tasks: RunTasks, control: Callable[..., Path], started: int | None, status: str, why: str
) -> None:
    if started is not None:
        control(started, status)
    record = run_tasks({"model": "well"}, sharing=3)[0]
    assert (record["workers"], record["mps"], record["ended"]) == (1, False, ends.RAN)
    assert why in record["without_mps"]
    assert os.environ[mps.PIPES] in {"", mps.NONE}, "or each process would wait for the daemon"


def test_a_fault_that_ends_mps_leaves_processes_that_take_turns(
    run_tasks: RunTasks, control: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes under MPS cannot open the GPU: its server is of no use any more."""
    control()

    def open_backend(_: str) -> Plays:
        if os.environ[mps.PIPES] != mps.NONE:
            raise RuntimeError("cuInit: CUDA error 807")
        return Plays()

    monkeypatch.setattr(operators, "open_backend", open_backend)
    record = run_tasks({"model": "well"}, {"model": "well"}, sharing=3)[1]
    assert (record["workers"], record["mps"], record["ended"]) == (1, False, ends.RAN)
    assert "CUDA error 807" in record["without_mps"]


# A launch of the suite, over a probe that is played: what is handed out, taken and believed.
Answers = Callable[[dict[str, Any]], dict[str, Any]]


class Playing:
    """A launcher whose probe gives each task the answer of a function; ``waits`` seconds before each."""

    def __init__(self, answer: Answers) -> None:
        self.answer, self.starts, self.jobs = answer, list[list[dict[str, Any]]](), list[dict[str, Any]]()
        self.clock, self.waits = 0.0, 0.0

    def make_ready(self, launch: Launch) -> Ready:
        return Ready(launch=launch, digests={"image": "i"}, handle=None)

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        del ready
        tasks: list[dict[str, Any]] = []
        self.starts.append(tasks)
        self.jobs.append(json.loads((folder / "job" / "job.json").read_text())["operators"])
        batch = 0
        while (file := folder / "job" / f"{batch}.cell.json").is_file():
            new = json.loads(file.read_text())["tasks"]
            batch += 1
            for task in new:
                self.clock += self.waits
                poll()
                tasks.append(task)
                process = {"process": len(tasks), "before": 0 if task["alone"] else 1, "seconds": 0.1}
                share = {"workers": 2, "mps": False, "without_mps": "no such program"}
                answer = {**process, **share, "observed": {"library": "10.7.0"}, **self.answer(task)}
                write_json(folder / "out" / f"{task['index']}.record.json", answer)
            poll()
        return Ended(code=0)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[OperatorRecord], Any]]:
    """Return what runs cases (name → operator) on TensorRT; gives the records and the run."""

    def call(
        launcher: Playing, cases: Mapping[str, str], seconds: float = 30.0, mps: bool = True,
        stored: Sequence[OperatorRecord] = (), **more: Any,
    ) -> Any:  # fmt: skip
        clock = SimpleNamespace(monotonic=lambda: launcher.clock)
        monkeypatch.setattr(perform, "time", clock)
        with ZipFile(tmp_path / "suite.zip", "w"):
            pass
        made = tuple(
            Case(name=name, operator=operator, opset=9, rtol=0, atol=0, model=name, inputs={},
                 outputs={}, profile={})
            for name, operator in cases.items()
        )  # fmt: skip
        suite = Suite(file=tmp_path / "suite.zip", onnx="1", digest="", cases=made)
        job, plan = make_run(tmp_path, launcher, [], **more), make_a_plan([make_cell()])
        records: list[OperatorRecord] = []
        run_launches(job, plan, suite, made, 2, mps, seconds, stored, [], records.append)
        return records, job

    return call


def ends_with(first: Mapping[str, str], alone: Mapping[str, str]) -> Answers:
    """Answer each model by how it ends beside others, and alone; it is refused where nothing is said."""
    return lambda task: {"ended": (alone if task["alone"] else first).get(task["model"], BUILDER)}


def test_single_nodes_come_first_and_of_doubtful_ones_what_hangs_then_what_is_wrong(run: Any) -> None:
    ended = {"a_expanded": ends.CRASHED, "b": ends.RAN, "c": HUNG, "d_expanded": ends.BUILT, "e": MEMORY}
    probe = Playing(lambda task: {"ended": ended[task["model"]], "missing": ["y"]})
    run(probe, {"a_expanded": "", "b": "B", "c": "C", "d_expanded": "", "e": "E"})
    tasks = probe.starts[0]
    beside = [task["model"] for task in tasks if not task["alone"]]
    assert beside == ["b", "c", "e", "a_expanded", "d_expanded"]
    order = {task["model"]: task["order"] for task in tasks if task["alone"]}
    assert order["c"] < order["e"] < order["a_expanded"]


@pytest.mark.parametrize(
    ("product", "suite", "alone"),
    [
        (Product.TENSORRT, "", [True, False]),
        (Product.TENSORRT, "another", [False, True, False]),
        (Product.ONNXRUNTIME, "", [False, True, False]),
    ],
)
def test_what_a_record_of_another_version_calls_bad_gets_a_fresh_process_at_once(
    run: Any, product: Product, suite: str, alone: list[bool]
) -> None:
    a = Row(name="a", operator="A", opset=9, verdict=Verdict.CRASHED)
    known = OperatorRecord(
        version="8.5.1.7", product=product, gpu="nvidia-l4", onnx="1", suite=suite, rows={"a": a}, facts={}
    )
    probe = Playing(lambda task: {"ended": ends.CRASHED if task["model"] == "a" else BUILDER})
    (record,), _ = run(probe, {"a": "A", "b": "B"}, stored=[known])
    assert sorted(task["alone"] for task in probe.starts[0]) == sorted(alone)
    assert (record.rows["a"].verdict, record.rows["a"].before) == (Verdict.CRASHED, None)


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
    (record,), _ = run(Playing(ends_with({"a": first}, {"a": alone})), {"a": "A"})
    assert (record.rows["a"].verdict, record.rows["a"].before) == (verdict, flaky)


class NoImages:
    """An engine's images, of which nothing is asked here."""

    def expect(self, launches: Any) -> None: ...

    def ended(self, launch: Any) -> None: ...


@pytest.mark.parametrize(
    ("images", "mps", "sharing"), [(NoImages(), True, 2), (NoImages(), False, 0), (None, True, 0)]
)
def test_only_in_an_engine_s_containers_is_the_gpu_shared(
    run: Any, images: NoImages | None, mps: bool, sharing: int
) -> None:
    """Elsewhere the daemon would outlive a probe that is killed."""
    probe = Playing(ends_with({}, {}))
    run(probe, {"a": "A"}, images=images, mps=mps)
    assert [job["sharing"] for job in probe.jobs] == [sharing]


def test_it_is_said_why_processes_take_turns_on_the_gpu(run: Any) -> None:
    (record,), job = run(Playing(ends_with({}, {})), {"a": "A", "b": "B"})
    assert (record.facts["workers"], record.facts["mps"]) == (2, False)
    job.progress.stream.seek(0)
    assert job.progress.stream.read().count("2 processes take turns on the GPU: no such program") == 1


def test_a_probe_may_be_silent_for_as_long_as_a_case_may_take(run: Any) -> None:
    probe = Playing(ends_with({}, {}))
    probe.waits = 700
    (record,), _ = run(probe, {"a": "A"}, seconds=400)
    assert record.rows["a"].verdict is Verdict.BUILDER
    probe.waits = 1500
    (), job = run(probe, {"a": "A"}, seconds=400)
    assert [item.detail for item in job.not_ready] == ["no case has ended for 1160 s"]
