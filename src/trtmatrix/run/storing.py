"""What the host makes of a record that came out: completed, judged, stored, its outputs kept or dropped."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtmatrix.judge.compare import newest
from trtmatrix.judge.confirm import FROM_THE_PROCESS, assess
from trtmatrix.judge.entry import are_comparable, expected_verdict, find_expectation
from trtmatrix.judge.judge import judge
from trtmatrix.judge.noise import fits, read_noise
from trtmatrix.judge.record import Record, RecordError, record_from
from trtmatrix.launchers.launcher import Ready
from trtmatrix.prepare.cases import read_noise_file
from trtmatrix.records.store import keep_outputs, keep_record
from trtmatrix.run.worklist import Task
from trtmatrix.run.workshop import CELLS, Workshop, failed_record, host_facts
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Cause, Verdict


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A record as stored; ``engines``: how many more must be built alone before its verdict is believed."""

    record: Record
    engines: int = 0


class Storing:
    """Stores the records of one launch."""

    def __init__(self, ready: Ready, shop: Workshop) -> None:
        """Look up what was stored before of its cells, and how the GPU's clocks are."""
        self.ready, self.shop = ready, shop
        gpu = ready.launch.gpu
        self._clocks = shop.gpu_clocks(gpu) if gpu.present else {}
        ours = {cell.id for cell in ready.launch.cells}
        self._before = newest(item for item in shop.stored if item.record.cell in ours)
        self._since: dict[Any, list[Record]] = {}

    def store(self, task: Task, data: dict[str, Any], folder: Path) -> Kept:
        """Write a cell's record; ``folder`` holds its outputs, and is removed."""
        try:
            return self._store(task, data, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _store(self, task: Task, data: dict[str, Any], folder: Path) -> Kept:
        cell, shop = task.cell, self.shop
        loaded = shop.repros[cell.repro.id]
        complete = {**data, **host_facts(cell, self.ready.digests, self._clocks, shop)}
        complete["noise"] = read_noise_file(shop.cases.folder(loaded, cell.case))
        if task.order.confirms:
            complete["confirms"] = task.order.confirms
        kept = complete.pop("kept", {})
        try:
            record = record_from(complete)
        except RecordError as error:
            detail = f"the probe left a record that cannot be used: {error}"
            return self.fail(task, Cause.PROBE_FAILED, detail)
        complete["noise"] = with_fits(record)
        outcome = judge([record], cell.case, cell.version, cell.repro, shop.calibration)
        expected = expected_verdict(cell, find_expectation(cell))
        if kept and (cell.case.keep or cell.case.control or {outcome.verdict, expected} != {Verdict.PASS}):
            complete["kept"] = keep_outputs(shop.cache, folder, kept)
        stored = keep_record(shop.local, complete)
        words = outcome.cause.value if outcome.cause else outcome.verdict.value
        shop.progress.step(CELLS, f"{cell.id}: {words}")
        return Kept(record=stored, engines=self._engines(cell, stored))

    def fail(self, task: Task, cause: Cause, detail: str) -> Kept:
        """Store the record of a task for which the probe left none that can be used."""
        record = failed_record(task.cell, task.order, cause, detail, self.ready.digests, self.shop)
        doubted = self.shop.confirm and not task.order.alone and cause in FROM_THE_PROCESS
        return Kept(record=record, engines=1 if doubted else self._engines(task.cell, record))

    def _engines(self, cell: Cell, record: Record) -> int:
        """Return how many engines must be built before what a record says is believed."""
        if not self.shop.confirm:
            return 0
        earlier = [*self._since.get(cell.id, []), *(s.record for s in self._before.get(cell.id, []))]
        records = [record, *(other for other in earlier if are_comparable(record, other))]
        self._since[cell.id] = [record, *self._since.get(cell.id, [])]
        wanted = assess(cell, records, self.shop.calibration).wanted
        return max(wanted, self.shop.rebuilds) if wanted else 0


def with_fits(record: Record) -> Mapping[str, Any]:
    """Return a record's noise together with which member of the ensemble fits each output best."""
    noise = read_noise(record.noise)
    return {**record.noise, "fits": fits(noise, record.outputs)} if noise else dict(record.noise)
