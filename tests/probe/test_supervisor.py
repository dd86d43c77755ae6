"""The supervisor as a process under each Python: a record for every cell, whatever the cell does."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.probe.jobs import GRAPH, MAIN, Job, Step, X, gone
from trtmatrix.judge.record import record_from

STEPS = (
    Step(does="pass", keep=True, params={"precision": "fp32", "level": 0}),
    Step(does="scalars"),
    Step(does="nan-output"),
    Step(does="unknown-output"),
    Step(does="wrong-shape"),
    Step(does="raise"),
    Step(does="sys-exit"),
    Step(does="os-exit"),
    Step(does="os-exit-zero"),
    Step(does="segv"),
    Step(does="late-crash", keep=True),
    Step(does="memory-error"),
    Step(does="big-alloc"),
    Step(does="chatty"),
    Step(does="binary"),
    Step(does="litter", keep=True),
    Step(does="environment"),
    Step(does="read-only"),
    Step(does="leave-orphan"),
    Step(does="hang", seconds=1.5),
    Step(does="missing"),
)

ENDS = {
    "pass": ("ran", ""),
    "scalars": ("ran", ""),
    "nan-output": ("ran", ""),
    "unknown-output": ("probe failed", "run() returned z, which has no reference"),
    "wrong-shape": ("probe failed", "raised ValueError: shape (3, 2), the reference has (2, 3)"),
    "raise": ("crashed", "raised ZeroDivisionError: by the repro"),
    "sys-exit": ("crashed", "raised SystemExit: 3"),
    "os-exit": ("crashed", "exited with code 7"),
    "os-exit-zero": ("crashed", "exited with code 0"),
    "segv": ("crashed", "killed by SIGSEGV"),
    "late-crash": ("crashed", "killed by SIGSEGV after the cell had finished"),
    "memory-error": ("out of host memory", "MemoryError: MemoryError: no room for the array"),
    "big-alloc": ("out of GPU memory", "cuMemAlloc_v2: CUDA error 2 (out of memory)"),
    "chatty": ("ran", ""),
    "binary": ("ran", ""),
    "litter": ("ran", ""),
    "environment": ("ran", ""),
    "read-only": ("crashed", "raised ValueError: assignment destination is read-only"),
    "leave-orphan": ("ran", ""),
    "hang": ("time-out", "not done after 1.5 s"),
    "missing": ("crashed", "raised KeyError: 'do_missing'"),
}


@pytest.fixture(scope="module", params=["worker", "process"])
def isolation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def job(python: Path, driver: Path, isolation: str, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Run every step in one job, as the host would."""
    job = Job(tmp_path_factory.mktemp("job"), STEPS, isolation=isolation)
    environment = {"NVIDIA_TF32_OVERRIDE": "0", "STANDIN_DEVICE_BYTES": str(1 << 30)}
    assert job.run(python, driver, **environment) == 0, job.log()
    return job


def record_of(job: Job, does: str) -> dict[str, Any]:
    return job.record([step.does for step in STEPS].index(does))


def test_every_step_is_expected_to_end_somehow() -> None:
    assert [step.does for step in STEPS] == list(ENDS)


def test_every_cell_leaves_a_record_that_says_how_it_ended(job: Job) -> None:
    records = [job.record(index) for index in range(len(STEPS))]
    found = {record["cell"]["case"]: (record["ended"], record["detail"]) for record in records}
    assert found == ENDS


def test_the_host_can_read_every_record(job: Job) -> None:
    for index in range(len(STEPS)):
        data = job.record(index)
        record = record_from({**data, "digests": {}, "gpu": {}, "kept": {}})
        assert record.run == "20250101t000000-00000000"
        started, finished = (
            datetime.fromisoformat(data[k].replace("Z", "+00:00")) for k in ("started", "finished")
        )
        assert finished >= started
        assert data["oom_kills"] == 0


