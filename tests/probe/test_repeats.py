"""Several builds in one process, and several processes of one cell, under each Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.probe.jobs import Job, Step, X
from trtmatrix.judge.record import record_from

ONES = np.ones((2, 3))
BY_THE_REPRO = "raised ZeroDivisionError: by the repro"


def builds(number: int, *failing: Any, seconds: float = 30, **more: Any) -> Step:
    params = dict(zip(("fails_in", "how"), failing, strict=False))
    return Step(does="builds", builds=number, params=params, seconds=seconds, **more)


def trials(pids: str, number: int, *failing: Any, **more: Any) -> Step:
    params = dict(zip(("fails_in", "how"), failing, strict=False), pids=pids)
    return Step(does="trials", processes=number, params=params, **more)


CELLS: dict[str, tuple[Step, str, str]] = {
    "builds": (builds(3, defects={"plus": ONES, "minus": -2 * ONES}), "ran", ""),
    "build-raises": (builds(3, 2, "raise"), "crashed", f"build 2 of 3: {BY_THE_REPRO}"),
    "build-faults": (builds(3, 3, "segv"), "crashed", "build 3 of 3: killed by SIGSEGV"),
    "build-hangs": (builds(2, 2, "hang", seconds=0.7), "time-out", "build 2 of 2: not done after 1.4 s"),
    "first-raises": (builds(2, 1, "raise"), "crashed", f"build 1 of 2: {BY_THE_REPRO}"),
    "trials": (trials("a", 3), "ran", ""),
    "process-raises": (trials("b", 3, 2, "raise"), "crashed", f"process 2 of 3: {BY_THE_REPRO}"),
    "process-faults": (trials("c", 2, 1, "segv"), "crashed", "process 1 of 2: killed by SIGSEGV"),
    "process-hangs": (trials("d", 2, 2, "hang", seconds=1), "time-out", "process 2 of 2: not done after 1 s"),
    "once": (Step(does="pass", defects={"plus": ONES}), "ran", ""),
    "no-count": (Step(does="no-count"), "crashed", "raised ValueError: wrong: nan is no count"),
}


@pytest.fixture(scope="module")
def job(python: Path, driver: Path, isolation: str, tmp_path_factory: pytest.TempPathFactory) -> Job:
    job = Job(tmp_path_factory.mktemp("job"), {cell: step for cell, (step, *_) in CELLS.items()}, isolation)
    assert job.run(python, driver) == 0, job.log()
    return job


def pids_of(job: Job, name: str) -> list[int]:
    return [int(word) for word in (job.folder / name).read_text().split()]


def test_a_record_says_which_build_or_process_ended_otherwise(job: Job) -> None:
    assert job.ends() == {cell: (ended, detail) for cell, (_, ended, detail) in CELLS.items()}
    for record in map(job.record, CELLS):
        assert record_from({**record, "digests": {}, "gpu": {}, "kept": {}}).builds
        assert (record["kept"] == {}) is (record["ended"] != "ran")


def test_each_build_is_measured_by_itself_over_one_builder(job: Job, isolation: str) -> None:
    record = job.record("builds")
    measured = [build["measurements"] for build in record["builds"]]
    assert [one["outputs"]["y"]["max_abs"] for one in measured] == [0, 1, 2]
    assert [one["signatures"]["plus"]["y"]["c"] for one in measured] == [0, 1, 2]
    assert [one["signatures"]["minus"]["y"]["c"] for one in measured] == [0, -0.5, -1]
    assert [one["signatures"]["plus"]["y"]["explained"] for one in measured] == [0, 1, 1]
    assert (record["measurements"], record["engine"]) == (measured[0], record["builds"][0]["engine"])
    alike = {"same_backend": 1, "trials": 30}
    assert [one["scalars"] for one in measured] == [{**alike, "first": 1}, alike, alike]
    assert [one["remark"] for one in measured] == ["first", "", ""]
    made = ["builder_seconds" in build["engine"] for build in record["builds"]]
    assert made == [isolation == "process", False, False]
    assert record["kept"] == {name: {"dtype": "float32", "shape": [2, 3]} for name in ("y", "y@1", "y@2")}
    assert np.array_equal(np.load(job.out / "0" / "y@2.npy"), np.maximum(X, 0) + 2)


@pytest.mark.parametrize(("step", "ended"), [("build-raises", 1), ("build-faults", 2), ("build-hangs", 1)])
def test_builds_that_ended_before_are_not_lost(job: Job, step: str, ended: int) -> None:
    record = job.record(step)
    measured = [build["measurements"]["outputs"]["y"]["max_abs"] for build in record["builds"]]
    assert measured == list(range(ended))
    assert record["measurements"] == record["builds"][0]["measurements"]
    assert record["observed"]["libcuda"].endswith("/libcuda.so.1")
    assert not job.kept(step).exists()


def test_each_process_is_a_fresh_one_and_their_counts_are_added_up(job: Job) -> None:
    record = job.record("trials")
    assert (record["processes"], record["exit"], len(set(pids_of(job, "a")))) == (3, 0, 3)
    assert record["measurements"]["scalars"] == {"trials": 30, "wrong": 1 + 2 + 3, "delay": 1}
    assert record["measurements"]["outputs"]["y"]["worst_y"] == 1
    lines = [line for line in record["log"].splitlines() if line.startswith("process")]
    assert lines == [f"process {number} sees []" for number in (1, 2, 3)]


def test_after_a_process_that_did_not_end_well_none_is_started(job: Job) -> None:
    for cell, pids, started in (("process-raises", "b", 2), ("process-faults", "c", 1)):
        assert len(pids_of(job, pids)) == job.record(cell)["processes"] == started
    log = job.record("process-raises")["log"]
    assert "--- process 1\nprocess 1 sees" in log
    assert "--- process 2\nprocess 2 sees" in log
    assert "ZeroDivisionError: by the repro" in log
