"""What a run does at the same time: feeding, storing, pulling, several boards; and how it is cut off.

The launchers are stand-ins: that two boards are busy at once, or that a pull lasts as long as a launch,
cannot be arranged with real ones. What must happen together waits for each other, with a limit.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import H200, make_case, make_cell, make_repro
from playing import LIMIT, RIGHT, WRONG, Playing, PreparingHere, always, boards_of, make_a_plan, make_shop
from test_cases import Preparing, loaded

from trtmatrix.core.errors import MachineryError, UsageError
from trtmatrix.core.expand import Cell
from trtmatrix.core.model import CPU, Case, Exclusion, Gpu
from trtmatrix.core.plan import Isolation, Launch
from trtmatrix.core.record import Record
from trtmatrix.effects import store
from trtmatrix.effects.case_pool import Wanted
from trtmatrix.effects.cases import CaseCache
from trtmatrix.effects.launcher import Ended, Launcher, Poll, Ready
from trtmatrix.effects.repro_files import LoadedRepro
from trtmatrix.performed import Performed
from trtmatrix.run import run_plan
from trtmatrix.worklist import count_runs

SECONDS = 20.0
"""Longest wait for what must happen."""


def cases_of(*names: str) -> list[Case]:
    return [
        make_case(name, limits=LIMIT["limits"], params={"n": number}) for number, name in enumerate(names)
    ]


def cells_of(*names: str, versions: Sequence[str] = ("10.7.0",)) -> list[Cell]:
    repro = make_repro(*cases_of(*names))
    return [make_cell(repro, case, version) for version in versions for case in repro.cases]


def source_of(cells: Sequence[Cell], **result: Any) -> LoadedRepro:
    return replace(loaded(**result), repro=cells[0].repro)


def perform(
    folder: Path, launcher: Launcher, cells: Sequence[Cell], *boards: Any, pull: bool = False, **more: Any
) -> Performed:
    shop = make_shop(folder, launcher, [source_of(cells)], **more)
    return run_plan(make_a_plan(cells, *boards, pull=pull), frozenset(), "r0", shop)


def wait(event: threading.Event) -> None:
    assert event.wait(SECONDS), "what must happen at the same time does not"


def stored(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in (folder / "local").rglob("*.json"))


class Preparing1By1(PreparingHere):
    """Prepares the next case once a test allows it."""

    def __init__(self, cases: CaseCache, allow: Callable[[str], None]) -> None:
        super().__init__(cases)
        self.allow = allow

    def prepare(self, groups: Sequence[Sequence[Wanted]], stop: threading.Event) -> Iterator[Wanted]:
        for wanted in super().prepare(groups, stop):
            yield wanted
            self.allow(wanted.case.id)


def test_a_cell_is_run_and_stored_before_the_next_case_is_prepared(tmp_path: Path) -> None:
    stored_first = threading.Event()

    class Watching(Playing):
        def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
            def watch() -> None:
                poll()
                if stored(tmp_path):
                    stored_first.set()

            return super().run(ready, folder, watch)

    def allow(case: str) -> None:
        if case == "a":
            wait(stored_first)

    launcher = Watching(always(RIGHT))
    preparer = Preparing1By1(CaseCache(tmp_path), allow)
    performed = perform(tmp_path, launcher, cells_of("a", "b"), preparer=preparer)
    assert [[cell["cell"]["case"] for cell in job] for job in launcher.jobs] == [["a", "b"]]
    assert len(performed.records) == 2


def test_the_probe_gets_on_while_a_record_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = threading.Event()
    write = store.write_record

    def slow(root: Path, data: dict[str, Any]) -> Record:
        if data["cell"]["case"] == "a":
            wait(second)
        return write(root, data)

    class Watching(Playing):
        def cell(self, index: int, cell: dict[str, Any], out: Path) -> None:
            super().cell(index, cell, out)
            if index == 1:
                second.set()

    monkeypatch.setattr("trtmatrix.storing.keep_record", slow)
    performed = perform(tmp_path, Watching(always(RIGHT)), cells_of("a", "b"))
    assert [record.cell.case for record in performed.records] == ["a", "b"]


@pytest.mark.parametrize(
    ("isolation", "asked", "jobs", "alone"),
    [
        (Isolation.WORKER, "worker", [["a", "b", "b"]], [[False, False, True]]),
        (Isolation.PROCESS, "process", [["a", "b", "b"]], [[True, True, True]]),
        (Isolation.CONTAINER, "process", [["a"], ["b"], ["b"]], [[True], [True], [True]]),
    ],
)
def test_what_cells_share(
    isolation: Isolation, asked: str, jobs: list[list[str]], alone: list[list[bool]], tmp_path: Path
) -> None:
    launcher = Playing(lambda case: WRONG if case == "b" else RIGHT)
    perform(tmp_path, launcher, cells_of("a", "b"), isolation=isolation)
    assert [[cell["cell"]["case"] for cell in job] for job in launcher.jobs] == jobs
    assert [[cell["alone"] for cell in job] for job in launcher.jobs] == alone
    assert {start["isolation"] for start in launcher.starts} == {asked}
    assert not list(tmp_path.glob("jobs/*"))


def test_the_job_says_which_case_is_dangerous(tmp_path: Path) -> None:
    repro = make_repro(*cases_of("a"), replace(cases_of("b")[0], dangerous=True))
    cells = [make_cell(repro, case) for case in repro.cases]
    launcher = Playing(always(RIGHT))
    perform(tmp_path, launcher, cells)
    assert [cell["dangerous"] for job in launcher.jobs for cell in job] == [False, True]


class Dying(Playing):
    """A probe that dies as a whole in the cells named ``dies``, and before any in the start named."""

    def __init__(self, *, code: int = 1, never: bool = False, out_of_memory: bool = False) -> None:
        super().__init__(always(RIGHT))
        self.code, self.never, self.out_of_memory = code, never, out_of_memory

    def cell(self, index: int, cell: dict[str, Any], out: Path) -> None:
        if cell["cell"]["case"].startswith("dies"):
            (out / f"{index}.started.json").write_text("{}")
            raise EOFError
        super().cell(index, cell, out)

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        if self.never:
            return Ended(code=1, log="no such file")
        try:
            return super().run(ready, folder, poll)
        except EOFError:
            poll()
            return Ended(code=self.code, log="the end", out_of_memory=self.out_of_memory)


@pytest.mark.parametrize(
    ("code", "memory", "cause"),
    [(1, False, "probe failed"), (137, False, "interrupted"), (137, True, "out of host memory")],
)
def test_a_probe_that_dies_is_started_again_for_what_is_left(
    code: int, memory: bool, cause: str, tmp_path: Path
) -> None:
    launcher = Dying(code=code, out_of_memory=memory)
    performed = perform(tmp_path, launcher, cells_of("a", "dies", "b", "dies-too", "c"), confirm=False)
    assert [[cell["cell"]["case"] for cell in job] for job in launcher.jobs] == [
        ["a", "dies"], ["b", "dies-too"], ["c"],
    ]  # fmt: skip
    ends = {record.cell.case: record.ended for record in performed.records}
    assert ends == {"a": "ran", "dies": cause, "b": "ran", "dies-too": cause, "c": "ran"}


def test_a_cell_in_which_the_probe_died_beside_others_is_tried_again_alone(tmp_path: Path) -> None:
    launcher = Dying()
    perform(tmp_path, launcher, cells_of("a", "dies", "b"))
    given = [(cell["cell"]["case"], cell["alone"]) for job in launcher.jobs for cell in job]
    assert given == [("a", False), ("dies", False), ("b", False), ("dies", True)]


def test_what_came_out_before_the_launcher_failed_is_kept(tmp_path: Path) -> None:
    class Failing(Playing):
        def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
            del ready
            self.jobs.append([])
            files = [folder / "job" / f"{index}.cell.json" for index in range(2)]
            while not all(file.exists() for file in files):
                poll()
            for index, file in enumerate(files):
                self.jobs[-1].append(json.loads(file.read_text()))
                self.cell(index, self.jobs[-1][-1], folder / "out")
            raise MachineryError("the engine is gone")

    performed = perform(tmp_path, Failing(always(RIGHT)), cells_of("a", "b"))
    assert [record.ended for record in performed.records] == ["ran", "ran"]


def test_a_probe_that_cannot_be_started_fails_every_cell_and_is_not_tried_again(tmp_path: Path) -> None:
    performed = perform(tmp_path, Dying(never=True), cells_of("a", "b"))
    assert [record.ended for record in performed.records] == ["launcher failed"] * 2
    assert {record.detail for record in performed.records} == {"the probe did not start: no such file"}


def test_a_probe_that_ends_before_it_was_given_anything_is_started_again(
    tmp_path: Path,
) -> None:
    ended = threading.Event()

    class Early(Playing):
        def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
            if not ended.is_set():
                ended.set()
                return Ended(code=1)
            return super().run(ready, folder, poll)

    class Late(PreparingHere):
        def prepare(self, groups: Sequence[Sequence[Wanted]], stop: threading.Event) -> Iterator[Wanted]:
            wait(ended)
            yield from super().prepare(groups, stop)

    performed = perform(
        tmp_path, Early(always(RIGHT)), cells_of("a"), preparer=Late(CaseCache(tmp_path)), confirm=False
    )
    assert [record.ended for record in performed.records] == ["ran"]


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


def test_a_board_that_is_free_takes_the_next_launch(tmp_path: Path) -> None:
    cells = cells_of("a", versions=("10.7.0", "10.8.0", "10.9.0"))
    others = threading.Event()

    class Long(Playing):
        def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
            if ready.launch.version.name == "10.7.0":
                wait(others)
            ended = super().run(ready, folder, poll)
            if len(self.launches) == 2 and ready.launch.version.name != "10.7.0":
                others.set()
            return ended

    launcher = Long(always(RIGHT))
    performed = perform(tmp_path, launcher, cells, *boards_of(2))
    assert len(performed.records) == 3
    boards = {launch.version.name: launch.gpu.index for launch in launcher.launches}
    assert boards["10.8.0"] == boards["10.9.0"] != boards["10.7.0"]


def test_fewer_launches_than_boards_are_split_over_them(tmp_path: Path) -> None:
    launcher = Meeting(3)
    performed = perform(tmp_path, launcher, cells_of(*"abcdef"), *boards_of(3))
    assert sorted(len(job) for job in launcher.jobs) == [2, 2, 2]
    assert len({launch.gpu.index for launch in launcher.launches}) == 3
    assert sorted(record.cell.case for record in performed.records) == list("abcdef")


def test_another_board_of_the_same_name_is_no_equal_one(tmp_path: Path) -> None:
    first, second = boards_of(2)
    launcher = Playing(always(RIGHT))
    perform(tmp_path, launcher, cells_of("a", "b"), first, replace(second, variant="141 GiB, MIG on"))
    assert [launch.gpu.index for launch in launcher.launches] == [0]


def test_two_versions_run_side_by_side_on_the_cpu(tmp_path: Path) -> None:
    repro = make_repro(make_case(**LIMIT))
    versions = ("onnxruntime-1.30.0", "onnxruntime-1.31.1")
    cells = [make_cell(repro, version=version, gpu=CPU) for version in versions]
    assert len(perform(tmp_path, Meeting(2), cells).records) == 2


MANY = [f"c{number:02d}" for number in range(40)]
ORT = ("onnxruntime-1.31.1",)


def test_many_cells_of_one_version_run_in_two_processes_on_the_cpu(tmp_path: Path) -> None:
    cells = [replace(cell, gpu=CPU) for cell in cells_of(*MANY, versions=ORT)]
    launcher = Meeting(2)
    performed = perform(tmp_path, launcher, cells)
    assert len(performed.records) == 40
    assert sorted(len(job) for job in launcher.jobs) == [20, 20]


@pytest.mark.parametrize(("names", "isolation"), [(MANY[:39], "process"), (MANY, "container")])
def test_few_cells_and_fresh_containers_come_one_after_another_on_the_cpu(
    tmp_path: Path, names: list[str], isolation: str
) -> None:
    cells = [replace(cell, gpu=CPU) for cell in cells_of(*names, versions=ORT)]
    launcher = Playing(always(RIGHT))
    perform(tmp_path, launcher, cells, isolation=Isolation(isolation))
    assert len(launcher.jobs) == (1 if isolation == "process" else len(names))
    assert [cell["cell"]["case"] for job in launcher.jobs for cell in job] == names


@pytest.mark.parametrize(("version", "runs"), [("10.7.0", (1, 3)), (ORT[0], (1, 1))])
def test_several_processes_and_engines_are_for_tensorrt(version: str, runs: tuple[int, int]) -> None:
    repro = make_repro(make_case("race", processes=3), make_case("luck", builds=3))
    race, luck = (make_cell(repro, case, version) for case in repro.cases)
    assert count_runs(race, 1) == runs
    assert count_runs(luck, 1) == runs[::-1]
    assert count_runs(luck, 5) == (5, 1)


class Pulling(Playing):
    """A launcher whose pulls and launches tell of themselves, and wait for what a test says."""

    def __init__(self, before: Callable[[str, str], None] = lambda *_: None) -> None:
        super().__init__(always(RIGHT))
        self.before, self.told = before, list[str]()
        self.pulling = threading.Lock()

    def make_ready(self, launch: Launch) -> Ready:
        name = launch.version.name
        if launch.pull:
            assert self.pulling.acquire(blocking=False), "two pulls at once"
            try:
                self.told.append(f"pull {name}")
                self.before("pull", name)
            finally:
                self.pulling.release()
        return super().make_ready(launch)

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        self.told.append(f"run {ready.launch.version.name}")
        self.before("run", ready.launch.version.name)
        return super().run(ready, folder, poll)


def test_the_next_image_is_pulled_while_the_one_before_runs(tmp_path: Path) -> None:
    second_is_pulled, first_runs = threading.Event(), threading.Event()

    def before(what: str, name: str) -> None:
        match what, name:
            case "run", "10.7.0":
                first_runs.set()
                wait(second_is_pulled)
            case "pull", "10.8.0":
                wait(first_runs)
            case "pull", "10.9.0":  # it begins while 10.7.0 still runs
                second_is_pulled.set()

    launcher = Pulling(before)
    cells = cells_of("a", versions=("10.7.0", "10.8.0", "10.9.0"))
    assert len(perform(tmp_path, launcher, cells, pull=True).records) == 3
    assert [told for told in launcher.told if told.startswith("pull")] == [
        "pull 10.7.0", "pull 10.8.0", "pull 10.9.0",
    ]  # fmt: skip


def test_what_is_here_runs_while_the_rest_is_pulled(tmp_path: Path) -> None:
    here = threading.Event()

    def before(what: str, name: str) -> None:
        if (what, name) == ("pull", "10.7.0"):
            wait(here)
        if (what, name) == ("run", "10.8.0"):
            here.set()

    cells = cells_of("a", versions=("10.7.0", "10.8.0"))
    plan = make_a_plan(cells)
    launches = tuple(replace(launch, pull=launch.version.name == "10.7.0") for launch in plan.launches)
    launcher = Pulling(before)
    shop = make_shop(tmp_path, launcher, [source_of(cells)])
    assert len(run_plan(replace(plan, launches=launches), frozenset(), "r0", shop).records) == 2


def test_an_image_that_two_launches_want_is_pulled_once(tmp_path: Path) -> None:
    cells = cells_of("a")
    l4 = replace(H200, slug="l4", name="NVIDIA L4", index=1)
    cells = [*cells, *(replace(cell, gpu=l4) for cell in cells)]
    launcher = Pulling()
    assert len(perform(tmp_path, launcher, cells, H200, l4, pull=True).records) == 2
    assert [told for told in launcher.told if told.startswith("pull")] == ["pull 10.7.0"]


def test_an_image_that_cannot_be_pulled_leaves_its_cells_out_and_no_others(tmp_path: Path) -> None:
    def before(what: str, name: str) -> None:
        if (what, name) == ("pull", "10.7.0"):
            raise MachineryError("nobody answers\n  try it by hand")

    launcher = Pulling(before)
    performed = perform(tmp_path, launcher, cells_of("a", versions=("10.7.0", "10.8.0")), pull=True)
    assert [record.cell.version for record in performed.records] == ["10.8.0"]
    assert [(item.why, item.detail) for item in performed.not_ready] == [
        (Exclusion.NOT_READY, "nobody answers")
    ]


def test_an_image_that_two_launches_want_fails_once_for_both(tmp_path: Path) -> None:
    def before(what: str, name: str) -> None:
        raise MachineryError(f"no {what} of {name}")

    cells = cells_of("a")
    l4 = replace(H200, slug="l4", name="NVIDIA L4", index=1)
    launcher = Pulling(before)
    cells = [*cells, *(replace(cell, gpu=l4) for cell in cells)]
    performed = perform(tmp_path, launcher, cells, H200, l4, pull=True)
    assert launcher.told == ["pull 10.7.0"]
    assert [item.detail for item in performed.not_ready] == ["no pull of 10.7.0"] * 2


def test_trouble_in_telling_of_trouble_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent(Playing):
        def make_ready(self, launch: Launch) -> Ready:
            raise MachineryError(f"no image of {launch.version.name}")

    def broken(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("trtmatrix.effects.progress.PlainProgress.note", broken)
    with pytest.raises((RuntimeError, BrokenPipeError, MachineryError)):
        perform(tmp_path, Absent(always(RIGHT)), cells_of("a"))


def test_a_mistake_in_making_ready_is_not_swallowed(tmp_path: Path) -> None:
    def before(what: str, name: str) -> None:
        del what, name
        raise ZeroDivisionError("a mistake of ours")

    with pytest.raises(ZeroDivisionError, match="a mistake of ours"):
        perform(tmp_path, Pulling(before), cells_of("a"), pull=True)


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


def test_a_run_that_is_stopped_keeps_what_came_out_and_leaves_nothing(tmp_path: Path) -> None:
    cells = cells_of("a", "b")
    stop = threading.Event()
    launcher = Endless(stop.set)
    shop = make_shop(tmp_path, launcher, [source_of(cells)], stop=stop)
    run_plan(make_a_plan(cells), frozenset(), "r0", shop)
    assert launcher.cleaned
    assert stored(tmp_path) == ["a"]
    assert not list(tmp_path.glob("jobs/*"))


def test_an_interruption_ends_all_and_a_second_one_disturbs_nothing(tmp_path: Path) -> None:
    sent = threading.Event()

    def interrupt() -> None:
        if not sent.is_set():
            sent.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    cells, before = cells_of("a", "b"), {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    launcher = Endless(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            perform(tmp_path, launcher, cells)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert launcher.cleaned
    assert stored(tmp_path) == ["a"]
    assert not list(tmp_path.glob("jobs/*"))


def test_a_repro_that_cannot_be_prepared_ends_the_run(tmp_path: Path) -> None:
    cells = cells_of("a", "b")
    broken = Preparing(reference={"y": object()})
    shop = make_shop(tmp_path, Playing(always(RIGHT)), [replace(source_of(cells), load=lambda: broken)])
    with pytest.raises(UsageError, match="prepare"):
        run_plan(make_a_plan(cells), frozenset(), "r0", shop)
    assert not list(tmp_path.glob("jobs/*"))


def test_a_record_that_cannot_be_written_is_the_machinery_s_trouble(tmp_path: Path) -> None:
    (tmp_path / "local").write_text("in the way")
    with pytest.raises(MachineryError, match="a file could not be written"):
        perform(tmp_path, Playing(always(RIGHT)), cells_of("a"))
    assert not list(tmp_path.glob("jobs/*"))


def test_nothing_is_done_where_all_is_served(tmp_path: Path) -> None:
    cells = cells_of("a")
    launcher = Pulling()
    shop = make_shop(tmp_path, launcher, [source_of(cells)])
    performed = run_plan(make_a_plan(cells, pull=True), frozenset(cell.id for cell in cells), "r0", shop)
    assert (performed.records, launcher.told, list(tmp_path.iterdir())) == ([], [], [])
