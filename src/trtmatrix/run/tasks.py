"""Tasks, each a cell with how it is to be run, their queue, and the run that they belong to."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trtmatrix.common.progress import Progress
from trtmatrix.common.text import counted
from trtmatrix.judge.entry import Stored
from trtmatrix.judge.noise import Calibration
from trtmatrix.judge.record import Record
from trtmatrix.launchers.launcher import Launcher
from trtmatrix.prepare.case_pool import Preparer
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import CellId, Exclusion, Gpu, Product
from trtmatrix.suite.plan import Excluded, Isolation, Launch
from trtmatrix.suite.repro_files import LoadedRepro

if TYPE_CHECKING:  # where nothing runs in an image, and no TensorRT, neither is imported
    from trtmatrix.launchers.containers import Images
    from trtmatrix.run.perform import Options

CELLS = "tests"  # what progress calls cells


def utc_now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(timezone.utc)


def new_run_id(now: datetime) -> str:
    """Return an id that sorts by time and that no other run has."""
    return f"{now.strftime('%Y%m%dt%H%M%S')}-{os.urandom(4).hex()}"


WAKE_SECONDS = 0.2  # how late a signal may be heard that another thread got


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A cell with how it is to be run. Each is equal to itself alone.

    ``run``: the id of the run that its record is stored under; ``rebuilds``: the least number of engines;
    ``confirms``: the run whose verdict is doubted, if any; ``alone``: in a fresh process that serves no other
    cell; ``keep``: outputs that are worth it are kept. ``single``: one of several visits, each an engine.
    ``beside``: how many may run side by side where others take turns, 0 for one that has its turn.
    ``warms``: a visit that only warms its process up for those that count, and leaves no record.
    """

    cell: Cell
    run: str
    rebuilds: int = 1
    confirms: str = ""
    alone: bool = False
    keep: bool = True
    single: bool = False
    beside: int = 0
    warms: bool = False

    @property
    def case(self) -> tuple[str, str]:
        """The ids of its repro and case, which is what has to be prepared."""
        return self.cell.repro.id, self.cell.case.id

    @property
    def version(self) -> str:
        """The name of its cell's version."""
        return self.cell.version.name

    @property
    def runs(self) -> tuple[int, int]:
        """How many engines a process builds, and how many processes there are one after another.

        What a case asks for beyond one is for TensorRT, whose builder may choose otherwise each time.
        """
        case = self.cell.case
        if self.single:
            return 1, 1
        if self.cell.version.product is not Product.TENSORRT:
            return self.rebuilds, 1
        if case.processes > 1:
            return 1, max(case.processes, self.rebuilds)
        return max(case.builds, self.rebuilds), 1

    @property
    def seconds(self) -> float:
        """The time limit of all of it."""
        return self.cell.case.seconds * math.prod(self.runs)

    def message(self, loaded: LoadedRepro, files: str) -> dict[str, Any]:
        """Return what the probe reads (``<index>.cell.json``); ``files``: the prepared case's folder."""
        case, (builds, processes) = self.cell.case, self.runs
        return {
            "cell": vars(self.cell.id), "run": self.run, "repro_file": loaded.file.name,
            "params": {**case.params, **case.tolerance}, "seconds": case.seconds,
            "builds": builds, "processes": processes, "needs": sorted(case.needs),
            "files": files, "keep_outputs": self.keep, "alone": self.alone,
            "own_engines": self.single, "dangerous": case.dangerous,
        }  # fmt: skip


def finish(futures: Iterable[Future[Any]]) -> None:
    """Wait for all, and raise what one raises as soon as it does; for the main thread.

    A signal may reach any thread of the process, and wakes no main thread that waits without an end.
    """
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=WAKE_SECONDS, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()


def by_turns(launches: Iterable[Sequence[Task]]) -> list[Task]:
    """Return the tasks of all launches: a visit of a cell comes after an equal number of visits elsewhere."""
    visits, places = Counter[CellId](), dict[Task, tuple[int, str, str, int]]()
    for place, tasks in enumerate(launches):
        for task in tasks:
            places[task] = (visits[task.cell.id], *task.case, place)
            visits[task.cell.id] += 1
    return sorted(places, key=places.__getitem__)


def warm_up(tasks: Sequence[Task], beside: int) -> list[Task]:
    """Return tasks that take turns with what runs side by side before: what comes once, a visit of each."""
    first = {task.cell.id: replace(task, beside=beside, warms=True) for task in tasks if task.single}
    once = [replace(task, beside=beside) for task in tasks if not task.single]
    return [*once, *first.values(), *(task for task in tasks if task.single)]


