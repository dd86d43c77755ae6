"""One start of the probe: the job that it is given, the records that come out, how it ended."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trtmatrix.core.compare import expected_verdict, find_expectation
from trtmatrix.core.expand import Cell
from trtmatrix.core.judge import judge
from trtmatrix.core.model import Cause, Product, Verdict
from trtmatrix.core.noise import fits, read_noise
from trtmatrix.core.record import Record, RecordError, record_from
from trtmatrix.effects.cases import read_noise_file
from trtmatrix.effects.launcher import Ended, Launcher, Ready
from trtmatrix.effects.paths import make_job_folder
from trtmatrix.effects.store import keep_outputs, read_json, write_record
from trtmatrix.workshop import Order, Workshop, failed_record, host_facts
from trtprobe.files import write_json


class Stopped(Exception):
    """The run was interrupted; the launch that sees this cleans up and ends."""


OVERDUE_SECONDS = 30.0
"""A cell whose record is this much later than its time limit has taken the probe's supervisor down."""


class Overdue(Exception):
    """The probe neither ended a cell at its time limit nor ended itself."""


class Batch:
    """One start of the probe over some cells, with the records that came out."""

    def __init__(self, ready: Ready, cells: Sequence[Cell], order: Order, shop: Workshop) -> None:
        """Take what is run; nothing is started yet."""
        self.ready, self.cells, self.order, self.shop = ready, list(cells), order, shop
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
        name = f"{self.order.run}-{self.ready.launch.version.name}-{gpu.slug}-{os.urandom(3).hex()}"
        folder = make_job_folder(self.shop.cache, name)
        if gpu.present:
            self._clocks = self.shop.gpu_clocks(gpu)
        try:
            write_json(folder / "job" / "job.json", self._job())
            return launcher.run(self.ready, folder, lambda: self._collect(folder / "out"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _job(self) -> dict[str, Any]:
        product = self.ready.launch.version.product
        cells = []
        for cell in self.cells:
            loaded = self.shop.repros[cell.repro.id]
            builds, processes = count_runs(cell, self.order.rebuilds)
            cells.append(
                {
                    "cell": vars(cell.id), "run": self.order.run, "repro_file": loaded.file.name,
                    "params": dict(cell.case.params), "seconds": cell.case.seconds,
                    "builds": builds, "processes": processes, "needs": sorted(cell.case.needs),
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
            limit = cell.case.seconds * math.prod(count_runs(cell, self.order.rebuilds))
            self._due[index] = time.monotonic() + limit + OVERDUE_SECONDS
        if time.monotonic() > self._due.get(index, math.inf):
            raise Overdue

    def _store(self, cell: Cell, data: dict[str, Any], folder: Path) -> Record:
        """Write a cell's record, completed by what the host knows; its outputs are kept or dropped."""
        shop, loaded = self.shop, self.shop.repros[cell.repro.id]
        complete = {**data, **host_facts(cell, self.ready.digests, self._clocks, shop)}
        complete["noise"] = read_noise_file(shop.cases.folder(loaded, cell.case))
        if self.order.confirms:
            complete["confirms"] = self.order.confirms
        kept = complete.pop("kept", {})
        try:
            record = record_from(complete)
        except RecordError as error:
            return self._failed(
                cell, Cause.PROBE_FAILED, f"the probe left a record that cannot be used: {error}"
            )
        complete["noise"] = with_fits(record)
        outcome = judge([record], cell.case, cell.version, cell.repro, shop.calibration)
        expected = expected_verdict(cell, find_expectation(cell))
        if kept and (cell.case.control or {outcome.verdict, expected} != {Verdict.PASS}):
            complete["kept"] = keep_outputs(shop.cache, folder, kept)
        stored = write_record(shop.local, complete)
        words = outcome.cause.value if outcome.cause else outcome.verdict.value
        shop.progress.step(f"{cell.id}: {words}")
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
        self.records.append(self._failed(self.cells[index], cause, detail))

    def _failed(self, cell: Cell, cause: Cause, detail: str) -> Record:
        return failed_record(cell, self.order, cause, detail, self.ready.digests, self.shop)


def count_runs(cell: Cell, rebuilds: int) -> tuple[int, int]:
    """Return how many engines a process builds, and how many processes there are one after another.

    What a case asks for beyond one is for TensorRT, whose builder may choose otherwise each time.
    """
    case = cell.case
    if case.processes > 1:
        return 1, max(case.processes, rebuilds)
    asked = case.builds if cell.version.product is Product.TENSORRT else 1
    return max(asked, rebuilds), 1


def with_fits(record: Record) -> Mapping[str, Any]:
    """Return a record's noise together with which member of the ensemble fits each output best."""
    noise = read_noise(record.noise)
    return {**record.noise, "fits": fits(noise, record.outputs)} if noise else {}
