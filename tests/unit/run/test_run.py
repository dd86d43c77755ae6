"""What a run asks of the probe, adds to records, runs again and at the same time, and what ends it.

Launchers are stand-ins: they play a probe whose engines come out as a test says, which no real one does, and
two boards that are busy at once. What must happen together waits for each other, with a limit.
"""

import errno
import io
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
from trtmatrix.common.progress import Progress
from trtmatrix.judge.entry import Stored
from trtmatrix.judge.record import Record, record_from
from trtmatrix.launchers.launcher import Ended, Poll, Ready
from trtmatrix.prepare.case_pool import Wanted
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.run import execute, worker
from trtmatrix.run.execute import execute_plan
from trtmatrix.run.tasks import Run
from trtmatrix.suite.model import CPU, Control, Gpu
from trtmatrix.suite.plan import Isolation, Launch


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


# Versions that are compared take turns on one board: A B A B, one engine a visit.
OLD, NEW = "10.7.0", "10.8.0"


class Noting(Playing):
    """Notes which version ran which case, in order; cases named ``bad`` are wrong, all go on at once."""

    def __init__(self, dying: bool = False, absent: str = "") -> None:
        super().__init__(lambda case: WRONG if case.startswith("bad") else RIGHT)
        self.order, self.dying, self.absent = list[tuple[str, str]](), dying, absent

    def make_ready(self, launch: Launch) -> Ready:
        if launch.version.name == self.absent:
            raise MachineryError("no image")
        return super().make_ready(launch)

    def cell(self, index: int, cell: dict[str, Any], out: Path) -> None:
        version, case = cell["cell"]["version"], cell["cell"]["case"]
        self.order.append((version, case))
        super().cell(index, cell, out)
        if self.dying and (version, case) == (NEW, "a"):  # once: the probe ends after its record
            self.dying = False
            raise EOFError

    def visits(self, case: str) -> list[str]:
        return [version for version, name in self.order if name == case]


def run(folder: Path, launcher: Playing, *cases: str, boards: int = 1, **more: Any) -> Run:
    cells = cells_of(*cases, versions=(OLD, NEW))
    return perform(folder, launcher, cells, *boards_of(boards), interleaved=True, rebuilds=3, **more)


@pytest.mark.parametrize("boards", [1, 2])
def test_versions_take_turns_and_build_one_engine_a_visit(tmp_path: Path, boards: int) -> None:
    launcher = Noting()
    run(tmp_path, launcher, "a", "b", boards=boards)
    for case in ("a", "b"):
        seen = launcher.visits(case)
        assert sorted(seen) == sorted([OLD, NEW] * 3)
        assert all(seen[k] != seen[k + 1] for k in range(5)), seen
    assert [len(job) for job in launcher.jobs] == [6, 6], "one warm process a version"
    assert len({launch.gpu.index for launch in launcher.launches}) == 1, "on the same board"
    assert all(cell["builds"] == 1 and cell["own_engines"] for job in launcher.jobs for cell in job)
    assert len(stored(tmp_path)) == 12, "a record a visit"


def test_equal_boards_share_many_models_each_of_which_has_its_turns_on_one(tmp_path: Path) -> None:
    launcher = Noting()
    state = run(tmp_path, launcher, *MANY[:8], boards=3)
    boards = dict[str, set[str]]()
    for record in state.records:
        boards.setdefault(record.cell.case, set()).add(record.gpu["uuid_sha256"])
    assert sorted(boards.values(), key=str) == [{"hash-0"}] * 4 + [{"hash-1"}] * 4, "four are worth a board"
    for case in MANY[:8]:
        seen = launcher.visits(case)[2:]  # it warmed up before
        assert seen in ([OLD, NEW] * 3, [NEW, OLD] * 3)


def test_a_version_that_is_ready_late_has_its_turns_on_every_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(Noting):
        def make_ready(self, launch: Launch) -> Ready:
            time.sleep(0.5 * (launch.version.name == NEW))
            return super().make_ready(launch)

    monkeypatch.setattr(execute, "count_workers", lambda *_: 2)
    state = run(tmp_path, Late(), *MANY[:16], boards=4)
    assert len(state.records) == 16 * 2 * 3


def test_failures_of_one_version_are_not_said_to_run_beside_others(tmp_path: Path) -> None:
    class Regressing(Noting):
        def record(self, cell: dict[str, Any], value: float, out: Path) -> dict[str, Any]:
            return super().record(cell, WRONG if cell["cell"]["version"] == NEW else value, out)

    performed = run(tmp_path, Regressing(), "a", "b")
    assert not any(record.is_disturbed for record in performed.records)
    assert sum("confirms" in record.data for record in performed.records) == 2