class TaskQueue:
    """Hands out tasks that can be run now, and takes back how they ended. For many threads.

    A task is in one place: it waits, it runs, or it is in doubt. ``can_run``: whether a task's case is
    prepared. ``confirm``: makes new tasks of those in doubt, once no other is left. ``closed``: whether
    nothing will be added. ``in_turn``: one task at a time is handed out, in their order; so versions take
    turns on one board, A B A B, and what drifts, such as a clock or a temperature, meets all of them alike.
    Those that may run beside others come before, one a worker at a time; a cell is always its own worker's,
    unless it is to be alone.
    """

    def __init__(
        self, tasks: Iterable[Task] = (), can_run: Callable[[Task], bool] = lambda _: True,
        confirm: Callable[[Sequence[tuple[Task, int]]], list[Task]] = lambda _: [],
        *, in_turn: bool = False, closed: bool = True,
    ) -> None:  # fmt: skip
        self._waiting, self._can_run, self._confirm = list(tasks), can_run, confirm
        self.in_turn, self._closed = in_turn, closed
        self._running: list[Task] = []
        self._doubted: list[tuple[Task, int]] = []
        self._lock = threading.Lock()

    def is_done(self, version: str) -> bool:
        """Whether of a version nothing waits, nothing runs that might be doubted, and nothing will come."""
        with self._lock:
            self._confirm_doubted()
            left = (*self._waiting, *self._running, *(task for task, _ in self._doubted))
            return self._closed and not any(task.version == version for task in left)

    def take(self, launch: Launch, most: int | None = None) -> list[Task]:
        """Return a launch's tasks that can be run now; those in doubt come after all others."""
        with self._lock:
            self._confirm_doubted()
            ready = list(filter(self._can_run, self._waiting))
            if self.in_turn and any(task.beside for task in self._waiting):
                ready, most = [task for task in ready if task.beside], 1
            elif self.in_turn:
                ready = [] if self._running else ready[:1]
            version = launch.version.name
            mine = (t for t in ready if self._is_of(t, launch) or (t.alone and t.version == version))
            taken = list(islice(mine, most))
            gone = set(taken)
            self._waiting = [task for task in self._waiting if task not in gone]
            self._running += taken
            return taken

    def _confirm_doubted(self) -> None:
        if self._doubted and not self._waiting and not self._running:
            self._waiting, self._doubted = self._confirm(self._doubted), []

    def ended(self, task: Task, engines: int = 0) -> None:
        """Take back a task; ``engines``: how many must be built alone before its verdict is believed."""
        with self._lock:
            self._running.remove(task)
            if engines:
                self._doubted.append((task, engines))

    def cooled(self, task: Task, again: Sequence[Task]) -> None:
        """Hear that a task before the turns ended its process, and what is to be done ``again`` for that.

        It may end it each time: it comes last when its turns come, lest other visits find a cold process.
        """
        with self._lock:
            self._waiting = sorted(
                (*self._waiting, *again), key=lambda t: 0 if t.beside else 1 + (t.case == task.case)
            )

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Take back tasks that were not run: they come first."""
        with self._lock:
            self._running = [task for task in self._running if task not in tasks]
            self._waiting = [*tasks, *self._waiting]

    def drop(self, launch: Launch, running: Sequence[Task] = ()) -> list[Task]:
        """Return all that is left of a launch, ``running`` or waiting; none of it is handed out any more."""
        with self._lock:
            left = [*running, *(task for task in self._waiting if self._is_of(task, launch))]
            self._running = [task for task in self._running if task not in left]
            self._waiting = [task for task in self._waiting if task not in left]
            self._doubted = [item for item in self._doubted if not self._is_of(item[0], launch)]
            self._closed = True
            return left

    def _is_of(self, task: Task, launch: Launch) -> bool:
        """Whether a task is a launch's own: where there are turns, a version may have several launches."""
        is_its_cell = not self.in_turn or any(cell.id == task.cell.id for cell in launch.cells)
        return task.version == launch.version.name and is_its_cell

    def add(self, task: Task) -> None:
        """Take one more task."""
        with self._lock:
            self._waiting.append(task)

    def close(self) -> None:
        """Forget what waits; nothing will be added."""
        with self._lock:
            self._closed, self._waiting = True, []


