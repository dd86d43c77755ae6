"""Executes a plan: cases are prepared, launches made ready and run, records stored; all side by side.

Everything is handed to it. Tasks are fed to a worker as soon as their own case is prepared, and a launch
runs while the next ones are made ready.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field, replace
from functools import partial

from trtmatrix.common.errors import HungUp, MachineryError, ending, explain_trouble
from trtmatrix.judge.compare import sample_cells
from trtmatrix.launchers.launcher import Ready
from trtmatrix.plan import order
from trtmatrix.prepare.case_pool import Wanted, free_memory
from trtmatrix.run.tasks import CELLS, WAKE_SECONDS, Executor, Run, Task, TaskQueue, by_turns, finish, warm_up
from trtmatrix.run.worker import Recorder, Stopped, Worker
from trtmatrix.suite.model import Gpu
from trtmatrix.suite.plan import Isolation, Launch, Plan

CASES = "cases prepared"
INSTALLATIONS = 2  # environments that are made side by side; pulls and builds come one after another
ON_CPU = 2  # launches that run side by side on the CPU: building and measuring are mostly single-threaded
IDLE_SECONDS = 1.0  # until a probe that ended while it waited for its first case is started again
CPU_CELLS = 20  # as many cells of one launch at least are worth a process of their own beside another
GPU_CELLS = 4  # the same of processes that share a GPU, whose cells take longer
TURNS = 3  # parts of a launch that each of its workers takes, so that none waits long for the last
BESIDE = 4  # processes that build side by side before and after turns on a GPU (docs/operators.md, "Time")
PROCESS_GPU, PROCESS_HOST = 5 << 30, 3 << 30
"""Memory that a process may need: a context, a Builder, 4 GiB of workspace; its libraries on the host."""


def execute_plan(plan: Plan, run: Run, executor: Executor | None = None) -> Run:
    """Execute every cell of the plan, and return the run with its records.

    ``executor``: runs the launches on other hosts' GPUs. An interrupt ends what runs, and is raised again.
    """
    seconds = order.estimate_seconds([cell for launch in plan.launches for cell in launch.cells], run.stored)
    launches = order.order_launches(plan.launches, seconds, run.is_here)
    if not launches:
        return run
    run.sampled = sample_cells((cell.id for launch in launches for cell in launch.cells), os.urandom(16))
    here = [launch for launch in launches if not launch.gpu.remote]
    away = [launch for launch in launches if launch.gpu.remote]
    groups = group_launches(here, plan.boards, run)
    if run.images is not None:
        run.images.expect(here)
    run.progress.begin(CELLS, sum(len(launch.cells) for launch in launches))
    most = 2 + sum(len(group.launches) + len(group.free) for group in groups)
    with ending(run.hurry) as interrupted, ThreadPoolExecutor(most) as threads:
        try:
            futures = [threads.submit(_prepare_cases, launches, run)]
            if executor and away:
                futures.append(threads.submit(executor.run, away, run))
            made = zip(here, make_ready(here, run), strict=True)
            ready = {(launch.version.name, launch.gpu.slug): future for launch, future in made}
            for group in groups:
                for launch in group.launches:
                    making = ready[launch.version.name, launch.gpu.slug]
                    futures.append(threads.submit(_run_launch, group, launch, making, seconds, run, threads))
            finish(futures)
        except BaseException as error:
            person = isinstance(error, KeyboardInterrupt) and not isinstance(error, HungUp)
            if not person:
                run.leave.set()
            run.stop.set()  # first of all: whatever else fails, what runs is ended
            if isinstance(error, KeyboardInterrupt):
                interrupted()
                with contextlib.suppress(OSError):  # the same signal may have ended who reads it
                    run.progress.note(f"interrupted: ending what runs{'' if person else ' here'}")
            if isinstance(error, OSError):
                raise MachineryError(explain_trouble(error, ["--results", "--cache"])) from error
            raise
    return run


def _prepare_cases(launches: Sequence[Launch], run: Run) -> None:
    """Prepare each distinct case that is not there, and note of each that it is there."""
    missing = []
    for cell in (cell for launch in launches for cell in launch.cells):
        if run.cases.is_whole(run.cases.folder(run.repros[cell.repro.id], cell.case), run.progress.note):
            run.prepared.add((cell.repro.id, cell.case.id))
        else:
            missing.append(cell)
    if not missing:
        return
    groups = [
        [Wanted(loaded=run.repros[cell.repro.id], case=cell.case) for cell in group]
        for group in order.group_cases(missing)
    ]
    run.progress.begin(CASES, sum(map(len, groups)))
    for wanted in run.preparer.prepare(groups, run.stop):
        run.prepared.add((wanted.loaded.repro.id, wanted.case.id))
        run.progress.step(CASES, f"{wanted.loaded.repro.id}/{wanted.case.id}")


def make_ready(launches: Sequence[Launch], run: Run) -> list[Future[Ready]]:
    """Start to make launches ready while others run, in their order: what is here, pulls, builds, wheels.

    An interrupted run leaves the threads behind: the engine ends a pull, but not before this process ends.
    """
    slots = {how: threading.Semaphore() for how in ("here", "pull", "build")}
    slots["install"] = threading.Semaphore(INSTALLATIONS)

    def work(launch: Launch, slot: threading.Semaphore, ready: Future[Ready]) -> None:
        with slot:
            if not run.stop.is_set():
                try:
                    ready.set_result(run.launcher_of(launch).make_ready(launch))
                except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
                    ready.set_exception(error)

    futures = []
    for launch in launches:
        how = "pull" if launch.pull else "build" if launch.build else "install"
        slot, ready = slots["here" if run.is_here(launch) else how], Future[Ready]()
        threading.Thread(target=work, args=(launch, slot, ready), daemon=True).start()
        futures.append(ready)
    return futures


@dataclass(kw_only=True, eq=False)
class Group:
    """The launches of one model of GPU, or of the CPU, and the boards that they take. For many threads.

    ``free``: a board is there once for each worker that it may have. ``boards``: how many there are;
    ``least``: so many cells are worth a second worker; 0: launches come whole. ``left``: launches that have
    not begun; ``room``: boards that no part has or will take. ``queue``: all run at once on one board, by
    turns.
    """

    launches: list[Launch]
    free: list[Gpu]
    boards: int = 1
    least: int = 0
    queue: TaskQueue | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self.places = self.room = len(self.free)
        self.left = len(self.launches)

    def begin(self, launch: Launch) -> int:
        """Return in how many parts a launch is run: one a board, and more where each has cells enough.

        Workers that share a board take several, as none knows how long the others' will keep it busy.
        On the CPU it leaves room for those that have not begun: what one process builds, its others share.
        So it does where there are turns, for which all parts must be there.
        """
        with self.changed:
            self.left -= 1
            cells, places = len(launch.cells), self.places
            if not launch.gpu.present or self.queue is not None:
                places = max(1, self.room // (self.left + 1))
            elif places > self.boards:
                places *= TURNS
            parts = min(places, max(min(self.boards, cells), cells // self.least)) if self.least else 1
            self.room -= parts
            return parts

    def reserve(self, places: int) -> None:
        """Hear that so many places more will be taken than a launch began with."""
        with self.changed:
            self.room -= places

    def take(self, stop: threading.Event, places: int = 1) -> Gpu | None:
        """Wait for a board with so many places free, and take them; none once it stops."""
        with self.changed:
            while not stop.is_set():
                if board := next((each for each in self.free if self.free.count(each) >= places), None):
                    for _ in range(places):
                        self.free.remove(board)
                    return board
                self.changed.wait(WAKE_SECONDS)
            return None

    def give_back(self, board: Gpu, places: int = 1) -> None:
        """Take back places of a board."""
        with self.changed:
            self.free += [board] * places
            self.room += places
            self.changed.notify_all()


def group_launches(launches: Sequence[Launch], boards: Sequence[Gpu], run: Run) -> list[Group]:
    """Return the launches by the boards that they can run on; their order stays."""
    by_slug: dict[str, list[Launch]] = {}
    for launch in launches:
        by_slug.setdefault(launch.gpu.slug if launch.gpu.present else "", []).append(launch)
    groups = []
    for slug, mine in by_slug.items():
        free = list(order.equal_boards(mine[0].gpu, boards))
        if run.options.interleaved:
            groups += take_turns(mine, free, run)
        elif slug:  # the boards come first, then those of them that have room for more
            places = free * run.options.workers
            groups.append(Group(launches=mine, free=places, boards=len(free), least=GPU_CELLS))
        elif run.options.isolation is Isolation.CONTAINER:  # a container a cell: they come one after another
            groups.append(Group(launches=mine, free=free * min(ON_CPU, len(mine))))
        else:
            groups.append(Group(launches=mine, free=free * ON_CPU, least=CPU_CELLS))
    return groups


def take_turns(launches: Sequence[Launch], boards: Sequence[Gpu], run: Run) -> list[Group]:
    """Return the launches that take turns on a board; the models are shared out among equal boards.

    A model is always on one. The first build of its kind in a process takes much longer than the next, since
    TensorRT loads what it needs. So many models are visited once before, without being counted, by several
    processes of each version at once; with few, of which one may be large and take as long again, that would
    cost more than it saves.
    """
    cells = {(cell.repro.id, cell.case.id): cell for launch in launches for cell in launch.cells}
    models = sum(not cell.companion for cell in cells.values())
    boards, groups = boards[: max(1, models)], []
    for number, board in enumerate(boards):
        share = {*list(cells)[number :: len(boards)]}
        mine = [each.of(c for c in each.cells if (c.repro.id, c.case.id) in share) for each in launches]
        mine = [each for each in mine if each.cells]
        tasks, places = by_turns(run.tasks_of(each.on(board)) for each in mine), len(mine)
        warms = board.present and len({task.case for task in tasks if task.single}) >= GPU_CELLS
        if warms:
            places *= max(1, min(BESIDE, count_workers(board, len(boards))) // places)
            tasks = warm_up(tasks, places)
        confirm = partial(run.tasks_to_confirm, most=places // len(mine))
        queue = TaskQueue(tasks, run.is_prepared, confirm, in_turn=True)
        groups.append(Group(launches=mine, free=[board] * places, least=warms * GPU_CELLS, queue=queue))
    return groups


def count_workers(gpu: Gpu, side_by_side: int = 1) -> int:
    """Return how many processes can run cases: by cores, the GPU's memory and the host's, at least one."""
    cores = len(os.sched_getaffinity(0)) // side_by_side
    room = free_memory() // PROCESS_HOST // side_by_side
    told = re.match(r"(\d+) GiB", gpu.variant)
    return max(1, min(cores, room, (int(told[1]) << 30) // PROCESS_GPU if told else cores))


def _run_launch(
    group: Group, launch: Launch, making: Future[Ready], seconds: order.Seconds, run: Run,
    threads: ThreadPoolExecutor,
) -> None:  # fmt: skip
    """Run a launch once it is ready, each part of it as soon as there is a board for it."""
    ready = None
    while ready is None and not run.stop.is_set():
        try:
            ready = making.result(WAKE_SECONDS)
        except NotYet:
            continue
        except MachineryError as error:  # its cells are left out
            run.progress.note(f"{launch.version.name}: {error}")
            run.leave_out(launch, str(error).partition("\n")[0])
            run.progress.more(CELLS, -len(launch.cells))
            with group.changed:
                group.left -= 1
            if group.queue is not None:
                group.queue.drop(launch)
            if run.images is not None:
                run.images.ended(launch)
            return
    if ready is None:
        return
    is_shared = group.queue is None and group.places > group.boards
    exclusive = [cell for cell in launch.cells if cell.is_exclusive and is_shared]
    rest = launch.of(cell for cell in launch.cells if cell not in exclusive)
    _run_parts(group, replace(ready, launch=rest), seconds, run, threads)
    whole = group.places // group.boards
    if exclusive and (board := group.take(run.stop, whole)):
        group.reserve(whole)
        _run_part(group, replace(ready, launch=launch.of(exclusive).on(board)), run, places=whole)
    if run.images is not None and not run.stop.is_set():
        run.images.ended(launch)


def _run_parts(
    group: Group, ready: Ready, seconds: order.Seconds, run: Run, threads: ThreadPoolExecutor
) -> None:
    """Run a launch in parts, the longest first, each as soon as there is a board for it.

    What several parts leave in doubt is confirmed in parts too, by all who have nothing else to do.
    """
    parts = deque[tuple[Launch, Sequence[Task]]]()
    split = order.split_launch(ready.launch, group.begin(ready.launch), seconds, run.stored)
    parts += ((part, ()) for part in order.order_launches(split, seconds, run.is_here))
    doubted: list[tuple[Task, int]] | None = [] if group.least and group.places > 1 else None
    running: list[Future[None]] = []
    while (parts or running or doubted) and not run.stop.is_set():
        if not parts and doubted:
            again = run.tasks_to_confirm([doubted.pop() for _ in range(len(doubted))])
            shares = [again[number :: group.places] for number in range(min(group.places, len(again)))]
            parts += ((ready.launch.of(task.cell for task in share), share) for share in shares)
            group.reserve(len(shares))
        if parts and (board := group.take(run.stop)):
            part, tasks = parts.popleft()
            part = part.on(board)
            first = None if tasks else doubted
            running.append(threads.submit(_run_part, group, replace(ready, launch=part), run, tasks, first))
        elif running:
            wait(running, WAKE_SECONDS, FIRST_COMPLETED)
        for each in list(filter(Future.done, running)):
            running.remove(each)
            each.result()  # what one raises ends the run
    finish(running)


def _run_part(
    group: Group, ready: Ready, run: Run, tasks: Sequence[Task] = (),
    doubted: list[tuple[Task, int]] | None = None, places: int = 1,
) -> None:  # fmt: skip
    """Run what a board has taken: its launch, or these ``tasks``; ``doubted`` gets what is in doubt then."""

    def put_off(found: Sequence[tuple[Task, int]]) -> list[Task]:
        if doubted is None:
            return run.tasks_to_confirm(found)
        doubted.extend(found)
        return []

    launch = ready.launch
    if tasks:  # on another board than the first time, maybe
        tasks = [replace(task, cell=cell) for task, cell in zip(tasks, launch.cells, strict=True)]
    else:
        tasks = run.tasks_of(launch)
        run.progress.more(CELLS, len(tasks) - len(launch.cells))
    try:
        run_tasks(ready, group.queue or TaskQueue(tasks, run.is_prepared, put_off), run)
    finally:
        group.give_back(launch.gpu, places)


def run_tasks(ready: Ready, queue: TaskQueue, run: Run) -> None:
    """Run all tasks of a version, or until the run is to stop; a probe that died is started for the others.

    A warm worker has started by the time that the first case is there.
    """
    recorder = Recorder(ready, run)
    with contextlib.suppress(Stopped):
        while not queue.is_done(ready.launch.version.name):
            worker = Worker(ready, queue, recorder, run)
            worker.run()
            if worker.failed:
                break
            if not worker.fed:
                run.stop.wait(IDLE_SECONDS)
