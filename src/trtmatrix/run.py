"""Performs a plan: prepares cases, starts launches, collects records. Everything is handed to it."""

from __future__ import annotations

import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from trtmatrix.core.compare import expected_verdict, find_expectation
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.expand import Cell
from trtmatrix.core.judge import judge
from trtmatrix.core.model import Cause, CellId, Exclusion, Gpu, Product, Verdict
from trtmatrix.core.plan import Excluded, Launch, Plan
from trtmatrix.core.record import SCHEMA, Record, RecordError, record_from
from trtmatrix.effects.cases import CaseCache, case_digest, digest_authoring
from trtmatrix.effects.launcher import Ended, Launcher, Ready
from trtmatrix.effects.paths import make_job_folder
from trtmatrix.effects.progress import Progress
from trtmatrix.effects.repro_files import LoadedRepro
from trtmatrix.effects.store import keep_outputs, read_json, write_record


class Clock(Protocol):
    """Tells the time in UTC."""

    def __call__(self) -> datetime:
        """Return now, with its time zone."""


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """What a run works with: launchers by runtime, folders, digests, progress, clock."""

    launchers: Mapping[str, Launcher]
    repros: Mapping[str, LoadedRepro]
    cases: CaseCache
    cache: Path
    local: Path
    probe_digest: str
    progress: Progress
    gpu_clocks: Callable[[Gpu], dict[str, Any]]
    output_bytes: int
    clock: Clock = field(default=lambda: datetime.now(timezone.utc))
    stop: threading.Event = field(default_factory=threading.Event)
    prepared: threading.Event = field(default_factory=threading.Event)


def current_digests(
    cells: Sequence[Cell],
    repros: Mapping[str, LoadedRepro],
    probe: str,
    origin: Callable[[Cell], Mapping[str, str]],
) -> dict[CellId, dict[str, str]]:
    """Return the digests that a record of each cell must have to count as current."""
    return {
        cell.id: {**cell_digests(cell, repros[cell.repro.id]), "probe": probe, **origin(cell)}
        for cell in cells
    }


def cell_digests(cell: Cell, loaded: LoadedRepro) -> dict[str, str]:
    """Return the digests of a cell's repro and case."""
    return {
        "repro": f"{loaded.repro.digest[:32]}{digest_authoring()[:32]}",
        "case": case_digest(cell.case),
    }


def new_run_id(clock: Clock) -> str:
    """Return an id that sorts by time and that no other run has."""
    return f"{clock().strftime('%Y%m%dt%H%M%S')}-{os.urandom(4).hex()}"


class Stopped(Exception):
    """The run was interrupted; the launch that sees this cleans up and ends."""


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
    return Launch(version=launch.version, gpu=launch.gpu, cells=cells, pull=launch.pull, python=launch.python)


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
    """Run one launch to the end; a probe that died is started again for the cells it left."""
    launcher = shop.launchers["host" if launch.python else launch.version.runtime]
    try:
        ready = _make_ready(launcher, launch, shop)
    except Stopped:
        return
    except MachineryError as error:
        shop.progress.note(f"{launch.version.name}: {error}")
        reason = str(error).splitlines()[0]
        performed.not_ready += [
            Excluded(cell=cell, why=Exclusion.NOT_READY, detail=reason) for cell in launch.cells
        ]
        return
    left = list(launch.cells)
    while left and not shop.prepared.wait(timeout=0.1):
        if shop.stop.is_set():
            return
    while left:
        batch = _Batch(ready, left, run, shop)
        try:
            ended = batch.run(launcher)
        except Stopped:
            return
        except Overdue:
            ended = Ended(code=-1, log="it was ended: a cell was long over its time limit")
        except MachineryError as error:
            shop.progress.note(f"{launch.version.name}: {error}")
            ended = Ended(code=-1, log=str(error))
            batch.give_up = True
        left = batch.settle(ended)
        performed.records += batch.records


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


OVERDUE_SECONDS = 30.0
"""A cell whose record is this much later than its time limit has taken the probe's supervisor down."""


class Overdue(Exception):
    """The probe neither ended a cell at its time limit nor ended itself."""