def test_a_doubtful_case_is_seen_again_once_and_a_probe_that_dies_costs_no_other_case(tmp_path: Path) -> None:
    launcher = Noting(dying=True)
    run(tmp_path, launcher, "a", "bad")
    assert sorted(launcher.visits("a")) == sorted([OLD, NEW] * 3)
    again = [cell for job in launcher.jobs for cell in job if cell["alone"]]
    assert {(cell["cell"]["version"], cell["cell"]["case"]) for cell in again} == {(OLD, "bad"), (NEW, "bad")}
    assert [cell["builds"] for cell in again] == [3, 3], "once a version, on engines enough to be believed"


def test_a_version_that_cannot_be_started_keeps_nobody_waiting(tmp_path: Path) -> None:
    launcher, told = Noting(absent=OLD), io.StringIO()
    state = run(tmp_path, launcher, "a", progress=Progress(told, full=True))
    assert f"[3/3] sdpa-scale/a@{NEW}" in told.getvalue(), "what is left out is not waited for"
    assert launcher.visits("a") == [NEW] * 3
    assert [item.cell.version.name for item in state.not_ready] == [OLD]


# Many models warm up before, side by side in several processes of each version; so is what fails confirmed.
CASES = [f"m{number}" for number in range(8)]


class Crowded(Noting):
    """So many processes begin together; after that it notes what was under way when a visit began.

    ``confirms``: as many confirmations meet too. The case ``spoils`` ends its process each time; the case
    ``bad-starves`` lacks memory where others run beside it, and the case ``hangs`` never ends.
    """

    def __init__(self, begin: int = 1, confirms: int = 1, spoils: str = "") -> None:
        super().__init__()
        self.barriers = {False: threading.Barrier(begin), True: threading.Barrier(confirms)}
        self.spoils = spoils
        self.now, self.places = list[str](), dict[tuple[str, str], set[Path]]()
        self.visits_of, self.overlaps = list[tuple[str, str]](), list[list[str]]()
        self.polls = dict[Path, Poll]()

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        self.polls[folder / "out"] = poll
        return super().run(ready, folder, poll)

    def cell(self, index: int, cell: dict[str, Any], out: Path) -> None:
        place = cell["cell"]["version"], cell["cell"]["case"]
        self.polls[out]()  # a real one goes on while a cell runs
        if index == 0 or cell["alone"]:
            self.barriers[cell["alone"]].wait(SECONDS)
        with self._lock:
            if self.order.count(place) and not cell["alone"]:  # it is the first visit that warms up
                self.visits_of.append(place)
                self.overlaps.append(list(self.now))
                self.places.setdefault(place, set()).add(out)
            self.now.append(str(place))
        time.sleep(0.003)
        with self._lock:
            self.now.remove(str(place))
        super().cell(index, cell, out)

    def record(self, cell: dict[str, Any], value: float, out: Path) -> dict[str, Any]:
        data, case = super().record(cell, value, out), cell["cell"]["case"]
        if case == self.spoils:
            return {**data, "ended": "crashed", "worker": {"ended": "it died"}}
        tries = [c for job in self.jobs for c in job if c["alone"] and c["cell"] == cell["cell"]]
        if case == "hangs":
            return {**data, "ended": "time-out", "worker": {"position": 0 if tries else 1}}
        return {**data, "ended": "out of GPU memory"} if case == "bad-starves" and len(tries) == 1 else data