@dataclass(kw_only=True)
class Run:
    """One run. ``records`` and ``not_ready`` (cells whose launch could not be made ready) come of it.

    ``launchers``: by runtime. ``stored``: the records that were there before;
    ``before``: of each cell that runs, the newest first, with those since. ``is_here``: whether a launch
    can start without a pull or an installation. ``images`` is told which are wanted. ``sampled``: the cells
    whose PASS is seen again in a fresh process. ``reads_api``: the API of a release that is not known is read
    inside its image. ``prepared``: the cases (repro, case) whose files are there.
    ``stop``: the run is to end; ``leave``: what other hosts run goes on, as nobody asked for its end;
    ``hurry``: whoever ends it is not to wait for other hosts any longer.
    """

    id: str
    options: Options
    launchers: Mapping[str, Launcher]
    repros: Mapping[str, LoadedRepro]
    cases: CaseCache
    preparer: Preparer
    cache: Path
    local: Path
    probe_digest: str
    progress: Progress
    gpu_clocks: Callable[[Gpu], dict[str, Any]]
    calibration: Calibration
    stored: Sequence[Stored] = ()
    before: dict[CellId, list[Record]] = field(default_factory=dict)
    images: Images | None = None
    is_here: Callable[[Launch], bool] = lambda launch: not launch.lacks_image
    clock: Callable[[], datetime] = utc_now
    stop: threading.Event = field(default_factory=threading.Event)
    leave: threading.Event = field(default_factory=threading.Event)
    hurry: threading.Event = field(default_factory=threading.Event)
    sampled: frozenset[CellId] = frozenset()
    reads_api: bool = True
    prepared: set[tuple[str, str]] = field(default_factory=set)
    records: list[Record] = field(default_factory=list)
    not_ready: list[Excluded] = field(default_factory=list)

    def is_prepared(self, task: Task) -> bool:
        """Whether the files of a task's case are there."""
        return task.case in self.prepared

    def launcher_of(self, launch: Launch) -> Launcher:
        """Return what starts a launch."""
        return self.launchers["host" if launch.python else launch.version.runtime]

    def tasks_of(self, launch: Launch) -> list[Task]:
        """Return the first try of each of a launch's cells; interleaved, a visit for each engine it lacks.

        Controls that go along are visited once.
        """
        how, single = self.options, self.options.interleaved
        alone = how.isolation is not Isolation.WORKER
        once = [cell for cell in launch.cells if cell.companion or not single]
        tasks = [Task(cell=cell, run=self.id, rebuilds=how.rebuilds, alone=alone) for cell in once]
        for visit in range(how.rebuilds if single else 0):
            run = new_run_id(self.clock())
            lacks = (c for c in launch.cells if visit == 0 or visit < how.rebuilds - how.built.get(c.id, 0))
            often = (cell for cell in lacks if not cell.companion)
            tasks += [Task(cell=cell, run=run, alone=alone, single=True) for cell in often]
        return tasks

    def tasks_to_confirm(self, doubted: Sequence[tuple[Task, int]], most: int = 0) -> list[Task]:
        """Return the second try of tasks, alone and with so many engines each, as one run of its own.

        Of several visits of a cell it is the last that is tried again. ``most``: so many of a version may
        run side by side where others took turns, since only their verdicts count.
        """
        doubted = list({task.cell.id: (task, engines) for task, engines in doubted}.values())
        versions, run = Counter(task.version for task, _ in doubted), new_run_id(self.clock())
        beside = sum(min(most, count) for count in versions.values())
        self.progress.note(f"{', '.join(versions)}: {counted(len(doubted), 'verdict')} to be confirmed")
        self.progress.more(CELLS, len(doubted))
        return [
            Task(cell=task.cell, run=run, rebuilds=engines, confirms=task.run, alone=True, beside=beside)
            for task, engines in doubted
        ]

    def leave_out(self, launch: Launch, detail: str) -> None:
        """Note that the cells of a launch are not run."""
        self.not_ready += [Excluded(cell=c, why=Exclusion.NOT_READY, detail=detail) for c in launch.cells]


class Executor(Protocol):
    """Runs the launches on other hosts' GPUs, while this host runs its own (:mod:`.execute`)."""

    def run(self, launches: Sequence[Launch], run: Run) -> None:
        """Run all of them, and leave none behind where the run is to stop."""

    def jobs(self, launches: Iterable[Launch]) -> Sequence[PlannedJob]:
        """Return what it would submit for these launches; nothing is submitted."""


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job that an executor would submit: the cells of each task, its time limit, and the command."""

    version: str
    gpu: str
    tasks: tuple[tuple[str, ...], ...]
    minutes: int
    command: str
