"""One warm process for many cells: what it shares, what ends it, and who is blamed."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.probe.jobs import GRAPH, MAIN, Job, Step, X
from trtprobe.answer import Answer
from trtprobe.channel import npy, seal
from trtprobe.job import Stopped

LEAVES = {
    "variable": "environment variables", "handler": "signal handlers", "mask": "blocked signals",
    "alarm": "timers", "error state": "NumPy's error state", "warnings": "filters of warnings",
    "path": "sys.path", "output": "where it prints",
    "stdout": "sys.stdin, sys.stdout, sys.stderr, sys.excepthook, sys.displayhook",
    "folder": "the working folder", "umask": "umask", "limit": "limits", "recursion": "recursion limit",
    "collector": "garbage collection", "trace": "trace or profile function", "numpy": "numpy.maximum",
    "backend": "TensorRtBackend.build", "instance": "the backend.build", "encoder": "JSONEncoder.extra",
    "measure": "trtprobe.answer.measure_all", "module": "imported foreign_module", "thread": "threads",
    "child": "child processes",
    "files": "more than 64 open files", "rounding": "rounding of floats", "memory": "2.5 GiB of memory",
}  # fmt: skip


def run(
    folder: Path, driver: Path, *steps: Step, job: dict[str, Any] | None = None, **environment: str
) -> Job:
    made = Job(folder, steps, **(job or {}))
    assert made.run(MAIN, driver, STANDIN_BUILDERS=str(folder / "builders"), **environment) == 0, made.log()
    return made


def workers(job: Job) -> list[tuple[int, int]]:
    words = [job.record(cell)["worker"] for cell in job.cells]
    return [(word["number"], word["position"]) for word in words]


def ends(job: Job) -> list[str]:
    return [ended for ended, _ in job.ends().values()]


def builders(job: Job) -> int:
    return len((job.folder / "builders").read_text().split())


PASS, SEE = Step(does="pass"), Step(does="see-process")


def clean(job: Job, *cells: int) -> list[bool]:
    """Return whether those of ``SEE`` found nothing that others left, and no other process beside them."""
    return [job.record(cell)["log"] == f"sees None warn {cell} siblings 1\n" for cell in cells]


def test_one_builder_serves_many_cells(python: Path, driver: Path, tmp_path: Path) -> None:
    refused = Step(does="pass", graph={**GRAPH, "says": "refused"})
    unsupported = Step(does="pass", graph={**GRAPH, "plugins": ["P"]})
    job = Job(tmp_path, [PASS, refused, PASS, unsupported, PASS])
    assert job.run(python, driver, STANDIN_BUILDERS=str(tmp_path / "builders")) == 0, job.log()
    assert ends(job) == ["ran", "build failed", "ran", "unsupported by this version", "ran"]
    assert builders(job) == 1
    assert workers(job) == [(0, position) for position in range(5)]
    for index in (0, 4):
        record = job.record(index)
        assert {"gpu", "compute", "driver_cuda"} <= set(record["engine"])
        assert not record["worker"]["ended"]
        assert record["worker"]["builder_seconds"] > 0


def test_cells_come_while_others_run(driver: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, [])
    (tmp_path / "job" / "end").unlink()
    process = job.start(MAIN, driver, STANDIN_BUILDERS=str(tmp_path / "builders"))
    job.wait_for("builders")
    assert not list(job.out.iterdir()), "the worker warms up before there is a cell"
    for index in range(5):
        job.add(index, replace(PASS, alone=index > 2))
        job.wait_for(f"out/{index}.record.json")
        time.sleep(0.5)
        assert (process.poll(), builders(job) == 1 or index > 2) == (None, True)
    job.end()
    assert process.wait(timeout=10) == 0
    assert [job.record(index)["worker"]["number"] for index in range(5)] == [0, 0, 0, 1, 2], "none is wasted"


def test_a_cell_alone_has_a_fresh_process_and_no_other_beside_it(driver: Path, tmp_path: Path) -> None:
    alone = replace(SEE, alone=True)
    job = run(tmp_path, driver, SEE, alone, alone, SEE, SEE)
    assert all(clean(job, *range(5)))
    assert workers(job) == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1)]
    assert [job.record(index)["worker"]["alone"] for index in range(5)] == [False, True, True, False, False]
    assert job.record(1)["worker"]["ended"] == "it was for this cell alone"
    assert "builder_seconds" in job.record(1)["engine"]


def test_a_cell_that_leaves_traces_ends_its_worker(driver: Path, tmp_path: Path) -> None:
    from tests.probe.repros.behaviour import LEFT

    assert set(LEFT) == {*LEAVES, "forked", "files closed", "torch", "torch and path"}, "every trace is tried"
    left = [Step(does="leave", params={"what": what}) for what in LEAVES]
    job = run(tmp_path, driver, *[step for one in left for step in (one, SEE)])
    assert set(ends(job)) == {"ran"}, list(zip(LEAVES, ends(job)[::2], strict=True))
    for number, (what, words) in enumerate(LEAVES.items()):
        record, after = job.record(2 * number), job.record(2 * number + 1)
        told = record["worker"]["ended"]
        assert told.startswith("the cell changed or left: "), what
        assert words in told, what
        assert "," not in told.replace(words, ""), "nothing else was changed"
        assert after["worker"]["number"] == record["worker"]["number"] + 1
        assert clean(job, 2 * number + 1) == [True]
        assert after["measurements"]["outputs"]["y"]["max_abs"] == 0


def test_what_has_imported_torch_serves_cells_of_its_repro_alone(driver: Path, tmp_path: Path) -> None:
    torch = Step(does="leave", params={"what": "torch"})
    job = run(tmp_path, driver, SEE, torch, SEE, SEE, replace(SEE, repro="another"), SEE)
    assert ends(job) == ["ran"] * 6
    assert workers(job) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    assert all(clean(job, 2, 3, 4)), "it is put back"
    (tmp_path / "both").mkdir()
    job = run(tmp_path / "both", driver, Step(does="leave", params={"what": "torch and path"}), SEE)
    assert workers(job) == [(0, 0), (1, 0)]
    assert job.record(0)["worker"]["ended"].endswith(", sys.path, imported torch")


def test_what_a_cell_leaves_beside_its_folder_goes_with_it(driver: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, [Step(does="litter"), Step(does="see-folder")])
    (job.work / "began").touch()  # of the launcher's
    assert job.run(MAIN, driver) == 0
    assert ends(job) == ["ran"] * 2
    assert job.record(1)["log"] == "beside it: ['began']\n"
    assert [path.name for path in job.work.iterdir()] == ["began"]


def test_a_cell_may_remove_its_folder_and_the_one_above(driver: Path, tmp_path: Path) -> None:
    removes = [Step(does="remove", params={"folder": folder}) for folder in (".", "..")]
    job = run(tmp_path, driver, *removes, Step(does="see-folder"))
    assert ends(job) == ["ran"] * 3, [job.record(index)["detail"] for index in range(3)]
    assert workers(job) == [(0, 0), (0, 1), (0, 2)]


def test_a_signal_is_no_trouble_with_outputs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise Stopped("signal 15")

    monkeypatch.setattr("trtprobe.answer.measure_all", stop)
    answer = Answer()
    answer.tell({"ended": "ran", "detail": ""}, final=True)
    answer.hand(0, {"y": X})
    with pytest.raises(Stopped):
        answer.measured({"files": str(tmp_path)})


def test_thousands_of_outputs_keep_no_file_open() -> None:
    answer, given = Answer(), {f"y{n}": X for n in range(99)} | {"large": np.ones(1 << 21)}
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name, array in given.items():
        answer.read({"build": 0, "output": name}, seal(npy(array)))
    assert len(list(Path("/proc/self/fd").iterdir())) - before == 1
    assert all(np.array_equal(answer.outputs[0][name], array) for name, array in given.items())


SICK = "the GPU's context reports an error after it: cuCtxSynchronize: CUDA error 700 (illegal address)"
ENDINGS = {
    "segv": ("crashed", "killed by SIGSEGV"), "os-exit-zero": ("crashed", "exited with code 0"),
    "kill-group": ("crashed", "killed by SIGKILL"), "hang": ("time-out", "not done after 1 s"),
    "sys-exit": ("crashed", "raised SystemExit: 3"), "files closed": ("crashed", "exited with code 0"),
    "sticky": ("crashed", SICK),
}  # fmt: skip


def test_what_kills_a_worker_is_one_cell_s_fault(driver: Path, tmp_path: Path) -> None:
    closing = {"files closed": Step(does="leave", params={"what": "files closed"})}
    steps = [step for does in ENDINGS for step in (closing.get(does, Step(does=does, seconds=1)), PASS, PASS)]
    job = run(tmp_path, driver, PASS, *steps)
    for number, (does, words) in enumerate(ENDINGS.items()):
        record = job.record(3 * number + 1)
        assert (record["ended"], record["detail"], record["kept"]) == (*words, {}), does
        assert record["worker"]["ended"]
    assert ends(job)[2::3] == ends(job)[3::3] == ["ran"] * len(ENDINGS)
    served = workers(job)
    assert served[:3] == [(0, 0), (0, 1), (1, 0)]
    assert [position for _, position in served[1:]] == [1, 0, 1] + [2, 0, 1] * (len(ENDINGS) - 1)
    assert builders(job) == 1 + len(ENDINGS)


def test_a_copy_that_a_cell_forked_does_not_answer(driver: Path, tmp_path: Path) -> None:
    job = run(tmp_path, driver, PASS, Step(does="leave", params={"what": "forked"}), SEE)
    assert ends(job) == ["ran"] * 3
    assert workers(job) == [(0, 0), (0, 1), (0, 2)]
    waited, recorded = job.folder / "home" / "waited", job.out / "1.record.json"
    assert waited.stat().st_mtime <= recorded.stat().st_mtime, "the cell's own process has answered"
    assert clean(job, 2) == [True]


def test_a_broken_context_serves_no_other_cell_however_its_own_ended(driver: Path, tmp_path: Path) -> None:
    steps = [Step(does="sticky", params={"fails": True}), PASS]
    job = Job(tmp_path, steps)
    others = tmp_path / "cases" / "0" / "others"
    others.mkdir()
    (others / "refused.onnx").write_text('{"inputs": {}, "outputs": {}, "says": "refused"}')
    assert job.run(MAIN, driver) == 0
    assert ends(job) == ["build failed", "ran"]
    assert job.record(0)["worker"]["ended"] == "the GPU's context reports an error"
    assert workers(job) == [(0, 0), (1, 0)]


def test_a_warm_up_that_hangs_costs_no_cell(driver: Path, tmp_path: Path) -> None:
    job = run(tmp_path, driver, PASS, PASS, job={"warm_seconds": 1}, STANDIN_BUILDER="hangs")
    assert ends(job) == ["ran", "ran"]
    assert workers(job) == [(1, 0), (1, 1)]
    assert "builder_seconds" in job.record(0)["engine"], "the next is not warmed up: its cell takes the blame"
    assert builders(job) == 2


def test_processes_of_one_cell_share_its_plans(driver: Path, tmp_path: Path) -> None:
    trials = Step(does="trials", processes=3, params={"pids": "a"})
    both = Step(does="pass", processes=3)
    job = run(tmp_path, driver, both, trials, both, Step(does="pass", processes=2, alone=True))
    assert ends(job) == ["ran"] * 4
    assert workers(job) == [(0, 0), (3, 0), (6, 0), (9, 0)], "each process is a fresh one"
    assert builders(job) == 2, "one of the first process, one of the cell alone; who loads a plan needs none"
    assert {"build_seconds", "layers", "engine_bytes"} <= set(job.record(0)["engine"])
    assert not list(job.work.glob("*plans*"))
    assert len(set((tmp_path / "a").read_text().split())) == 3


def test_an_engine_is_built_once_for_all_cells(driver: Path, tmp_path: Path) -> None:
    """Twice the same graph, another level, alone, one build more, and after a crash: 3+0+1+3+1+1+1 builds."""
    other = {**GRAPH, "layers": []}
    steps = [
        Step(does="pass", builds=3), Step(does="see", builds=3), Step(does="pass", params={"level": 0}),
        Step(does="pass", builds=3, alone=True), Step(does="pass", builds=4),
        Step(does="build-crash", graph=other), Step(does="pass", graph=other),
    ]  # fmt: skip
    counted = tmp_path / "built"
    job = run(tmp_path, driver, *steps, STANDIN_BUILDS=str(counted))
    assert ends(job) == ["ran"] * 5 + ["crashed", "ran"]
    engines = [engines_of(job.record(index)) for index in (0, 1, 2, 3, 4, 6)]
    shared = [[engine.get("shared_with", "") for engine in those] for those in engines]
    first = "behaviour/pass"
    assert shared == [[""] * 3, [first] * 3, [""], [""] * 3, [first] * 3 + [""], [""]]
    names = [[engine["name"] for engine in those] for those in engines]
    assert names[0] == names[1] == names[3] == names[4][:3]
    assert len({name for those in names for name in those}) == 3 + 1 + 1 + 1, (
        "builds of one cell stay several"
    )
    assert len(counted.read_text().split()) == 3 + 0 + 1 + 3 + 1 + 1 + 1
    served = job.record(1)["builds"][0]["engine"]
    assert "build_seconds" not in served, "it was not spent on this cell"
    assert served["engines"][0]["build_seconds"] == job.record(0)["engine"]["build_seconds"]
    assert {"layers", "engine_bytes", "run_ms", "latency"} <= set(served)
    assert not list(job.out.glob("*plans*"))


def engines_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    builds = record.get("builds") or [record]
    return [engine for build in builds for engine in build["engine"]["engines"]]


def test_plugins_of_one_cell_are_not_there_for_another(driver: Path, tmp_path: Path) -> None:
    graph = {**GRAPH, "plugins": ["P"]}
    with_plugins, without = Step(does="plugins", graph=graph), Step(does="pass", graph=graph)
    job = run(tmp_path, driver, with_plugins, with_plugins, without, PASS)
    assert ends(job) == ["ran", "ran", "unsupported by this version", "ran"]
    assert workers(job) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_each_cell_s_log_is_its_own(driver: Path, tmp_path: Path) -> None:
    speak = [Step(does="speak", params={"word": word}) for word in ("one", "two")]
    job = run(tmp_path, driver, speak[0], Step(does="chatty"), speak[1])
    for index, word in ((0, "one"), (2, "two")):
        lines = job.record(index)["log"].splitlines()
        assert sorted(lines) == [f"from C {word}", f"from Python {word}", f"raw {word}"]
    assert job.record(1)["log"].endswith("\nthe end\n")
    assert workers(job) == [(0, 0), (0, 1), (0, 2)]


def test_much_scratch_ends_a_worker(driver: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    sizes = (1 << 20, 65 << 20)
    fill = [Step(does="scratch", params={"folder": str(scratch), "bytes": size}) for size in sizes]
    job = Job(tmp_path, [*fill, PASS])
    (tmp_path / "job" / "scratch").write_text(f"{scratch}\n")
    assert job.run(MAIN, driver) == 0
    assert workers(job) == [(0, 0), (0, 1), (1, 0)]
    assert job.record(1)["worker"]["ended"] == f"{sizes[1]} bytes of scratch"
    assert not list(scratch.iterdir())


def test_a_worker_that_died_before_it_took_a_cell_is_not_its_fault(driver: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, [])
    (tmp_path / "job" / "end").unlink()
    process = job.start(MAIN, driver, STANDIN_BUILDERS=str(tmp_path / "builders"))
    pid = int(job.wait_for("builders").split()[0])
    job.add(0, PASS)
    job.wait_for("out/0.record.json")
    os.kill(pid, signal.SIGSTOP)
    job.add(1, PASS)
    job.end()
    job.wait_for("out/1.started.json")
    time.sleep(0.3)
    os.kill(pid, signal.SIGKILL)
    assert process.wait(timeout=20) == 0
    assert (job.record(1)["ended"], job.record(1)["worker"]["number"]) == ("ran", 1)
