"""What a run asks of the probe, adds to records, runs again and at the same time, and what ends it.

Launchers are stand-ins: they play a probe whose engines come out as a test says, which no real one does, and
two boards that are busy at once. What must happen together waits for each other, with a limit.
"""

import errno
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import H200, make_case, make_cell, make_loaded, make_repro
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
from prepare.test_cases import Emulating, Preparing

from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.judge.entry import Stored
from trtmatrix.judge.record import Record, record_from
from trtmatrix.launchers.launcher import Ended, Poll, Ready
from trtmatrix.prepare.case_pool import Wanted
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.run import worker
from trtmatrix.run.execute import execute_plan
from trtmatrix.suite.model import CPU, Control, Gpu
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


def test_several_workers_share_a_board(tmp_path: Path) -> None:
    cells = cells_of(*MANY[:16], versions=("10.7.0", "10.8.0"))
    launcher = Meeting(4)
    performed = perform(tmp_path, launcher, cells, *boards_of(1), workers=4)
    assert {launch.gpu.index for launch in launcher.launches} == {0}
    assert sorted(launch.version.name for launch in launcher.launches) == ["10.7.0"] * 4 + ["10.8.0"] * 4
    assert [len(job) for job in launcher.jobs] == [4] * 8
    assert [record.data["workers"] for record in performed.records] == [4] * 32


def test_workers_of_a_board_take_several_parts_of_a_long_launch(tmp_path: Path) -> None:
    launcher = Meeting(2)
    perform(tmp_path, launcher, cells_of(*MANY[:36]), *boards_of(1), workers=2)
    assert [len(job) for job in launcher.jobs] == [6] * 6


@pytest.mark.parametrize(("cells", "boards", "jobs"), [(7, 1, [7]), (4, 4, [1] * 4), (8, 4, [2] * 4)])
def test_a_few_cells_need_no_second_worker(cells: int, boards: int, jobs: list[int], tmp_path: Path) -> None:
    launcher = Meeting(boards)
    perform(tmp_path, launcher, cells_of(*MANY[:cells]), *boards_of(boards), workers=4)
    assert [len(job) for job in launcher.jobs] == jobs
    assert {launch.gpu.index for launch in launcher.launches} == set(range(boards))


class Confirming(Playing):
    """The first cases are wrong, or only where they are not alone; so many confirmations must meet."""

    def __init__(self, meet: int, alone: float) -> None:
        super().__init__(lambda case: WRONG if case in MANY[:4] else RIGHT)
        self.alone, self.left, self.barrier = alone, meet, threading.Barrier(meet)

    def record(self, cell: dict[str, Any], value: float, out: Path) -> dict[str, Any]:
        with self._lock:
            meets = cell["alone"] and self.left > 0
            self.left -= cell["alone"]
        if meets:
            self.barrier.wait(SECONDS)
        data = super().record(cell, self.alone if cell["alone"] else value, out)
        return {**data, "worker": {"position": 0 if cell["alone"] else 1, "alone": cell["alone"]}}


@pytest.mark.parametrize(("alone", "builds"), [(WRONG, [1, 3]), (RIGHT, [1, 3, 8])])
@pytest.mark.parametrize(("boards", "workers"), [(1, 4), (4, 1)])
def test_what_a_part_leaves_in_doubt_is_confirmed_by_all_workers(
    alone: float, builds: list[int], boards: int, workers: int, tmp_path: Path
) -> None:
    launcher, tries = Confirming(4, alone), dict[str, list[int]]()
    cells = cells_of(*MANY[:16])
    performed = perform(tmp_path, launcher, cells, *boards_of(boards), workers=workers, confirm=True)
    for cell in sorted((cell for job in launcher.jobs for cell in job), key=lambda cell: cell["builds"]):
        tries.setdefault(cell["cell"]["case"], []).append(cell["builds"])
    assert [tries[name] for name in MANY[:4]] == [builds] * 4
    ran_on = {(launch.gpu.uuid_hash, cell.case.id) for launch in launcher.launches for cell in launch.cells}
    assert {(r.gpu["uuid_sha256"], r.cell.case) for r in performed.records} == ran_on


def test_no_container_is_started_for_what_others_confirm(tmp_path: Path) -> None:
    launcher, how = Confirming(4, WRONG), Isolation.CONTAINER
    perform(tmp_path, launcher, cells_of(*MANY[:16]), *boards_of(1), workers=4, isolation=how)
    assert {len(job) for job in launcher.jobs} == {1}


def test_a_disk_that_is_full_ends_the_run_while_parts_wait(tmp_path: Path) -> None:
    class Full(Playing):
        def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
            del ready, folder, poll
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(MachineryError, match="No space left"):
        perform(tmp_path, Full(always(RIGHT)), cells_of(*MANY), *boards_of(1), workers=4)


class Counting(Playing):
    """Notes how many cells were under way beside each."""

    def __init__(self) -> None:
        super().__init__(always(RIGHT))
        self.now, self.beside = 0, dict[str, int]()

    def cell(self, index: int, cell: dict[str, Any], out: Path) -> None:
        name = cell["cell"]["case"]
        with self._lock:
            self.now += 1
        for _ in range(10):
            self.beside[name] = max(self.beside.get(name, 0), self.now - 1)
            time.sleep(0.002)
        super().cell(index, cell, out)
        with self._lock:
            self.now -= 1


