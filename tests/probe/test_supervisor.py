"""The supervisor as a process: a record for every cell, whatever it does; what its children say."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.probe.jobs import GRAPH, MAIN, PROBE, Job, Step, X, gone
from trtmatrix.judge.record import record_from
from trtprobe.channel import identity, open_channels


def imports(module: str, *needs: str) -> Step:
    return Step(does="import", params={"module": module}, needs=needs)


def remark(word: str) -> Step:
    return Step(does="remark", params={"word": word})


MISSING = "raised ModuleNotFoundError: No module named "
FUSED = {**GRAPH, "layers": [{"type": "SOFTMAX", "output": "fmha_v2"}]}
RAN = (
    "scalars", "nan-output", "chatty", "binary", "litter", "environment", "leave-orphan", "see",
)  # fmt: skip
ENDS = {
    "probe failed": {
        "unknown-output": "run() returned z, which has no reference",
        "wrong-shape": "y: shape (3, 2), the reference has (2, 3)",
    },
    "crashed": {
        "raise": "raised ZeroDivisionError: by the repro",
        "odd-text": "raised ValueError: no UTF-8: \\udcff \x00 \x1b[31m",
        "sys-exit": "raised SystemExit: 3", "os-exit": "exited with code 7", "segv": "killed by SIGSEGV",
        "late-crash": "killed by SIGSEGV after the cell had finished",
        "read-only": "raised ValueError: assignment destination is read-only",
    },
    "out of host memory": {"memory-error": "MemoryError: MemoryError: no room for the array"},
    "out of GPU memory": {"big-alloc": "cuMemAlloc_v2: CUDA error 2 (out of memory)"},
}  # fmt: skip
CELLS: dict[str, tuple[Step, str, str]] = {
    "pass": (Step(does="pass", params={"precision": "fp32", "level": 0}), "ran", ""),
    **{does: (Step(does=does), "ran", "") for does in RAN},
    **{does: (Step(does=does), end, detail) for end, those in ENDS.items() for does, detail in those.items()},
    "hang": (Step(does="hang", seconds=1.5), "time-out", "not done after 1.5 s"),
    "lacks-a-need": (imports("nowhere", "nowhere"), "component missing", MISSING + "'nowhere'"),
    "lacks-a-part": (imports("ctypes.nowhere", "ctypes"), "component missing", MISSING + "'ctypes.nowhere'"),
    "lacks-more": (imports("nowhereelse", "nowhere"), "crashed", MISSING + "'nowhereelse'"),
    "see-two": (Step(does="see-two", graph=FUSED), "ran", ""),
    "remark": (remark("fused"), "ran", ""),
    "long-word": (
        remark("ninechars"), "crashed",
        "raised ValueError: 'ninechars' is no remark: at most 8 small letters, or ?",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def job(python: Path, driver: Path, isolation: str, tmp_path_factory: pytest.TempPathFactory) -> Job:
    job = Job(tmp_path_factory.mktemp("job"), {cell: step for cell, (step, *_) in CELLS.items()}, isolation)
    environment = {"NVIDIA_TF32_OVERRIDE": "0", "STANDIN_DEVICE_BYTES": str(1 << 30)}
    assert job.run(python, driver, **environment) == 0, job.log()
    return job


def seconds_of(record: dict[str, Any]) -> float:
    started, finished = (datetime.fromisoformat(record[key][:-1]) for key in ("started", "finished"))
    return (finished - started).total_seconds()


def test_every_cell_leaves_a_record_that_the_host_can_read(job: Job) -> None:
    assert job.ends() == {cell: (ended, detail) for cell, (_, ended, detail) in CELLS.items()}
    for record in map(job.record, CELLS):
        assert record_from({**record, "digests": {}, "gpu": {}, "kept": {}}).run == "20250101t000000-00000000"
        assert (seconds_of(record) >= 0, record["oom_kills"]) == (True, 0)


def test_a_record_tells_what_was_observed_and_measured(job: Job, version: str, isolation: str) -> None:
    record = job.record("pass")
    assert record["observed"]["python"].startswith(version + ".")
    assert record["observed"]["bindings"] == record["observed"]["library"] == "10.7.0"
    assert record["observed"]["libcuda"].endswith("/libcuda.so.1")
    engine = record["engine"]
    assert (engine["gpu"], engine["compute"], engine["driver_cuda"]) == ("Stand-in GPU", "8.9", "12.6")
    assert (engine["layers"], engine["run_ms"]) == (["level=0"], 1.5)
    assert {"build_seconds", "engine_bytes", "run_seconds"} <= set(engine)
    assert ("builder_seconds" in engine) is (isolation == "process"), "a warm one was there before the cell"
    assert record["worker"]["builder_seconds"] > 0
    measured = record["measurements"]["outputs"]["y"]
    assert (measured["count"], measured["zeros"], measured["sum_abs"]) == (6, 3, 0)
    assert record["exit"] == 0
    assert job.record("scalars")["measurements"]["scalars"] == {
        "nan": "NaN", "infinity": "Infinity", "minus": "-Infinity", "half": 0.5, "whole": 7,
    }  # fmt: skip
    assert job.record("nan-output")["measurements"]["outputs"]["y"]["nan_unexpected"] == 6


def test_what_a_crash_cannot_lose(job: Job) -> None:
    for cell, code in (("segv", -signal.SIGSEGV), ("os-exit", 7), ("hang", -signal.SIGKILL)):
        record = job.record(cell)
        assert (record["observed"]["bindings"], record["exit"]) == ("10.7.0", code)
    logs = {cell: job.record(cell)["log"] for cell in ("segv", "raise", "chatty", "binary")}
    assert "before the fault" in logs["segv"]
    assert "do_segv" in logs["segv"], "faulthandler tells where"
    assert "about to raise" in logs["raise"]
    assert "ZeroDivisionError: by the repro" in logs["raise"]
    assert logs["chatty"].endswith("\nthe end\n")
    assert logs["chatty"].startswith("[67043337 bytes before this are dropped]\n")
    assert len(logs["chatty"]) < 66_000
    assert logs["binary"].startswith("[65536 bytes before this are dropped]\n")
    late = job.record("late-crash")
    assert (late["measurements"]["outputs"]["y"]["sum_abs"], late["kept"]) == (0, {})


def test_outputs_are_kept_and_nothing_else_is(job: Job) -> None:
    for cell in ("pass", "litter"):
        assert [path.name for path in job.kept(cell).iterdir()] == ["y.npy"]
        assert np.array_equal(np.load(job.kept(cell) / "y.npy"), np.maximum(X, 0))
        assert job.record(cell)["kept"] == {"y": {"dtype": "float32", "shape": [2, 3]}}
    for cell, (_, ended, _) in CELLS.items():
        assert ended == "ran" or (job.record(cell)["kept"], job.kept(cell).exists()) == ({}, False)
    assert not list(job.work.iterdir())
    assert not list(job.out.glob("*.partial"))


def test_variables_that_change_numbers_are_unset_and_told(job: Job) -> None:
    record = job.record("environment")
    assert record["log"] == "tf32: None home: True\n"
    assert record["unset"] == {"NVIDIA_TF32_OVERRIDE": "0"}
    assert "NVIDIA_TF32_OVERRIDE" not in record["environment"]


def test_nothing_that_a_cell_started_lives_on_or_is_waited_for(job: Job) -> None:
    pids = [int(word) for name in ("pids", "orphan") for word in (job.folder / name).read_text().split()]
    assert len(pids) == 4
    assert gone(pids, seconds=0.5)
    assert seconds_of(job.record("leave-orphan")) < 10


@pytest.mark.parametrize("terminated", [True, False])
def test_one_that_is_terminated_or_has_no_sign_of_life_takes_its_cell_along(
    terminated: bool, python: Path, driver: Path, tmp_path: Path
) -> None:
    job = Job(tmp_path, [Step(does="hang"), Step(does="pass")])
    process = job.start(python, driver)
    pids = [int(word) for word in job.wait_for("pids").split()]
    if terminated:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
    else:
        os.utime(job.heartbeat, (time.time() - 3600,) * 2)
    assert process.wait(timeout=10) == 1
    assert gone(pids, seconds=0.5)
    assert not (job.out / "1.started.json").exists()
    assert "Traceback" not in job.log()
    if terminated:
        assert not list(job.out.glob("*.record.json"))
    else:
        record = job.record()
        assert (record["ended"], record["detail"]) == ("interrupted", "the host gave no sign of life")


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


CODE = """
import os, sys
sys.path.insert(0, {source!r})
import select
from trtprobe.processes import TAIL_BYTES, Child, Tail
tail, held = Tail(), []
def work():
    for _ in range(512):
        os.write(tail.writing, b"y" * 65536)
    return 5
