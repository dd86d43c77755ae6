"""Tasks: each is a cell with how it is to be run, from the plan through queue and probe to its record."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
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


class TaskQueue:
    """Hands out tasks that can be run now, and takes back how they ended. For many threads.

    ``can_run``: whether a task's case is prepared. ``confirm``: makes new tasks of those in doubt, once no
    other is left. ``closed``: whether nothing will be added.
    """

    def __init__(
        self, tasks: Iterable[Task] = (), *, can_run: Callable[[Task], bool] = lambda _: True,
        confirm: Callable[[Sequence[tuple[Task, int]]], list[Task]] = lambda _: [], closed: bool = True,
    ) -> None:  # fmt: skip
        """Begin with these tasks."""
        self._waiting, self._can_run, self._confirm, self._closed = list(tasks), can_run, confirm, closed
        self._running: list[Task] = []
        self._doubted: list[tuple[Task, int]] = []
        self._changed = threading.Condition()

    @property
    def is_done(self) -> bool:
        """Whether nothing waits, nothing runs that might be doubted, and nothing will come."""
        with self._changed:
            return self._closed and not (self._waiting or self._running or self._doubted)

    @property
    def has_some(self) -> bool:
        """Whether a task can be run now."""
        with self._changed:
            return bool(self._doubted and not self._waiting) or any(map(self._can_run, self._waiting))

    def take(self, most: int | None = None) -> list[Task]:
        """Return the tasks that can be run now; those in doubt come after all others."""
        with self._changed:
            if self._doubted and not self._waiting and not self._running:
                self._waiting, self._doubted = self._confirm(self._doubted), []
            taken = [task for task in self._waiting if self._can_run(task)][:most]
            self._waiting = _without(self._waiting, taken)
            self._running += taken
            return taken

    def ended(self, task: Task, engines: int = 0) -> None:
        """Take back a task; ``engines``: how many must be built alone before its verdict is believed."""
        with self._changed:
            self._running.remove(task)
            if engines:
                self._doubted.append((task, engines))

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Take back tasks that were not run: they come first."""
        with self._changed:
            self._running = _without(self._running, tasks)
            self._waiting = [*tasks, *self._waiting]

    def drop(self) -> list[Task]:
        """Return all that is left, running or waiting, and hand out nothing of it any more."""
        with self._changed:
            left = [*self._running, *self._waiting]
            self._waiting, self._running, self._doubted = [], [], []
            return left

    def add(self, task: Task) -> None:
        """Take one more task."""
        with self._changed:
            self._waiting.append(task)
            self._changed.notify_all()

    def close(self) -> None:
        """Forget what waits; nothing will be added."""
        with self._changed:
            self._closed, self._waiting = True, []
            self._changed.notify_all()

    def wait(self) -> bool:
        """Wait until there is a task; False where none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return bool(self._waiting)


def _without(tasks: Sequence[Task], others: Iterable[Task]) -> list[Task]:
    gone = set(others)
    return [task for task in tasks if task not in gone]
