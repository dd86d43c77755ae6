"""What the host makes of a record that came out: completed, judged, stored, its outputs kept or dropped."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtmatrix.common.border import BorderError, remove_tree
from trtmatrix.judge.compare import newest
from trtmatrix.judge.confirm import FROM_THE_PROCESS, assess, is_shared
from trtmatrix.judge.entry import are_comparable, expected_verdict, find_expectation
from trtmatrix.judge.judge import judge
from trtmatrix.judge.noise import fits, read_noise
from trtmatrix.judge.record import SCHEMA, Record, RecordError, record_from
from trtmatrix.launchers.launcher import Ready
from trtmatrix.plan.stale import cell_digests
from trtmatrix.prepare.cases import find_change, read_content, read_noise_file
from trtmatrix.records.store import keep_outputs, keep_record
from trtmatrix.run.tasks import CELLS, Run, Task
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Cause, Gpu, Verdict


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A record as stored; ``engines``: how many more must be built alone before its verdict is believed."""

    record: Record
    engines: int = 0


class Recorder:
    """Stores the records of one launch below ``local``."""

    def __init__(self, ready: Ready, run: Run) -> None:
        """Look up what was stored before of its cells, and how the GPU's clocks are."""
        self.ready, self.state, self.local = ready, run, run.local
        gpu = ready.launch.gpu
        self._clocks = run.gpu_clocks(gpu) if gpu.present else {}
        ours = {cell.id for cell in ready.launch.cells}
        groups = newest(item for item in run.stored if item.record.cell in ours)
        self._before = {cell: [item.record for item in items] for cell, items in groups.items()}

    def store(self, task: Task, data: dict[str, Any] | BorderError, folder: Path) -> Recorded:
        """Write a cell's record; ``folder`` holds its outputs, and is removed.

        What it left is a stranger's: whatever cannot be read or judged (``data``: why) costs this cell alone.
        """
        try:
            if isinstance(data, BorderError):
                raise data
            return self._store(task, data, folder)
        except (BorderError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            said = str(error) if isinstance(error, (BorderError, RecordError)) else repr(error)
            return self.fail(task, Cause.PROBE_FAILED, f"what the cell left cannot be used: {said[:1000]}")
        finally:
            remove_tree(folder)

    def _store(self, task: Task, data: Mapping[str, Any], folder: Path) -> Recorded:
        cell, run = task.cell, self.state
        case = run.cases.folder(run.repros[cell.repro.id], cell.case)
        if trouble := find_change(case) or find_host_trouble(data, folder.parent):
            return self.fail(task, Cause.LAUNCHER_FAILED, f"trouble of this host, not of the cell: {trouble}")
        noise = read_noise_file(case)
        complete = {**data, **self._host_facts(task), "noise": noise}
        complete.update(schema=SCHEMA, cell=vars(cell.id), run=task.run, product=cell.version.product.value)
        kept = complete.pop("kept", {})
        record = record_from(complete)
        if ensemble := read_noise(record.noise):
            noise["fits"] = fits(ensemble, record.outputs)  # the record is a view of these very objects
        outcome = judge([record], cell.case, cell.version, cell.repro, run.calibration)
        expected = expected_verdict(cell, find_expectation(cell))
        if kept and (cell.case.keep or cell.case.control or {outcome.verdict, expected} != {Verdict.PASS}):
            complete["kept"] = keep_outputs(run.cache, folder, kept)
        record = keep_record(self.local, record)
        run.progress.step(CELLS, f"{cell.id}: {(outcome.cause or outcome.verdict).value}")
        return Recorded(record=record, engines=self._engines(cell, record))

    def fail(self, task: Task, cause: Cause, detail: str) -> Recorded:
        """Store the record of a task for which the probe left none that can be used."""
        run, cell = self.state, task.cell
        record = write_failed(task, cause, detail, self._host_facts(task), run, self.local)
        if run.confirm and not task.alone and cause in FROM_THE_PROCESS:
            return Recorded(record=record, engines=1)
        return Recorded(record=record, engines=self._engines(cell, record))

    def _host_facts(self, task: Task) -> dict[str, Any]:
        return host_facts(task, self.ready.digests, self._clocks, self.state)

    def _engines(self, cell: Cell, record: Record) -> int:
        """Return how many engines must be built before what a record says is believed."""
        run = self.state
        if not run.confirm:
            return 0
        earlier = self._before.get(cell.id, [])
        records = [record, *(other for other in earlier if are_comparable(record, other))]
        self._before[cell.id] = [record, *earlier]
        found = assess(cell, records, run.calibration)
        sampled = cell.id in run.sampled and is_shared(record) and found.outcome.verdict is Verdict.PASS
        wanted = found.wanted or int(sampled)
        return max(wanted, run.rebuilds) if wanted else 0


LEAST_ROOM = 1 << 24
"""Bytes on the disk with a cell's outputs below which no cell can be expected to end well."""


def find_host_trouble(data: Mapping[str, Any], out: Path) -> str:
    """Return what of this host may have ended a cell, or nothing: no room on the disk that it writes to."""
    if data.get("ended") not in (Cause.CRASHED.value, Cause.BUILD_FAILED.value, Cause.PROBE_FAILED.value):
        return ""
    if os.strerror(errno.EDQUOT) in str(data.get("detail")):
        return f"the disk quota of {out} is exceeded"
    free = shutil.disk_usage(out).free
    return f"the disk of {out} has {free:,} bytes left" if free < LEAST_ROOM else ""


def host_facts(
    task: Task, digests: Mapping[str, str], clocks: Mapping[str, Any], run: Run
) -> dict[str, Any]:  # fmt: skip
    """Return what the host adds to a record: digests, the GPU as NVML sees it, the run that it confirms."""
    cell, loaded = task.cell, run.repros[task.cell.repro.id]
    own = {"probe": run.probe_digest}
    with contextlib.suppress(OSError, BorderError, KeyError):  # a launch may fail before a case is there
        own["content"] = read_content(run.cases.folder(loaded, cell.case))
    return {
        "digests": {**cell_digests(cell, loaded), **digests, **own}, "gpu": _gpu_facts(cell.gpu, clocks),
        **({"confirms": task.confirms} if task.confirms else {}),
    }  # fmt: skip


def _gpu_facts(gpu: Gpu, clocks: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record says of its GPU; only the name where it is not known which board it was.

    A board of a node has its host, as a hash: drivers are a host's. One of this host has none: a
    workstation's name says who sits before it, and the board's own hash tells it apart.
    """
    if not gpu.present:
        return {}
    if not gpu.is_board:
        return {"name": gpu.name}
    host = {"host": gpu.host} if gpu.host else {}
    return {
        "name": gpu.name, "compute": gpu.compute, "variant": gpu.variant, "driver": gpu.driver,
        "uuid_sha256": gpu.uuid_hash, "clocks": dict(clocks), **host,
    }  # fmt: skip


def write_failed(
    task: Task, cause: Cause, detail: str, facts: Mapping[str, Any], run: Run, local: Path
) -> Record:
    """Store the record of a task that ended without one; ``facts``: what the host adds."""
    moment = run.clock().strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    run.progress.step(CELLS, f"{task.cell.id}: {cause.value}")
    return keep_record(local, record_from({
        "schema": SCHEMA, "cell": vars(task.cell.id), "run": task.run,
        "product": task.cell.version.product.value, "ended": cause.value, "detail": detail[:4000],
        "started": moment, "finished": moment, "attempts": 1, "observed": {}, "environment": {}, "engine": {},
        "measurements": {"outputs": {}, "scalars": {}}, "log": "", **facts,
    }))  # fmt: skip