def test_a_record_tells_what_was_observed_and_measured(job: Job, version: str, isolation: str) -> None:
    record = record_of(job, "pass")
    assert record["observed"]["python"].startswith(version + ".")
    assert record["observed"]["bindings"] == record["observed"]["library"] == "10.7.0"
    assert record["observed"]["libcuda"].endswith("/libcuda.so.1")
    engine = record["engine"]
    assert (engine["gpu"], engine["compute"], engine["driver_cuda"]) == ("Stand-in GPU", "8.9", "12.6")
    assert engine["layers"] == ["level=0"]
    assert engine["run_ms"] == 1.5
    assert {"build_seconds", "engine_bytes", "run_seconds"} <= set(engine)
    assert ("builder_seconds" in engine) is (isolation == "process"), "a warm one was there before the cell"
    assert record["worker"]["builder_seconds"] > 0
    measured = record["measurements"]["outputs"]["y"]
    assert (measured["count"], measured["zeros"], measured["sum_abs"]) == (6, 3, 0)
    assert record["exit"] == 0


def test_nan_and_infinity_are_words(job: Job) -> None:
    scalars = record_of(job, "scalars")["measurements"]["scalars"]
    assert scalars == {
        "nan": "NaN", "infinity": "Infinity", "minus": "-Infinity", "half": 0.5, "whole": 7,
    }  # fmt: skip
    assert record_of(job, "nan-output")["measurements"]["outputs"]["y"]["nan_unexpected"] == 6


def test_what_a_crash_cannot_lose(job: Job) -> None:
    for does, code in (("segv", -signal.SIGSEGV), ("os-exit", 7), ("hang", -signal.SIGKILL)):
        record = record_of(job, does)
        assert record["observed"]["bindings"] == "10.7.0", does
        assert record["exit"] == code
    assert "before the fault" in record_of(job, "segv")["log"]
    assert "do_segv" in record_of(job, "segv")["log"], "faulthandler tells where"
    assert "about to raise" in record_of(job, "raise")["log"]
    assert "ZeroDivisionError: by the repro" in record_of(job, "raise")["log"]


def test_of_a_giant_output_the_tail_is_kept(job: Job) -> None:
    log = record_of(job, "chatty")["log"]
    assert log.endswith("\nthe end\n")
    assert log.startswith("[67043337 bytes before this are dropped]\n")
    assert len(log) < 66_000
    assert record_of(job, "binary")["log"].startswith("[65536 bytes before this are dropped]\n")


def test_outputs_are_kept_where_asked_and_nothing_else_is(job: Job) -> None:
    for does in ("pass", "litter"):
        folder = job.out / str([step.does for step in STEPS].index(does))
        assert [path.name for path in folder.iterdir()] == ["y.npy"]
        assert np.array_equal(np.load(folder / "y.npy"), np.maximum(X, 0))
        assert record_of(job, does)["kept"] == {"y": {"dtype": "float32", "shape": [2, 3]}}
    for index, step in enumerate(STEPS):
        if step.does not in {"pass", "litter"}:
            assert not (job.out / str(index)).exists(), step.does
            assert job.record(index)["kept"] == {}
    assert not [path for path in job.work.iterdir() if path.name != "memo"]
    assert not list(job.out.glob("*.partial"))


def test_a_cell_that_crashed_late_keeps_its_measurements_and_no_output(job: Job) -> None:
    record = record_of(job, "late-crash")
    assert record["measurements"]["outputs"]["y"]["sum_abs"] == 0
    assert record["kept"] == {}


def test_variables_that_change_numbers_are_unset_and_told(job: Job) -> None:
    record = record_of(job, "environment")
    assert record["log"] == "tf32: None home: True\n"
    assert record["unset"] == {"NVIDIA_TF32_OVERRIDE": "0"}
    assert "NVIDIA_TF32_OVERRIDE" not in record["environment"]


def test_nothing_that_a_cell_started_lives_on(job: Job) -> None:
    pids = [int(word) for word in (job.folder / "pids").read_text().split()]
    assert len(pids) == 3
    assert gone([*pids, int((job.folder / "orphan").read_text())], seconds=0.5)


def test_a_chatty_cell_does_not_wait_for_what_it_left_behind(job: Job) -> None:
    record = record_of(job, "leave-orphan")
    started, finished = (
        datetime.fromisoformat(record[k].replace("Z", "+00:00")) for k in ("started", "finished")
    )
    assert (finished - started).total_seconds() < 10


def test_without_a_sign_of_life_all_ends(python: Path, driver: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, [Step(does="hang"), Step(does="pass")])
    process = job.start(python, driver)
    pids = [int(word) for word in job.wait_for("pids").split()]
    hour_ago = time.time() - 3600
    os.utime(job.heartbeat, (hour_ago, hour_ago))
    assert process.wait(timeout=10) == 1
    assert gone(pids, seconds=0.5)
    record = job.record(0)
    assert (record["ended"], record["detail"]) == ("interrupted", "the host gave no sign of life")
    assert not (job.out / "1.started.json").exists()