def test_an_exclusive_case_has_the_gpu_to_itself(tmp_path: Path) -> None:
    cells = cells_of(*MANY[:16], versions=("10.7.0", "10.8.0"))
    repro = replace(cells[0].repro, exclusive=("c0[01]",))
    cells, launcher = [replace(cell, repro=repro) for cell in cells], Counting()
    records = perform(tmp_path, launcher, cells, *boards_of(1), workers=4).records
    assert {name for name, beside in launcher.beside.items() if not beside} >= {"c00", "c01"}
    assert max(launcher.beside.values()) == 3
    assert {r.cell.case for r in records if "workers" not in r.data} == {"c00", "c01"}
    assert len(records) == 32


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


def test_a_repro_that_cannot_be_prepared_ends_the_run(tmp_path: Path) -> None:
    cells = cells_of("a", "b")
    broken = Preparing(reference={"y": object()})
    run = make_run(tmp_path, Playing(always(RIGHT)), [replace(source_of(cells), module=broken)])
    with pytest.raises(UsageError, match="prepare"):
        execute_plan(make_a_plan(cells), run)
    assert not list(tmp_path.glob("jobs/*"))


# What a run asks of the probe, what it adds to records, and what it runs again.
def test_a_failure_is_run_again_alone_in_a_fresh_process_with_three_engines(tmp_path: Path) -> None:
    launcher = Playing(always(WRONG))
    records = perform(tmp_path, launcher, cells_of("a", "b")).records
    assert [[cell["builds"] for cell in job] for job in launcher.jobs] == [[1, 1, 3, 3]]
    assert [[cell["alone"] for cell in job] for job in launcher.jobs] == [[False, False, True, True]]
    assert [record.data.get("confirms") for record in records] == [None, None, "r0", "r0"]
    first, again = {r.run for r in records[:2]}, {r.run for r in records[2:]}
    assert (first, len(again), again - first) == ({"r0"}, 1, again)
    assert len(stored(tmp_path)) == 4


def test_stored_records_count_as_engines_that_were_seen(tmp_path: Path) -> None:
    def run(folder: str, *before: Record) -> list[Record]:
        kept = [Stored(record=record, local=True) for record in before]
        return perform(tmp_path / folder, Playing(always(WRONG)), cells_of("a"), stored=kept).records

    first, again = run("1")
    assert len(run("2", first, again)) == 1
    other_driver = record_from({**again.data, "gpu": {**again.data["gpu"], "driver": "1"}})
    assert len(run("3", other_driver)) == 2, "under another driver it was another thing"


class Giving(Playing):
    """A probe whose engines give an output with a noise, kept as a file."""

    def record(self, cell: dict[str, Any], value: float, out: Path) -> dict[str, Any]:
        import numpy as np

        data = super().record(cell, value, out)
        out.mkdir()
        np.save(out / "y.npy", np.zeros(3, np.float32))
        values = {"count": 3, "nan_unexpected": 0, "rel_l2": value}
        data["measurements"] = {**data["measurements"], "outputs": {"y": values}, "scalars": {}}
        return {**data, "kept": {"y": {"dtype": "float32", "shape": [3]}}}


def emulated(folder: Path, value: float, control: Control | None = None, *, keep: bool = False) -> Record:
    case = make_case(defects=("lost-half",), noise_key="k", limits={}, control=control, keep=keep)
    repro = make_repro(case)
    state = make_run(folder, Giving(always(value)), [make_loaded(repro, Emulating())], confirm=False)
    (record,) = execute_plan(make_a_plan([make_cell(repro)]), state).records
    return record


def test_a_record_holds_the_noise_of_its_case_and_what_fits(tmp_path: Path) -> None:
    record = emulated(tmp_path, 5e-4)
    assert record.noise["key"] == "k"
    assert record.noise["fits"]["y"].startswith("tf32")
    assert record.digests["content"]
    assert emulated(tmp_path / "again", 2e-7).noise["fits"]["y"].startswith("fp32")


@pytest.mark.parametrize(
    ("value", "control", "wanted", "kept"),
    [
        (0.5, None, False, True), (2e-7, None, False, False), (2e-7, None, True, True),
        (2e-7, Control.POSITIVE, False, True),
    ],
)  # fmt: skip
def test_outputs_of_what_fails_and_of_controls_are_kept(
    value: float, control: Control | None, wanted: bool, kept: bool, tmp_path: Path
) -> None:
    record = emulated(tmp_path, value, control, keep=wanted)
    assert ("kept" in record.data) is kept
    assert (tmp_path / "outputs").exists() is kept


class Losing(Playing):
    """What is wrong in a shared process is right alone; there an output that is said to be kept is lost."""

    def record(self, cell: dict[str, Any], value: float, out: Path) -> dict[str, Any]:
        data = super().record(cell, value if cell["alone"] else WRONG, out)
        return data if cell["alone"] else {**data, "kept": {"y": {}}, "worker": {"position": 1}}


def test_a_record_that_cannot_be_used_has_no_say_in_what_is_believed(tmp_path: Path) -> None:
    launcher = Losing(always(RIGHT))
    records = perform(tmp_path, launcher, cells_of("a")).records
    assert [record.ended for record in records] == ["probe failed", "ran"]
    assert [[cell["builds"] for cell in job] for job in launcher.jobs] == [[1, 1]]
