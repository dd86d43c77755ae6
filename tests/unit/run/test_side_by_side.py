"""What a run does at the same time: feeding and storing, several boards; what ends a probe, or the run.

The launchers are stand-ins: that two boards are busy at once cannot be arranged with real ones. What must
happen together waits for each other, with a limit.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import H200
from playing import (
    RIGHT,
    SECONDS,
    WRONG,
    Playing,
    PreparingHere,
    always,
    boards_of,
    cells_of,
    make_a_plan,
    make_run,
    perform,
    source_of,
    stored,
)
from prepare.test_cases import Preparing

from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.launchers.launcher import Ended, Poll, Ready
from trtmatrix.prepare.case_pool import Wanted
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.run import worker
from trtmatrix.run.execute import execute_plan
from trtmatrix.suite.model import CPU, Gpu
from trtmatrix.suite.plan import Isolation


class Waiting(PreparingHere):
    """Prepares the next case once a cell is stored."""

    def prepare(self, groups: Sequence[Sequence[Wanted]], stop: threading.Event) -> Iterator[Wanted]:
        for wanted in super().prepare(groups, stop):
            yield wanted
            until = time.monotonic() + SECONDS
            while not stored(self.cases.root.parent):
                assert time.monotonic() < until, "none is run before all are prepared"
                time.sleep(0.01)


def test_a_cell_is_run_and_stored_before_the_next_case_is_prepared(tmp_path: Path) -> None:
    launcher = Playing(always(RIGHT))
    performed = perform(tmp_path, launcher, cells_of("a", "b"), preparer=Waiting(CaseCache(tmp_path)))
    assert [[cell["cell"]["case"] for cell in job] for job in launcher.jobs] == [["a", "b"]]
    assert len(performed.records) == 2


@pytest.mark.parametrize(
    ("isolation", "asked", "jobs", "alone"),
    [
        (Isolation.WORKER, "worker", [["a", "b", "b"]], [[False, False, True]]),
        (Isolation.PROCESS, "process", [["a", "b", "b"]], [[True, True, True]]),
        (Isolation.CONTAINER, "process", [["a"], ["b"], ["b"]], [[True], [True], [True]]),
    ],
)
def test_what_cells_share(isolation: Isolation, asked: str, jobs: Any, alone: Any, tmp_path: Path) -> None:
    launcher = Playing(lambda case: WRONG if case == "b" else RIGHT)
    a, b = cells_of("a", "b")
    perform(tmp_path, launcher, [a, replace(b, case=replace(b.case, dangerous=True))], isolation=isolation)
    assert [[cell["cell"]["case"] for cell in job] for job in launcher.jobs] == jobs
    assert [[cell["alone"] for cell in job] for job in launcher.jobs] == alone
    assert all(cell["dangerous"] is (cell["cell"]["case"] == "b") for job in launcher.jobs for cell in job)
    assert {start["isolation"] for start in launcher.starts} == {asked}
    assert not list(tmp_path.glob("jobs/*"))


class Dying(Playing):
    """A probe that dies as a whole in the cells named ``dies``."""

    def cell(self, index: int, cell: dict[str, Any], out: Path) -> None:
        if cell["cell"]["case"].startswith("dies"):
            (out / f"{index}.started.json").write_text("{}")
            raise EOFError
        super().cell(index, cell, out)


@pytest.mark.parametrize(
    ("code", "memory", "cause"),
    [(1, False, "probe failed"), (137, False, "interrupted"), (137, True, "out of host memory")],
)
def test_a_probe_that_dies_is_started_again(code: int, memory: bool, cause: str, tmp_path: Path) -> None:
    launcher = Dying(always(RIGHT))
    launcher.died = Ended(code=code, log="the end", out_of_memory=memory)
    performed = perform(tmp_path, launcher, cells_of("a", "dies", "b", "dies-too", "c"), confirm=False)
    assert [[cell["cell"]["case"] for cell in job] for job in launcher.jobs] == [
        ["a", "dies"], ["b", "dies-too"], ["c"],
    ]  # fmt: skip
    ends = {record.cell.case: record.ended for record in performed.records}
    assert ends == {"a": "ran", "dies": cause, "b": "ran", "dies-too": cause, "c": "ran"}


class Unheard(Dying):
    """Its engine does not answer until the cell is long overdue, and then says that it is gone."""

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        if super().run(ready, folder, poll).code:
            time.sleep(0.2)
            raise MachineryError("the engine has gone away")
        return Ended(code=0)


def test_an_engine_that_goes_costs_the_overdue_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "OVERDUE_SECONDS", 0.0)
    cells = cells_of("dies", "b", seconds=0.1)
    performed = perform(tmp_path, Unheard(always(RIGHT)), cells, confirm=False)
    ends = {record.cell.case: (record.ended, record.detail) for record in performed.records}
    assert ends["b"] == ("ran", "")
    assert ends["dies"][0] == "launcher failed"
    assert "the engine has gone away" in ends["dies"][1]


class Meeting(Playing):
    """Launches that must be under way at the same time."""

    def __init__(self, count: int) -> None:
        super().__init__(always(RIGHT))
        self.barrier = threading.Barrier(count)

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        self.barrier.wait(SECONDS)
        return super().run(ready, folder, poll)


def test_equal_boards_run_launches_side_by_side_each_on_its_own(tmp_path: Path) -> None:
    cells = cells_of("a", versions=("10.7.0", "10.8.0"))
    launcher, clocked = Meeting(2), list[int | None]()

    def clocks(gpu: Gpu) -> dict[str, Any]:
        clocked.append(gpu.index)
        return {}

    performed = perform(tmp_path, launcher, cells, *boards_of(2), gpu_clocks=clocks)
    assert sorted(launch.gpu.index or 0 for launch in launcher.launches) == [0, 1]
    assert set(clocked) == {0, 1}
    seen = {record.cell.version: record.gpu["uuid_sha256"] for record in performed.records}
    played = {launch.version.name: launch.gpu.uuid_hash for launch in launcher.launches}
    assert seen == played
    assert {record.cell.gpu for record in performed.records} == {H200.slug}


MANY = [f"c{number:02d}" for number in range(40)]
ORT = ("onnxruntime-1.31.1",)


def test_many_cells_of_one_version_run_in_two_processes_on_the_cpu(tmp_path: Path) -> None:
    cells = [replace(cell, gpu=CPU) for cell in cells_of(*MANY, versions=ORT)]
    launcher = Meeting(2)
    performed = perform(tmp_path, launcher, cells)
    assert len(performed.records) == 40
    assert sorted(len(job) for job in launcher.jobs) == [20, 20]


@pytest.mark.parametrize(("names", "isolation"), [(MANY[:39], "process"), (MANY, "container")])
def test_on_the_cpu_few_cells_come_in_turn(tmp_path: Path, names: list[str], isolation: str) -> None:
    cells = [replace(cell, gpu=CPU) for cell in cells_of(*names, versions=ORT)]
    launcher = Playing(always(RIGHT))
    perform(tmp_path, launcher, cells, isolation=Isolation(isolation))
    assert len(launcher.jobs) == (1 if isolation == "process" else len(names))
    assert [cell["cell"]["case"] for job in launcher.jobs for cell in job] == names


class Endless(Playing):
    """A probe that plays its first cell and then does nothing until it is ended."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__(always(RIGHT))
        self.then, self.cleaned = then, False

    def cell(self, index: int, cell: dict[str, Any], out: Path) -> None:
        if index == 0:
            super().cell(index, cell, out)

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        def watch() -> None:
            poll()
            if stored(folder.parents[1]):
                self.then()

        try:
            return super().run(ready, folder, watch)
        finally:
            self.cleaned = True


def test_an_interruption_ends_all_and_a_second_one_disturbs_nothing(tmp_path: Path) -> None:
    sent = threading.Event()

    def interrupt() -> None:
        if not sent.is_set():
            sent.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    launcher = Endless(interrupt)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    with pytest.raises(KeyboardInterrupt):
        perform(tmp_path, launcher, cells_of("a", "b"))
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert launcher.cleaned
    assert stored(tmp_path) == ["a"]
    assert not list(tmp_path.glob("jobs/*"))


def test_a_repro_that_cannot_be_prepared_ends_the_run(tmp_path: Path) -> None:
    cells = cells_of("a", "b")
    broken = Preparing(reference={"y": object()})
    run = make_run(tmp_path, Playing(always(RIGHT)), [replace(source_of(cells), module=broken)])
    with pytest.raises(UsageError, match="prepare"):
        execute_plan(make_a_plan(cells), frozenset(), run)
    assert not list(tmp_path.glob("jobs/*"))