child = Child(work, tail.writing, [])
tail.hand_over()
while tail.open:
    select.select([tail], [], [])
    tail.take()
    held.append(len(tail.kept))
child.kill()
print(tail.total, max(held) <= TAIL_BYTES, len(tail.close()) < TAIL_BYTES + 99)
"""


def test_the_tail_alone_is_held_in_memory() -> None:
    code = CODE.format(source=str(PROBE.parent))
    done = subprocess.run([MAIN, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(512 * 65536), "True", "True"]


@pytest.mark.parametrize("sent", [b"no message", b"\xff\x00", b"[1, 2]", b"null", b"[" * 9999])
def test_what_a_cell_writes_to_the_connection_is_no_message_and_no_file_stays_open(sent: bytes) -> None:
    ours, theirs = open_channels()
    with Path(__file__).open() as file:
        before = len(list(Path("/proc/self/fd").iterdir()))
        theirs.connection.send(sent)
        socket.send_fds(theirs.connection, [sent], [file.fileno(), file.fileno()])
        assert theirs.send({"spec": 1}, file.fileno())
        ((message, handed),) = ours.take()
        assert message == {"spec": 1}
        assert handed is not None
        assert identity(handed) == identity(file.fileno())
        os.close(handed)
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    theirs.close()
    assert ours.receive() is None
    ours.close()
