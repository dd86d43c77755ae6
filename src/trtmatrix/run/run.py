"""Performs a plan: prepares cases, makes launches ready, runs them, collects records; all side by side.

Everything is handed to it. Cells are fed to a launch as soon as their own case is prepared, and a launch
runs while the next ones are made ready.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol

from trtmatrix.common.errors import HungUp, MachineryError
from trtmatrix.judge.record import Record
from trtmatrix.launchers.launcher import Ended, Launcher, Ready, WrongVersion
from trtmatrix.plan.order import Seconds, estimate_seconds, group_cases, join_images, order_launches
from trtmatrix.prepare.case_pool import Wanted
from trtmatrix.run.batch import Batch, Overdue, Stopped
from trtmatrix.run.lanes import Lanes
from trtmatrix.run.performed import Performed
from trtmatrix.run.readying import Readying
from trtmatrix.run.storing import Storing
from trtmatrix.run.worklist import Worklist
from trtmatrix.run.workshop import CELLS, Order, Workshop, failed_record
from trtmatrix.suite.model import Cause, CellId
from trtmatrix.suite.outcome import Exclusion
from trtmatrix.suite.plan import Excluded, Isolation, Launch, Plan

CASES = "cases prepared"
SAME_SECONDS = 2.0
"""So soon after a first signal a second one is no person's."""
PREPARED_SECONDS = 0.02
"""How often a launch that cannot start without a prepared case looks for one."""


class Remote(Protocol):
    """Runs launches elsewhere than on this host, while this host runs its own."""

    def run(self, launches: Sequence[Launch], run: str, seconds: Seconds, performed: Performed) -> None:
        """Run all of them, and leave none behind where the run is to stop."""


def run_plan(
    plan: Plan, skip: frozenset[CellId], run: str, shop: Workshop, remote: Remote | None = None
) -> Performed:
    """Execute every cell of the plan that is not to be skipped; those of other hosts' GPUs by ``remote``."""
    todo = [launch.of(cell for cell in launch.cells if cell.id not in skip) for launch in plan.launches]
    seconds = estimate_seconds([cell for launch in todo for cell in launch.cells], shop.stored)
    launches = join_images(order_launches([launch for launch in todo if launch.cells], seconds, shop.is_here))
    performed = Performed()
    if not launches:
        return performed
    here = [launch for launch in launches if not launch.gpu.remote]
    away = [launch for launch in launches if launch.gpu.remote]
    plain = shop.isolation is Isolation.CONTAINER  # those are one after another
    lanes = Lanes(here, plan.boards, seconds, split_cpu=not plain)

    def perform(ready: Ready) -> None:
        _run_launch(ready, run, shop, performed)

    def tell(launch: Launch, told: Ready | BaseException) -> None:
        _tell(launch, told, lanes, run, shop, performed)

    if shop.images is not None:
        shop.images.expect(here)
    shop.progress.begin(CELLS, sum(len(launch.cells) for launch in launches))
    with _deaf_once_ended(), ThreadPoolExecutor(2 + sum(len(lane.boards) for lane in lanes.lanes)) as threads:
        try:
            futures = [threads.submit(_prepare, launches, shop)]
            for lane in lanes.lanes:
                futures += [threads.submit(lanes.work, lane, board, perform) for board in lane.boards]
            if remote and away:
                futures.append(threads.submit(remote.run, away, run, seconds, performed))
            Readying(shop.launcher_of, tell, shop.stop).start(here, shop.is_here)
            for future in as_completed(futures):
                future.result()
        except BaseException as error:
            if isinstance(error, HungUp) or not isinstance(error, KeyboardInterrupt):
                shop.leave.set()
            shop.stop.set()  # first of all: whatever else fails, what runs is ended
            if isinstance(error, KeyboardInterrupt):
                _clean_up_undisturbed(shop)
            lanes.stop()
            _tell_of_end(error, shop)
            if isinstance(error, OSError):
                raise MachineryError(f"a file could not be written or read: {error}") from error
            raise
    return performed


@contextlib.contextmanager
def _deaf_once_ended() -> Iterator[None]:
    """Hear no signal any more once an interruption is dealt with: it would hit the interpreter's own end."""
    try:
        yield
    except KeyboardInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        raise


