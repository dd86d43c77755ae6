"""Executes a plan: cases are prepared, launches made ready and run, records stored; all side by side.

Everything is handed to it. Tasks are fed to a worker as soon as their own case is prepared, and a launch
runs while the next ones are made ready.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from trtmatrix.common.errors import HungUp, MachineryError, explain_trouble
from trtmatrix.common.interrupts import ending
from trtmatrix.judge.confirm import sample_cells
from trtmatrix.launchers.launcher import Ready, WrongVersion
from trtmatrix.plan.order import estimate_seconds, group_cases, join_images, order_launches
from trtmatrix.prepare.case_pool import Wanted
from trtmatrix.run.recorder import Recorder, host_facts, write_failed
from trtmatrix.run.schedule import MakingReady, Schedule
from trtmatrix.run.state import CELLS, Executor, Run
from trtmatrix.run.tasks import TaskQueue
from trtmatrix.run.worker import Stopped, Worker
from trtmatrix.suite.model import Cause, CellId
from trtmatrix.suite.plan import Isolation, Launch, Plan

CASES = "cases prepared"
PREPARED_SECONDS = 0.02
"""How often a launch that cannot start without a prepared case looks for one."""


def execute_plan(plan: Plan, served: frozenset[CellId], run: Run, executor: Executor | None = None) -> Run:
    """Execute every cell of the plan that is not served, and return the run with its records.

    ``executor``: runs the launches on other hosts' GPUs. An interrupt ends what runs, and is raised again.
    """
    todo = [launch.of(cell for cell in launch.cells if cell.id not in served) for launch in plan.launches]
    seconds = estimate_seconds([cell for launch in todo for cell in launch.cells], run.stored)
    launches = join_images(order_launches([launch for launch in todo if launch.cells], seconds, run.is_here))
    if not launches:
        return run
    run.sampled = sample_cells((cell.id for launch in launches for cell in launch.cells), os.urandom(16))
    here = [launch for launch in launches if not launch.gpu.remote]
    away = [launch for launch in launches if launch.gpu.remote]
    # Where each cell has a container of its own, they come one after another.
    schedule = Schedule(here, plan.boards, seconds, split_cpu=run.isolation is not Isolation.CONTAINER)
    if run.images is not None:
        run.images.expect(here)
    run.progress.begin(CELLS, sum(len(launch.cells) for launch in launches))
    boards = [(group, board) for group in schedule.groups for board in group.boards]
    with ending(run.hurry) as interrupted, ThreadPoolExecutor(2 + len(boards)) as threads:
        try:
            futures = [threads.submit(_prepare_cases, launches, run)]
            for group, board in boards:
                futures.append(threads.submit(schedule.work, group, board, lambda r: _run_launch(r, run)))
            if executor and away:
                futures.append(threads.submit(executor.run, away, run, seconds))
            MakingReady(run, lambda launch, found: _take(launch, found, schedule, run)).start(here)
            for future in as_completed(futures):
                future.result()
        except BaseException as error:
            if isinstance(error, HungUp) or not isinstance(error, KeyboardInterrupt):
                run.leave.set()
            run.stop.set()  # first of all: whatever else fails, what runs is ended
            if isinstance(error, KeyboardInterrupt):
                interrupted()
            schedule.stop()
            if isinstance(error, KeyboardInterrupt):
                with contextlib.suppress(OSError):  # the same signal may have ended who reads it
                    run.progress.note(f"interrupted: ending what runs{' here' if run.leave.is_set() else ''}")
            if isinstance(error, OSError):
                folders = {"--results": run.local, "--cache": run.cache}
                raise MachineryError(explain_trouble(error, folders)) from error
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
    groups = [
        [Wanted(loaded=run.repros[cell.repro.id], case=cell.case) for cell in group]
        for group in group_cases(missing)
    ]
    if groups:
        run.progress.begin(CASES, sum(map(len, groups)))
    for wanted in run.preparer.prepare(groups, run.stop):
        run.prepared.add((wanted.loaded.repro.id, wanted.case.id))
        run.progress.step(CASES, f"{wanted.loaded.repro.id}/{wanted.case.id}")


def _take(launch: Launch, found: Ready | BaseException, schedule: Schedule, run: Run) -> None:
    """Schedule a launch that is ready; the cells of one that cannot be made ready are left out."""
    if isinstance(found, Ready):
        schedule.put(launch, found)
        return
    if not isinstance(found, MachineryError):
        schedule.stop(found)
        return
    try:
        run.progress.note(f"{launch.version.name}: {found}")
        if isinstance(found, WrongVersion):
            for task in run.tasks_of(launch):
                facts = host_facts(task, found.digests, {}, run)
                record = write_failed(task, Cause.VERSION_MISMATCH, str(found), facts, run, run.local)
                run.records.append(record)
        else:
            run.leave_out(launch, str(found).splitlines()[0])
        if run.images is not None:
            run.images.ended(launch)
    finally:
        schedule.put(launch, None)


def _run_launch(ready: Ready, run: Run) -> None:
    """Run one launch to the end; a probe that died is started again for the tasks that it left."""
    recorder = Recorder(ready, run)
    queue = TaskQueue(
        run.tasks_of(ready.launch), can_run=lambda task: task.case in run.prepared,
        confirm=run.tasks_to_confirm,
    )  # fmt: skip
    early = run.isolation is not Isolation.CONTAINER  # it is warm by the time that the first case is there
    try:
        while not queue.is_done:
            while not early and not queue.has_some:
                if run.stop.wait(PREPARED_SECONDS):
                    return
            worker = Worker(ready, queue, recorder, run)
            worker.run()
            early &= worker.had_tasks
    except Stopped:
        return
    if run.images is not None:
        run.images.ended(ready.launch)