@pytest.fixture
def _room(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a host with room for many processes."""
    monkeypatch.setattr(execute, "count_workers", lambda *_: 64)


@pytest.mark.usefixtures("_room")
@pytest.mark.parametrize(("versions", "processes"), [((OLD, NEW), 4), ((OLD,), 2)])
def test_many_models_warm_up_at_the_same_time_and_have_their_turns_after_that(
    versions: tuple[str, ...], processes: int, tmp_path: Path
) -> None:
    launcher, told = Crowded(processes), io.StringIO()
    rebuilds, cells = 6 // len(versions), cells_of(*CASES, versions=versions)
    how: dict[str, Any] = {"interleaved": True, "rebuilds": rebuilds, "progress": Progress(told, full=True)}
    performed = perform(tmp_path, launcher, cells, **how)
    assert len(launcher.jobs) == processes
    assert launcher.overlaps == [[]] * 48, "one at a time"
    for case in CASES:
        seen = [version for version, name in launcher.visits_of if name == case]
        assert seen == list(versions) * rebuilds, "by turns"
    assert all(len(places) == 1 for places in launcher.places.values()), "each is always in one process"
    assert len(performed.records) == len(stored(tmp_path)) == 48, "a visit that warms up leaves no record"
    assert "[48/48]" in told.getvalue()
    assert not any("workers" in record.data for record in performed.records), "their times count"


@pytest.mark.usefixtures("_room")
@pytest.mark.parametrize(("cases", "gpu", "versions"), [(3, H200, (OLD, NEW)), (8, CPU, ORT)])
def test_a_few_models_and_those_on_the_cpu_do_not_warm_up(
    cases: int, gpu: Gpu, versions: tuple[str, ...], tmp_path: Path
) -> None:
    cells = [replace(cell, gpu=gpu) for cell in cells_of(*CASES[:cases], versions=versions)]
    launcher = Noting()
    perform(tmp_path, launcher, cells, interleaved=True, rebuilds=3)
    assert [len(job) for job in launcher.jobs] == [3 * cases] * len(versions)


def test_what_ends_its_process_while_it_warms_up_costs_itself_alone(tmp_path: Path) -> None:
    launcher = Crowded(spoils="m2")
    performed = run(tmp_path, launcher, *CASES[:4], confirm=False)
    first, again, turns = CASES[:4], ["m0", "m1"], ["m0", "m1", "m3"] * 3 + ["m2"] * 3
    for job in launcher.jobs:
        seen = [cell["cell"]["case"] for cell in job]
        assert seen == [*first, *again, *turns], "who was before it warms up once more; its turns come last"
    assert [record.ended for record in performed.records if record.cell.case != "m2"] == ["ran"] * 18


def test_a_probe_that_dies_while_it_warms_up_is_started_again(tmp_path: Path) -> None:
    launcher = Dying(always(RIGHT))
    launcher.died = Ended(code=1)
    performed = run(tmp_path, launcher, "a", "b", "c", "dies", confirm=False)
    ends = sorted((record.cell.case, record.ended) for record in performed.records)
    assert ends == sorted([(case, "ran") for case in "abc"] * 6 + [("dies", "probe failed")] * 6)


@pytest.mark.usefixtures("_room")
def test_a_process_that_cannot_be_started_costs_its_own_models(tmp_path: Path) -> None:
    refused = list[Ready]()

    class Refusing(Noting):
        def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
            if (ready.launch.version.name, ready.launch.cells[0].case.id) == (NEW, "m0"):
                refused.append(ready)
                raise MachineryError("no room")
            return super().run(ready, folder, poll)

    performed = run(tmp_path, Refusing(), *CASES)
    lost = {record.cell.case for record in performed.records if record.ended == "launcher failed"}
    assert lost == set(CASES[:4])
    assert sum(record.ended == "ran" for record in performed.records) == (16 - 4) * 3
    assert len(refused) == 1, "it is not tried again"


@pytest.mark.usefixtures("_room")
@pytest.mark.parametrize(("cases", "failures"), [(["bad"], 2), (["bad", "bad-too", *CASES[:6]], 4)])
def test_failures_are_confirmed_at_the_same_time_by_all_processes_and_say_so(
    cases: list[str], failures: int, tmp_path: Path
) -> None:
    performed = run(tmp_path, Crowded(confirms=failures), *cases)
    confirming = [record for record in performed.records if record.data.get("confirms")]
    assert [record.data["workers"] for record in confirming] == [failures] * failures
    assert not any(record.is_disturbed for record in performed.records if record not in confirming)


def test_a_single_failure_is_confirmed_undisturbed(tmp_path: Path) -> None:
    cells = cells_of("bad", versions=(OLD,))
    performed = perform(tmp_path, Noting(), cells, interleaved=True, rebuilds=3)
    assert [record.is_disturbed for record in performed.records] == [False] * 4


@pytest.mark.parametrize(("case", "ended", "tries"), [("bad-starves", "ran", 4), ("hangs", "time-out", 2)])
def test_what_lacks_memory_beside_others_is_confirmed_by_itself(
    case: str, ended: str, tries: int, tmp_path: Path
) -> None:
    launcher = Crowded()
    performed = run(tmp_path, launcher, case)
    confirming = [record for record in performed.records if record.data.get("confirms")]
    assert [(record.ended, record.is_disturbed) for record in confirming] == [(ended, tries == 2)] * 2
    assert sum(cell["alone"] for job in launcher.jobs for cell in job) == tries