def _clean_up_undisturbed(shop: Workshop) -> None:
    """Let no second signal cut short what the first one started: it takes seconds.

    It only ends waiting for others, such as a queue. One that comes at once is the same keystroke, passed on.
    A hang-up says no more than that nobody looks on, and often comes twice.
    """
    first = time.monotonic()

    def hurry(*_: object) -> None:
        if time.monotonic() - first > SAME_SECONDS:
            shop.hurry.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, hurry)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _tell_of_end(error: BaseException, shop: Workshop) -> None:
    """Say that an interruption was heard, where anybody hears it: the same signal may have ended them."""
    if isinstance(error, KeyboardInterrupt):
        with contextlib.suppress(OSError):
            here = " here" if shop.leave.is_set() else ""
            shop.progress.note(f"interrupted: ending what runs{here}")


def _prepare(launches: Sequence[Launch], shop: Workshop) -> None:
    """Prepare each distinct case that is not there, and say of each that it is there."""
    cells = [cell for launch in launches for cell in launch.cells]
    missing = []
    for cell in cells:
        if shop.cases.folder(shop.repros[cell.repro.id], cell.case).is_dir():
            shop.prepared.add((cell.repro.id, cell.case.id))
        else:
            missing.append(cell)
    groups = [
        [Wanted(loaded=shop.repros[cell.repro.id], case=cell.case) for cell in group]
        for group in group_cases(missing)
    ]
    if groups:
        shop.progress.begin(CASES, sum(map(len, groups)))
    for wanted in shop.preparer.prepare(groups, shop.stop):
        shop.prepared.add((wanted.loaded.repro.id, wanted.case.id))
        shop.progress.step(CASES, f"{wanted.loaded.repro.id}/{wanted.case.id}")


def _tell(
    launch: Launch, told: Ready | BaseException, lanes: Lanes, run: str, shop: Workshop, performed: Performed
) -> None:
    """Take a launch that is ready; what cannot be made ready is told of, and its cells are not run."""
    if isinstance(told, Ready):
        lanes.put(launch, told)
        return
    if not isinstance(told, MachineryError):
        lanes.fail(told)
        return
    try:
        shop.progress.note(f"{launch.version.name}: {told}")
        if isinstance(told, WrongVersion):
            performed.records += _wrong_version(launch, told, run, shop)
        else:
            reason = str(told).splitlines()[0]
            performed.not_ready += [
                Excluded(cell=cell, why=Exclusion.NOT_READY, detail=reason) for cell in launch.cells
            ]
        if shop.images is not None:
            shop.images.ended(launch)
    finally:
        lanes.put(launch, None)


def _wrong_version(launch: Launch, told: WrongVersion, run: str, shop: Workshop) -> list[Record]:
    """Record of each cell that it was not started, as its image is not what it is pinned for."""
    return [
        failed_record(cell, Order(run=run), Cause.VERSION_MISMATCH, str(told), told.digests, shop)
        for cell in launch.cells
    ]


def _run_launch(ready: Ready, run: str, shop: Workshop, performed: Performed) -> None:
    """Run one launch to the end; a probe that died is started again for the cells it left."""
    launcher, storing = shop.launcher_of(ready.launch), Storing(ready, shop)
    work = Worklist(ready.launch, run, shop)
    early = shop.isolation is not Isolation.CONTAINER  # it is warm by the time that the first case is there
    try:
        while not work.over:
            if not early:
                _wait_for_a_case(work, shop)
            batch = Batch(ready, work, storing, shop)
            batch.settle(run_batch(batch, launcher, shop))
            performed.records += batch.records
            early &= batch.had_cells
    except Stopped:
        return
    if shop.images is not None:
        shop.images.ended(ready.launch)


def _wait_for_a_case(work: Worklist, shop: Workshop) -> None:
    """Wait until a cell can be run; :class:`Stopped` once the run is to end."""
    while not work.has_some:
        if shop.stop.wait(PREPARED_SECONDS):
            raise Stopped


def run_batch(batch: Batch, launcher: Launcher, shop: Workshop) -> Ended:
    """Run the probe once; returns how it ended, also where it had to be ended."""
    try:
        return batch.run(launcher)
    except Overdue:
        return Ended(code=-1, log="it was ended: a cell was long over its time limit")
    except MachineryError as error:
        shop.progress.note(f"{batch.ready.launch.version.name}: {error}")
        batch.give_up = True
        return Ended(code=-1, log=str(error))
