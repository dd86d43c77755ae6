"""Versions that are compared take turns on a board, A B A B, and what runs side by side before and after.

Launchers are stand-ins, as in test_run.
"""

import io
import threading
import time
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
    always,
    boards_of,
    cells_of,
    perform,
    stored,
)
from run.test_run import MANY, ORT, Dying

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.progress import Progress
from trtmatrix.launchers.launcher import Ended, Poll, Ready
from trtmatrix.run import execute
from trtmatrix.run.tasks import Run
from trtmatrix.suite.model import CPU, Gpu
from trtmatrix.suite.plan import Launch

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
    assert [len(job) for job in launcher.jobs] == [6 // boards] * 2 * boards, "one warm process a version"
    assert len({launch.gpu.index for launch in launcher.launches}) == boards
    assert all(cell["builds"] == 1 and cell["own_engines"] for job in launcher.jobs for cell in job)
    assert len(stored(tmp_path)) == 12, "a record a visit"


def test_engines_that_an_interrupted_run_left_are_not_built_again(tmp_path: Path) -> None:
    cells = cells_of("a", "b", versions=(OLD, NEW))
    built = {cell.id: 2 for cell in cells if cell.case.id == "a"} | {cells[0].id: 1}
    launcher = Noting()
    perform(tmp_path, launcher, cells, interleaved=True, rebuilds=3, built=built)
    assert launcher.visits("a") == [OLD, NEW, OLD]
    assert len(launcher.visits("b")) == 6


@pytest.mark.parametrize(("models", "warms"), [(2, False), (12, True)])
def test_equal_boards_share_models_each_of_which_has_its_turns_on_one(
    models: int, warms: bool, tmp_path: Path
) -> None:
    launcher = Noting()
    state = run(tmp_path, launcher, *MANY[:models], boards=3)
    boards = dict[str, set[str]]()
    for record in state.records:
        boards.setdefault(record.cell.case, set()).add(record.gpu["uuid_sha256"])
    used = min(models, 3)
    share = [{f"hash-{number % used}"} for number in range(models)]
    assert sorted(boards.values(), key=str) == sorted(share, key=str)
    for case in MANY[:models]:
        seen = launcher.visits(case)[2 * warms :]
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