class _Batch:
    """One start of the probe over some cells, with the records that came out."""

    def __init__(self, ready: Ready, cells: Sequence[Cell], run: str, shop: Workshop) -> None:
        self.ready, self.cells, self.run_id, self.shop = ready, list(cells), run, shop
        self.records: list[Record] = []
        self.give_up = False
        self._seen: set[int] = set()
        self._started: set[int] = set()
        self._due: dict[int, float] = {}
        # The engine's flag is for the whole container: it is no news once a record has told of a kill.
        self._told_of_memory = False
        self._clocks: dict[str, Any] = {}

    def run(self, launcher: Launcher) -> Ended:
        """Write the job, run the probe, collect; the job's folder is removed on every path."""
        gpu = self.ready.launch.gpu
        name = f"{self.run_id}-{self.ready.launch.version.name}-{gpu.slug}-{os.urandom(3).hex()}"
        folder = make_job_folder(self.shop.cache, name)
        if gpu.present:
            self._clocks = self.shop.gpu_clocks(gpu)
        try:
            from trtprobe.files import write_json

            write_json(folder / "job" / "job.json", self._job())
            return launcher.run(self.ready, folder, lambda: self._collect(folder / "out"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _job(self) -> dict[str, Any]:
        product = self.ready.launch.version.product
        cells = []
        for cell in self.cells:
            loaded = self.shop.repros[cell.repro.id]
            cells.append(
                {
                    "cell": vars(cell.id), "run": self.run_id, "repro_file": loaded.file.name,
                    "params": dict(cell.case.params), "seconds": cell.case.seconds,
                    "needs": sorted(cell.case.needs),
                    "files": self.shop.cases.folder(loaded, cell.case).name, "keep_outputs": True,
                }
            )  # fmt: skip
        return {"product": product.value, "cells": cells, "output_bytes": self.shop.output_bytes}

    def _collect(self, out: Path) -> None:
        """Store each record that has appeared, with what only the host knows.

        Raises :class:`Stopped` once the run is to end.
        """
        if self.shop.stop.is_set():
            raise Stopped
        for index, cell in enumerate(self.cells):
            if index in self._seen:
                continue
            data = read_json(out / f"{index}.record.json")
            if data is None:
                self._watch(index, cell, out)
                if index not in self._started:  # nor any after it: cells run in order
                    return
                continue
            self._started.add(index)
            self._seen.add(index)
            self._told_of_memory |= bool(data.get("oom_kills"))
            self.records.append(self._store(cell, data, out / str(index)))
            shutil.rmtree(out / str(index), ignore_errors=True)

    def _watch(self, index: int, cell: Cell, out: Path) -> None:
        """Note that a cell has started; :class:`Overdue` where it should have ended long ago."""
        if index not in self._started and (out / f"{index}.started.json").exists():
            self._started.add(index)
            self._due[index] = time.monotonic() + cell.case.seconds + OVERDUE_SECONDS
        if time.monotonic() > self._due.get(index, math.inf):
            raise Overdue

    def _store(self, cell: Cell, data: dict[str, Any], folder: Path) -> Record:
        complete = {**data, **_host_facts(cell, self.ready.digests, self._clocks, self.shop)}
        kept = complete.pop("kept", {})
        try:
            record = record_from(complete)
        except RecordError as error:
            detail = f"the probe left a record that cannot be used: {error}"
            return _failed(cell, self.run_id, Cause.PROBE_FAILED, detail, self.ready.digests, self.shop)
        outcome = judge(record, cell.case, cell.version)
        expected = expected_verdict(cell, find_expectation(cell))
        if kept and {outcome.verdict, expected} != {Verdict.PASS}:
            complete["kept"] = keep_outputs(self.shop.cache, folder, kept)
        stored = write_record(self.shop.local, complete)
        words = outcome.cause.value if outcome.cause else outcome.verdict.value
        self.shop.progress.step(f"{cell.id}: {words}")
        return stored

    def settle(self, ended: Ended) -> list[Cell]:
        """Record the cell that took the probe down; returns the cells to start again."""
        left = [i for i in range(len(self.cells)) if i not in self._seen]
        if not left:
            return []
        if self.give_up or not self._started:
            for index in left:
                self._fail(index, Cause.LAUNCHER_FAILED, f"the probe did not start: {ended.log[-1500:]}")
            return []
        running = [i for i in left if i in self._started]
        if not running:
            return [self.cells[i] for i in left]
        cause = Cause.PROBE_FAILED
        if ended.out_of_memory and not self._told_of_memory:
            cause = Cause.OUT_OF_HOST_MEMORY
        elif ended.code in {137, 143}:
            cause = Cause.INTERRUPTED
        self._fail(running[0], cause, f"the probe ended with code {ended.code}: {ended.log[-1500:]}")
        return [self.cells[i] for i in left if i != running[0]]

    def _fail(self, index: int, cause: Cause, detail: str) -> None:
        digests = self.ready.digests
        self.records.append(_failed(self.cells[index], self.run_id, cause, detail, digests, self.shop))


def _host_facts(
    cell: Cell, digests: Mapping[str, str], clocks: Mapping[str, Any], shop: Workshop
) -> dict[str, Any]:
    """Return what the host adds to a record: digests, and the GPU as NVML sees it."""
    loaded = shop.repros[cell.repro.id]
    gpu: dict[str, Any] = {}
    if cell.gpu.present:
        gpu = {
            "name": cell.gpu.name, "compute": cell.gpu.compute, "variant": cell.gpu.variant,
            "driver": cell.gpu.driver, "uuid_sha256": cell.gpu.uuid_hash, "clocks": dict(clocks),
        }  # fmt: skip
    return {
        "digests": {**cell_digests(cell, loaded), **digests, "probe": shop.probe_digest},
        "gpu": gpu,
    }


def _failed(
    cell: Cell, run: str, cause: Cause, detail: str, digests: Mapping[str, str], shop: Workshop
) -> Record:
    """Store the record of a cell for which the probe could not leave one."""
    moment = shop.clock().strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    data = {
        "schema": SCHEMA, "cell": vars(cell.id), "run": run, "product": cell.version.product.value,
        "ended": cause.value, "detail": detail[:4000], "started": moment, "finished": moment,
        "attempts": 1, "observed": {}, "environment": {}, "engine": {},
        "measurements": {"outputs": {}, "scalars": {}}, "log": "", **_host_facts(cell, digests, {}, shop),
    }  # fmt: skip
    shop.progress.step(f"{cell.id}: {cause.value}")
    return write_record(shop.local, data)
