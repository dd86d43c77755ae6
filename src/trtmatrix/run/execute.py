"""Executes a plan: cases are prepared, launches made ready and run, records stored; all side by side.

Everything is handed to it. Tasks are fed to a worker as soon as their own case is prepared, and a launch
runs while the next ones are made ready.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from trtmatrix.common.errors import HungUp, MachineryError, ending, explain_trouble
from trtmatrix.judge.compare import sample_cells
from trtmatrix.launchers.launcher import Ready
from trtmatrix.plan import order
from trtmatrix.prepare.case_pool import Wanted
from trtmatrix.run.tasks import CELLS, Executor, Run, TaskQueue, Turns, finish
from trtmatrix.run.worker import Recorder, Stopped, Worker
from trtmatrix.suite.model import CellId, Gpu
from trtmatrix.suite.plan import Isolation, Launch, Plan

CASES = "cases prepared"
TASK_SECONDS = 0.02  # how often a launch that cannot start without a task looks for one
INSTALLATIONS = 2  # environments that are made side by side
ON_CPU = 2  # launches that run side by side on the CPU: building and measuring are mostly single-threaded
CPU_CELLS = 20  # as many cells of one launch at least are worth a process of their own beside another


def execute_plan(plan: Plan, served: frozenset[CellId], run: Run, executor: Executor | None = None) -> Run:
    """Execute every cell of the plan that is not served, and return the run with its records.

    ``executor``: runs the launches on other hosts' GPUs. An interrupt ends what runs, and is raised again.
    """
    todo = plan.without(served)
    seconds = order.estimate_seconds([cell for launch in todo for cell in launch.cells], run.stored)
    launches = order.order_launches(todo, seconds, run.is_here)
    if not launches:
        return run
    run.sampled = sample_cells((cell.id for launch in launches for cell in launch.cells), os.urandom(16))
    here = [launch for launch in launches if not launch.gpu.remote]
    away = [launch for launch in launches if launch.gpu.remote]
    # Where each cell has a container of its own, they come one after another.
    split_cpu = run.isolation is not Isolation.CONTAINER
    schedule = Schedule(here, plan.boards, seconds, split_cpu=split_cpu, together=run.interleaved)
    if run.interleaved:
        for group in schedule.groups:
            group.turns = Turns(len(group.expected), lambda task: task.case in run.prepared)
    if run.images is not None:
        run.images.expect(here)
    run.progress.begin(CELLS, sum(len(launch.cells) for launch in launches))
    boards = [(group, board) for group in schedule.groups for board in group.boards]
    with ending(run.hurry) as interrupted, ThreadPoolExecutor(2 + len(boards)) as threads:
        try:
            futures = [threads.submit(_prepare_cases, launches, run)]
            for group, board in boards:
                run_one = partial(_run_launch, run, group.turns)
                futures.append(threads.submit(schedule.work, group, board, run_one))
            if executor and away:
                futures.append(threads.submit(executor.run, away, run, seconds))
            _start_making_ready(here, schedule, run)
            finish(futures)
        except BaseException as error:
            person = isinstance(error, KeyboardInterrupt) and not isinstance(error, HungUp)
            if not person:
                run.leave.set()
            run.stop.set()  # first of all: whatever else fails, what runs is ended
            if isinstance(error, KeyboardInterrupt):
                interrupted()
            schedule.stop()
            if isinstance(error, KeyboardInterrupt):
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


def _start_making_ready(launches: Sequence[Launch], schedule: Schedule, run: Run) -> None:
    """Make launches ready in threads, while others run: what is here at once, pulls, builds, wheels.

    Pulls and builds come one after another, installations a few at a time. The threads are left behind by a
    run that is interrupted: a pull cannot be called off; the engine ends it with this process.
    """

    def work(waiting: list[Launch], lock: threading.Lock) -> None:
        while not run.stop.is_set():
            with lock:
                if not waiting:
                    return
                launch = waiting.pop(0)
            ready = None
            try:
                try:
                    ready = run.launcher_of(launch).make_ready(launch)
                except MachineryError as error:  # its cells are left out
                    run.progress.note(f"{launch.version.name}: {error}")
                    run.leave_out(launch, str(error).partition("\n")[0])
                    run.progress.more(CELLS, -len(launch.cells))
                    if run.images is not None:
                        run.images.ended(launch)
                schedule.put(launch, ready)
            except BaseException as error:  # noqa: BLE001 - handed to the threads that wait
                schedule.stop(error)

    queues: dict[str, list[Launch]] = {}
    for launch in launches:
        how = "pull" if launch.pull else "build" if launch.build else "install"
        queues.setdefault("here" if run.is_here(launch) else how, []).append(launch)
    for how, queue in queues.items():
        lock = threading.Lock()
        for _ in range(min(INSTALLATIONS if how == "install" else 1, len(queue))):
            threading.Thread(target=work, args=(queue, lock), daemon=True).start()


def _run_launch(run: Run, turns: Turns | None, ready: Ready) -> None:
    tasks = run.tasks_of(ready.launch)
    run.progress.more(CELLS, len(tasks) - len(ready.launch.cells))
    if turns is not None:
        turns.join(tasks)
    queue = TaskQueue(
        tasks, can_run=lambda task: task.case in run.prepared, confirm=run.tasks_to_confirm, turns=turns
    )
    # A warm worker has started by the time that the first case is there.
    if run_tasks(ready, queue, run, early=run.isolation is not Isolation.CONTAINER) and run.images:
        run.images.ended(ready.launch)


def run_tasks(ready: Ready, queue: TaskQueue, run: Run, *, early: bool = False) -> bool:
    """Run all tasks of a queue; a probe that died is started again for those that it left.

    ``early``: the first start waits for no task. Returns whether all were run, before the run was to stop.
    """
    recorder = Recorder(ready, run)
    try:
        while not queue.is_done:
            if early or queue.has_some:
                worker = Worker(ready, queue, recorder, run)
                worker.run()
                early &= bool(worker.fed)
            elif run.stop.wait(TASK_SECONDS):
                return False
    except Stopped:
        return False
    return True


@dataclass(kw_only=True, eq=False)
class Group:
    """The launches of one model of GPU, or of the CPU, in order; each of ``boards`` takes one at a time.

    ``expected``: launches that are not ready yet; ``split``: one of so many cells for each board may be run
    on several, none where it is 0. ``turns``: its launches run at once on the same board, task by task.
    """

    boards: tuple[Gpu, ...]
    expected: list[Launch]
    split: int
    ready: list[Ready] = field(default_factory=list)
    busy: int = 0
    turns: Turns | None = None


class Schedule:
    """Gives each board of this host what it runs next. For many threads."""

    def __init__(
        self, launches: Sequence[Launch], boards: Iterable[Gpu], seconds: order.Seconds, *, split_cpu: bool,
        together: bool = False,
    ) -> None:  # fmt: skip
        """Sort the launches into groups; their order stays. ``split_cpu``: one may be run in parts there.

        ``together``: all launches of a group run at once, on one board.
        """
        boards = tuple(boards)
        by_slug: dict[str, list[Launch]] = {}
        for launch in launches:
            by_slug.setdefault(launch.gpu.slug if launch.gpu.present else "", []).append(launch)
        on_cpu = by_slug.pop("", [])
        self.groups = [
            Group(boards=order.equal_boards(mine[0].gpu, boards), expected=mine, split=1)
            for mine in by_slug.values()
        ]
        if on_cpu:
            count = ON_CPU if split_cpu else min(ON_CPU, len(on_cpu))
            split = CPU_CELLS if split_cpu else 0
            self.groups.append(Group(boards=(on_cpu[0].gpu,) * count, expected=on_cpu, split=split))
        for group in self.groups if together else ():
            group.boards, group.split = group.boards[:1] * len(group.expected), 0
        self._seconds = seconds
        self._place = {id(launch): number for number, launch in enumerate(launches)}
        self._group = {id(launch): group for group in self.groups for launch in group.expected}
        self._changed = threading.Condition()
        self._stopped = False
        self._error: BaseException | None = None

    def put(self, launch: Launch, ready: Ready | None) -> None:
        """Say that a launch is ready, or that it never will be (None)."""
        with self._changed:
            group = self._group[id(launch)]
            group.expected = [other for other in group.expected if other is not launch]
            if ready is None and group.turns is not None:
                group.turns.leave()
            if ready is not None:
                group.ready.append(ready)
                group.ready.sort(key=lambda item: self._place[id(item.launch)])
            self._changed.notify_all()

    def stop(self, error: BaseException | None = None) -> None:
        """Give out nothing any more; every board raises the ``error``, where there is one."""
        with self._changed:
            self._stopped, self._error = True, error or self._error
            self._changed.notify_all()

    def work(self, group: Group, board: Gpu, run_launch: Callable[[Ready], None]) -> None:
        """Run one launch after another on a board, until its group has no more."""
        while (ready := self._take(group)) is not None:
            try:
                run_launch(replace(ready, launch=ready.launch.on(board)) if board.present else ready)
            finally:
                with self._changed:
                    group.busy -= 1

    def _take(self, group: Group) -> Ready | None:
        """Return the next launch of a group once one is ready; None where none will be.

        Where boards are idle and no other launch comes for them, it is split: its other parts are next.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or group.ready or not group.expected)
            if self._error is not None:
                raise self._error
            if self._stopped or not group.ready:
                return None
            ready = group.ready.pop(0)
            idle = len(group.boards) - group.busy - len(group.ready)
            parts = min(idle, len(ready.launch.cells) // group.split) if group.split else 1
            if parts > 1 and not (group.expected and not ready.launch.gpu.present):
                first, *others = order.split_launch(ready.launch, parts, self._seconds)
                self._place |= {id(other): -1 for other in others}
                group.ready[:0] = [replace(ready, launch=other) for other in others]
                ready = replace(ready, launch=first)
                self._changed.notify_all()
            group.busy += 1
            return ready
