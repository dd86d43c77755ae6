"""One start of the probe: cells are fed to it as files, records are stored as they appear."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.paths import make_job_folder
from trtmatrix.judge.record import Record
from trtmatrix.launchers.launcher import Ended, Launcher, Ready
from trtmatrix.records.store import read_json
from trtmatrix.run.storing import Kept, Storing
from trtmatrix.run.worklist import Task, Work
from trtmatrix.run.workshop import Workshop
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import Cause
from trtmatrix.suite.plan import Isolation
from trtprobe.files import write_json


class Stopped(Exception):
    """The run was interrupted; the launch that sees this cleans up and ends."""


OVERDUE_SECONDS = 30.0
"""A cell whose record is this much later than its time limit has taken the probe's supervisor down."""

STORES = 2
"""Records of one launch that are stored side by side: what takes long is compressing outputs."""


class Overdue(Exception):
    """The probe neither ended a cell at its time limit nor ended itself."""


def job_words(version: Version, shop: Workshop) -> dict[str, Any]:
    """Return what the probe is told once of a job (``job.json``)."""
    worker = shop.isolation is Isolation.WORKER
    return {
        "product": version.product.value, "output_bytes": shop.output_bytes,
        "isolation": (Isolation.WORKER if worker else Isolation.PROCESS).value,
        **(shop.surfaces.wanted(version) if shop.surfaces else {}),
    }  # fmt: skip


def cell_words(task: Task, shop: Workshop) -> dict[str, Any]:
    """Return what the probe is told of a cell (``<index>.cell.json``)."""
    cell, loaded = task.cell, shop.repros[task.cell.repro.id]
    builds, processes = task.runs
    return {
        "cell": vars(cell.id), "run": task.order.run, "repro_file": loaded.file.name,
        "params": {**cell.case.params, **cell.case.tolerance}, "seconds": cell.case.seconds,
        "builds": builds, "processes": processes, "needs": sorted(cell.case.needs),
        "files": task.order.files or shop.cases.folder(loaded, cell.case).name, "keep_outputs": True,
        "alone": task.order.alone, "dangerous": cell.case.dangerous,
    }  # fmt: skip


class Batch:
    """One start of the probe over what a worklist gives, with the records that came out.

    Nothing that the probe waits for waits for a record to be stored: that is done by threads.
    """

    def __init__(self, ready: Ready, work: Work, storing: Storing, shop: Workshop) -> None:
        """Take what is run; nothing is started yet."""
        self.ready, self.work, self.storing, self.shop = ready, work, storing, shop
        self.records: list[Record] = []
        self.give_up = False
        self._fed: list[Task] = []  # by index: the probe runs them in this order
        self._next = 0  # the first index whose record has not been seen
        self._started = -1  # the last index that is known to have started
        self._due = math.inf
        self._stores: deque[tuple[Task, Future[Kept]]] = deque()
        self._threads = ThreadPoolExecutor(STORES)
        self._closed = False
        # The engine's flag is for the whole container: it is no news once a record has told of a kill.
        self._told_of_memory = False

    @property
    def had_cells(self) -> bool:
        """Whether it was given anything to do."""
        return bool(self._fed)

    def run(self, launcher: Launcher) -> Ended:
        """Run the probe to its end; what came out is stored and the job's folder removed on every path."""
        version, gpu = self.ready.launch.version, self.ready.launch.gpu
        name = f"{self.work.run}-{version.name}-{gpu.slug}-{os.urandom(3).hex()}"
        folder = make_job_folder(self.shop.cache, name)
        try:
            with self._threads:  # on the way out it waits until what came out is stored
                write_json(folder / "job" / "job.json", job_words(version, self.shop))
                self._feed(folder / "job")
                try:
                    ended = launcher.run(self.ready, folder, lambda: self._poll(folder))
                except MachineryError:  # what had come out is no less true
                    self._collect(folder / "out")
                    raise
                if self.shop.surfaces is not None:
                    self.shop.surfaces.take(self.ready, folder / "out")
                return ended
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self._drain()

    def _poll(self, folder: Path) -> None:
        """Take what has come out, feed what can be run now. Raises :class:`Stopped`, :class:`Overdue`."""
        if self.shop.stop.is_set():
            raise Stopped
        self._collect(folder / "out")
        self._drain(wait=False)
        self._feed(folder / "job")

    def _feed(self, job: Path) -> None:
        """Write each cell that can be run now, and the end once nothing more will come."""
        if self._closed:
            return
        single = self.shop.isolation is Isolation.CONTAINER
        for task in self.work.take(1 if single else None):
            index = len(self._fed)
            self._fed.append(task)
            write_json(job / f"{index}.cell.json", cell_words(task, self.shop))
        if (single and self._fed) or self.work.over:
            (job / "end").touch()
            self._closed = True

    def _collect(self, out: Path) -> None:
        """Hand over each record that has appeared; they appear in order."""
        while self._next < len(self._fed):
            index, task = self._next, self._fed[self._next]
            data = read_json(out / f"{index}.record.json")
            if data is None:
                self._watch(index, task, out)
                return
            self._started, self._next, self._due = index, index + 1, math.inf
            self._told_of_memory |= bool(data.get("oom_kills"))
            self._stores.append(
                (task, self._threads.submit(self.storing.store, task, data, out / str(index)))
            )

    def _watch(self, index: int, task: Task, out: Path) -> None:
        """Note that a cell has started; :class:`Overdue` where it should have ended long ago."""
        if index > self._started and (out / f"{index}.started.json").exists():
            self._started = index
            self._due = time.monotonic() + task.seconds + OVERDUE_SECONDS
        if time.monotonic() > self._due:
            raise Overdue

    def _drain(self, *, wait: bool = True) -> None:
        """Take the records that are stored; raises what went wrong with one."""
        while self._stores and (wait or self._stores[0][1].done()):
            task, future = self._stores.popleft()
            self._take(task, future.result())

    def _take(self, task: Task, kept: Kept) -> None:
        self.records.append(kept.record)
        self.work.ended(task, kept.engines)

    def settle(self, ended: Ended) -> None:
        """Record the cell that took the probe down; what else is left goes back to the worklist.

        All that is left fails where the probe cannot be started. One that ended before there was anything
        to do is no trouble yet.
        """
        if self.give_up or (self._fed and self._started < 0 and not self.work.over):
            for task in self.work.drop():
                what = "the probe did not start" if self._started < 0 else "the launcher failed"
                detail = f"{what}: {ended.log[-1500:]}"
                self.records.append(self.storing.fail(task, Cause.LAUNCHER_FAILED, detail).record)
            return
        left = self._fed[self._next :]
        if left and self._started == self._next:
            cause = Cause.PROBE_FAILED
            if ended.out_of_memory and not self._told_of_memory:
                cause = Cause.OUT_OF_HOST_MEMORY
            elif ended.code in {137, 143}:
                cause = Cause.INTERRUPTED
            detail = f"the probe ended with code {ended.code}: {ended.log[-1500:]}"
            self._take(left[0], self.storing.fail(left[0], cause, detail))
            left = left[1:]
        self.work.give_back(left)
