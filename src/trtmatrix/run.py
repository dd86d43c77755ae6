"""Performs a plan: prepares cases, starts launches, collects records. Everything is handed to it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field, replace

from trtmatrix.batch import Batch, Overdue, Stopped
from trtmatrix.core.compare import newest
from trtmatrix.core.confirm import CONFIRMING_BUILDS, needs_confirmation
from trtmatrix.core.entry import are_comparable
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.expand import Cell
from trtmatrix.core.judge import judge
from trtmatrix.core.model import CellId, Exclusion, Product
from trtmatrix.core.plan import Excluded, Launch, Plan
from trtmatrix.core.record import Record
from trtmatrix.effects.launcher import Ended, Launcher, Ready
from trtmatrix.workshop import Order, Workshop, new_run_id


@dataclass(kw_only=True)
class Performed:
    """What came of a plan: records written, and cells whose launch could not be made ready."""

    records: list[Record] = field(default_factory=list)
    not_ready: list[Excluded] = field(default_factory=list)


def run_plan(plan: Plan, skip: frozenset[CellId], run: str, shop: Workshop) -> Performed:
    """Execute every cell of the plan that is not to be skipped."""
    todo = [_without(launch, skip) for launch in plan.launches]
    launches = [launch for launch in todo if launch.cells]
    performed = Performed()
    lanes = _lanes(launches)
    on_gpu = sum(lane[0].gpu.present for lane in lanes)
    with ThreadPoolExecutor(CPU_LANES) as cpu, ThreadPoolExecutor(max(1, on_gpu)) as gpus:
        try:
            futures = [
                (gpus if lane[0].gpu.present else cpu).submit(_run_lane, lane, run, shop, performed)
                for lane in lanes
            ]
            _prepare(launches, shop)
            for future in as_completed(futures):
                future.result()
        except OSError as error:
            shop.stop.set()
            raise MachineryError(f"a file could not be written or read: {error}") from error
        except BaseException as error:
            shop.stop.set()
            if isinstance(error, KeyboardInterrupt):
                _clean_up_undisturbed(shop)
            raise
    return performed


def _clean_up_undisturbed(shop: Workshop) -> None:
    """Let no second signal cut short what the first one started: it takes seconds."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    shop.progress.note("interrupted: ending what runs")


CPU_LANES = 2
"""Versions that run side by side on the CPU: building is mostly single-threaded."""


def _lanes(launches: Sequence[Launch]) -> list[list[Launch]]:
    """Return what runs one after another: all of a GPU's launches; on the CPU each by itself.

    On the CPU the versions that run their cells come before those that only build: they take longest.
    """
    slugs = dict.fromkeys(launch.gpu.slug for launch in launches if launch.gpu.present)
    lanes = [[launch for launch in launches if launch.gpu.slug == slug] for slug in slugs]
    on_cpu = [launch for launch in launches if not launch.gpu.present]
    on_cpu.sort(key=lambda launch: launch.version.product is Product.TENSORRT_RTX)
    return lanes + [[launch] for launch in on_cpu]


def _run_lane(lane: Sequence[Launch], run: str, shop: Workshop, performed: Performed) -> None:
    for launch in lane:
        if not shop.stop.is_set():
            _run_launch(launch, run, shop, performed)


def _without(launch: Launch, skip: frozenset[CellId]) -> Launch:
    cells = tuple(cell for cell in launch.cells if cell.id not in skip)
    return replace(launch, cells=cells)


def _prepare(launches: Sequence[Launch], shop: Workshop) -> None:
    """Prepare each distinct case once, while images and environments are made ready."""
    wanted = {(cell.repro.id, cell.case.id): cell for launch in launches for cell in launch.cells}
    missing = [
        cell for cell in wanted.values()
        if not shop.cases.folder(shop.repros[cell.repro.id], cell.case).is_dir()
    ]  # fmt: skip
    if missing:
        shop.progress.begin("cases prepared", len(missing))
    for cell in missing:
        shop.cases.prepare(shop.repros[cell.repro.id], cell.case)
        shop.progress.step(f"{cell.repro.id}/{cell.case.id}")
    if total := sum(len(launch.cells) for launch in launches):
        shop.progress.begin("cells", total)
    shop.prepared.set()


def _run_launch(launch: Launch, run: str, shop: Workshop, performed: Performed) -> None:
    """Run one launch to the end, and again what must be confirmed."""
    launcher = shop.launchers["host" if launch.python else launch.version.runtime]
    try:
        ready = _make_ready(launcher, launch, shop)
        while not shop.prepared.wait(timeout=0.1):
            if shop.stop.is_set():
                return
        order = Order(run=run, rebuilds=shop.rebuilds)
        records = _run_cells(launcher, ready, launch.cells, order, shop)
        performed.records += records
        doubtful = _doubtful(launch.cells, records, shop) if shop.confirm else []
        if doubtful:
            shop.progress.note(f"{launch.version.name}: {len(doubtful)} verdicts are to be confirmed")
            shop.progress.more(len(doubtful))
            again = Order(run=new_run_id(shop.clock), rebuilds=CONFIRMING_BUILDS, confirms=run)
            performed.records += _run_cells(launcher, ready, doubtful, again, shop)
    except Stopped:
        return
    except MachineryError as error:
        shop.progress.note(f"{launch.version.name}: {error}")
        reason = str(error).splitlines()[0]
        performed.not_ready += [
            Excluded(cell=cell, why=Exclusion.NOT_READY, detail=reason) for cell in launch.cells
        ]


def _run_cells(
    launcher: Launcher, ready: Ready, cells: Sequence[Cell], order: Order, shop: Workshop
) -> list[Record]:
    """Run cells to the end; a probe that died is started again for the cells it left."""
    records: list[Record] = []
    left = list(cells)
    while left:
        batch = Batch(ready, left, order, shop)
        try:
            ended = batch.run(launcher)
        except Overdue:
            ended = Ended(code=-1, log="it was ended: a cell was long over its time limit")
        except MachineryError as error:
            shop.progress.note(f"{ready.launch.version.name}: {error}")
            ended = Ended(code=-1, log=str(error))
            batch.give_up = True
        left = batch.settle(ended)
        records += batch.records
    return records


def _doubtful(cells: Sequence[Cell], records: Sequence[Record], shop: Workshop) -> list[Cell]:
    """Return the cells that were run and whose verdict must be seen again before it is believed."""
    before, by_id = newest(shop.stored), {cell.id: cell for cell in cells}
    found = []
    for record in records:
        cell = by_id[record.cell]
        others = [s.record for s in before.get(cell.id, []) if are_comparable(record, s.record)]
        outcome = judge([record, *others], cell.case, cell.version, cell.repro, shop.calibration)
        if needs_confirmation(cell, outcome, [record, *others]):
            found.append(cell)
    return found


def _make_ready(launcher: Launcher, launch: Launch, shop: Workshop) -> Ready:
    """Make a launch ready in a thread that an interrupted run leaves behind.

    What a pull waits for cannot be called off, and the engine ends it when this process has ended.
    """
    done: Future[Ready] = Future()

    def work() -> None:
        try:
            done.set_result(launcher.make_ready(launch))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    while not wait([done], timeout=0.1).done:
        if shop.stop.is_set():
            raise Stopped
    return done.result()
