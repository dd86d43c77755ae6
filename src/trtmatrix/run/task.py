"""A task: one cell with how it is to be run, from the plan through the queue and the probe to its record."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Protocol

from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Product
from trtmatrix.suite.repro_files import LoadedRepro


class Clock(Protocol):
    """Tells the time in UTC."""

    def __call__(self) -> datetime:
        """Return now, with its time zone."""


def utc_now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(timezone.utc)


def new_run_id(clock: Clock = utc_now) -> str:
    """Return an id that sorts by time and that no other run has."""
    return f"{clock().strftime('%Y%m%dt%H%M%S')}-{os.urandom(4).hex()}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A cell with how it is to be run. Each is equal to itself alone.

    ``run``: the id of the run that its record is stored under; ``rebuilds``: the least number of engines;
    ``confirms``: the run whose verdict is doubted, if any; ``alone``: in a fresh process that serves no other
    cell; ``files``: the folder with the case's files, where it is not the case's own.
    """

    cell: Cell
    run: str
    rebuilds: int = 1
    confirms: str = ""
    alone: bool = False
    files: str = ""

    @property
    def case(self) -> tuple[str, str]:
        """The ids of its repro and case, which is what has to be prepared."""
        return self.cell.repro.id, self.cell.case.id

    @property
    def runs(self) -> tuple[int, int]:
        """How many engines a process builds, and how many processes there are one after another.

        What a case asks for beyond one is for TensorRT, whose builder may choose otherwise each time.
        """
        case = self.cell.case
        if self.cell.version.product is not Product.TENSORRT:
            return self.rebuilds, 1
        if case.processes > 1:
            return 1, max(case.processes, self.rebuilds)
        return max(case.builds, self.rebuilds), 1

    @property
    def seconds(self) -> float:
        """The time limit of all of it."""
        return self.cell.case.seconds * math.prod(self.runs)

    def message(self, loaded: LoadedRepro, files: str) -> dict[str, Any]:
        """Return what the probe reads (``<index>.cell.json``); ``files``: the prepared case's folder."""
        case, (builds, processes) = self.cell.case, self.runs
        return {
            "cell": vars(self.cell.id), "run": self.run, "repro_file": loaded.file.name,
            "params": {**case.params, **case.tolerance}, "seconds": case.seconds,
            "builds": builds, "processes": processes, "needs": sorted(case.needs),
            "files": self.files or files, "keep_outputs": True, "alone": self.alone,
            "dangerous": case.dangerous,
        }  # fmt: skip
