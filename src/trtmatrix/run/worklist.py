"""What is left to run of one launch: first every cell, then again and alone those left in doubt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from trtmatrix.run.workshop import CELLS, Order, Workshop, new_run_id
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Product
from trtmatrix.suite.plan import Isolation, Launch


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A cell with how it is to be run. Each is equal to itself alone."""

    cell: Cell
    order: Order

    @property
    def runs(self) -> tuple[int, int]:
        """How many engines a process builds, and how many processes there are one after another."""
        return count_runs(self.cell, self.order.rebuilds)

    @property
    def seconds(self) -> float:
        """The time limit of all of it."""
        return self.cell.case.seconds * math.prod(self.runs)


class Work(Protocol):
    """Where a batch takes its tasks from, and tells how they ended."""

    run: str

    @property
    def over(self) -> bool:
        """Whether nothing is left to give out, and nothing will come."""

    def take(self, most: int | None = None) -> list[Task]:
        """Return what can be run now."""

    def ended(self, task: Task, engines: int = 0) -> None:
        """Take back a task; ``engines``: how many must be built alone before its verdict is believed."""

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Take back tasks that were not run."""

    def drop(self) -> list[Task]:
        """Return all that is left, and give out nothing of it any more."""


class Worklist:
    """Gives out the tasks of a launch, and takes back how they ended. For one thread."""

    def __init__(self, launch: Launch, run: str, shop: Workshop) -> None:
        """Begin with all cells; they are alone where nothing is to be shared."""
        self.launch, self.run, self.shop = launch, run, shop
        alone = shop.isolation is not Isolation.WORKER
        order = Order(run=run, rebuilds=shop.rebuilds, alone=alone)
        self._waiting = [Task(cell=cell, order=order) for cell in launch.cells]
        self._out: list[Task] = []
        self._doubted: list[tuple[Task, int]] = []

    @property
    def over(self) -> bool:
        """Whether nothing is left to give out, and nothing out that might be doubted."""
        return not (self._waiting or self._out or self._doubted)

    @property
    def has_some(self) -> bool:
        """Whether something can be run now."""
        return bool(self._doubted and not self._waiting) or any(
            self._is_prepared(t.cell) for t in self._waiting
        )

    def take(self, most: int | None = None) -> list[Task]:
        """Return what can be run now: tasks whose case is prepared; those in doubt after all others."""
        if not self._waiting and not self._out:
            self._begin_round()
        if ready := [task for task in self._waiting if self._is_prepared(task.cell)][:most]:
            given = set(ready)
            self._waiting = [task for task in self._waiting if task not in given]
            self._out += ready
        return ready

    def ended(self, task: Task, engines: int = 0) -> None:
        """Take back a task; ``engines``: how many must be built alone before its verdict is believed."""
        self._out.remove(task)
        if engines:
            self._doubted.append((task, engines))

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Take back tasks that were not run: they come first."""
        back = list(tasks)
        self._out = [task for task in self._out if task not in back]
        self._waiting = [*back, *self._waiting]

    def drop(self) -> list[Task]:
        """Return all that is left, in doubt or not yet run, and give out nothing any more."""
        left = [*self._out, *self._waiting]
        self._waiting, self._out, self._doubted = [], [], []
        return left

    def _begin_round(self) -> None:
        """Order again what is in doubt, alone, as one run."""
        if not self._doubted:
            return
        count = len(self._doubted)
        self.shop.progress.note(f"{self.launch.version.name}: {count} verdicts are to be confirmed")
        self.shop.progress.more(CELLS, count)
        run = new_run_id(self.shop.clock)
        for task, engines in self._doubted:
            order = Order(run=run, rebuilds=engines, confirms=task.order.run, alone=True)
            self._waiting.append(replace(task, order=order))
        self._doubted = []

    def _is_prepared(self, cell: Cell) -> bool:
        return (cell.repro.id, cell.case.id) in self.shop.prepared


def count_runs(cell: Cell, rebuilds: int) -> tuple[int, int]:
    """Return how many engines a process builds, and how many processes there are one after another.

    What a case asks for beyond one is for TensorRT, whose builder may choose otherwise each time.
    """
    case = cell.case
    if cell.version.product is not Product.TENSORRT:
        return rebuilds, 1
    if case.processes > 1:
        return 1, max(case.processes, rebuilds)
    return max(case.builds, rebuilds), 1