def test_a_terminated_supervisor_takes_its_cell_along(python: Path, driver: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, [Step(does="hang"), Step(does="pass")])
    process = job.start(python, driver)
    pids = [int(word) for word in job.wait_for("pids").split()]
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 1
    assert gone(pids, seconds=0.5)
    assert not list(job.out.glob("*.record.json"))
    assert "Traceback" not in job.log()


def test_a_killed_supervisor_takes_its_cell_along(driver: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, [Step(does="hang")])
    process = job.start(MAIN, driver)
    cell, *others = (int(word) for word in job.wait_for("pids").split())
    process.kill()
    process.wait()
    try:
        assert gone([cell])
    finally:  # what left the cell's session is the launcher's to end: the container, the host's own group
        for pid in others:
            os.kill(pid, signal.SIGKILL)


def test_a_cell_that_fills_the_output_folder_is_ended(driver: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, [Step(does="many-files", params={"bytes": 200_000})], output_bytes=100_000)
    assert job.run(MAIN, driver) == 0
    record = job.record()
    assert record["ended"] == "crashed"
    assert record["detail"].endswith("the output folder may hold 100000")
    assert not (job.out / "0" / "big").exists()


def test_a_stale_heartbeat_starts_nothing(driver: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, [Step(does="pass")])
    job.heartbeat.unlink()
    assert job.start(MAIN, driver).wait(timeout=20) == 1
    assert not list(job.out.iterdir())


def test_no_gpu_is_a_missing_component(driver: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, [Step(does="pass")])
    assert job.run(MAIN, driver, STANDIN_NO_DEVICE="1") == 0
    record = job.record()
    assert record["ended"] == "component missing"
    assert record["detail"] == "the CUDA driver finds no device: cuInit: CUDA error 100 (no device)"


def test_no_tensorrt_is_a_missing_component(driver: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, [Step(does="pass")])
    assert job.run(MAIN, driver, PYTHONPATH=str(tmp_path)) == 0
    assert job.record()["ended"] == "component missing"
    assert "tensorrt cannot be imported" in job.record()["detail"]


IMPORTS = [
    ("torch", ["torch"], "component missing"),
    ("torch.nowhere", ["torch"], "component missing"),
    ("torch", [], "crashed"),
    ("torchless", ["torch"], "crashed"),
]


@pytest.mark.parametrize(("module", "needs", "ended"), IMPORTS)
def test_what_a_case_needs_may_be_missing(
    driver: Path, module: str, needs: list[str], ended: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, [Step(does="import", params={"module": module}, needs=needs)])
    assert job.run(MAIN, driver) == 0
    assert job.record()["ended"] == ended
    assert "raised ModuleNotFoundError" in job.record()["detail"]


def test_a_run_is_timed_and_seen(driver: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, [Step(does="see")])
    assert job.run(MAIN, driver) == 0
    record = job.record()
    assert record["ended"] == "ran", record["detail"]
    assert record["measurements"]["remark"] == "plain"
    assert record["measurements"]["scalars"]["ms"] >= 0
    assert record["engine"]["fusion"] == "plain"
    assert record["engine"]["kernels"] is None, "no CUPTI over the stand-in"


@pytest.mark.parametrize(
    ("word", "ended"),
    [("fused", "ran"), ("?", "ran"), ("", "crashed"), ("Fused", "crashed"), ("ninechars", "crashed")],
)
def test_a_remark_is_one_short_word(driver: Path, word: str, ended: str, tmp_path: Path) -> None:
    job = Job(tmp_path, [Step(does="remark", params={"word": word})])
    assert job.run(MAIN, driver) == 0
    assert job.record()["ended"] == ended
    assert job.record()["measurements"]["remark"] == (word if ended == "ran" else "")


def test_each_engine_is_seen_by_its_own_layers(driver: Path, tmp_path: Path) -> None:
    graph = {**GRAPH, "layers": [{"type": "SOFTMAX", "output": "fmha_v2"}]}
    job = Job(tmp_path, [Step(does="see-two", graph=graph)])
    assert job.run(MAIN, driver) == 0
    measured = job.record()["measurements"]
    assert (measured["scalars"], measured["remark"]) == ({"first_fused": 1.0}, "plain")
