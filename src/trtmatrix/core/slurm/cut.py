"""Cuts what is to be run of one version on one GPU into tasks, and says how long one may take. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trtmatrix.core.model import CellId
from trtmatrix.core.order import Seconds, split_launch
from trtmatrix.core.plan import Launch
from trtmatrix.core.slurm.manifest import Asked
from trtmatrix.core.slurm.site import SiteLimits

GUESSED_SECONDS = 10.0
"""What a cell is thought to take that was never run: a guess, between a small graph's second and a model's
minute."""
WORTH_SECONDS = 60.0
"""So much work at least is worth a task of its own: each waits in the queue and starts a container."""
START_SECONDS = 300.0
"""What a task may need before its first cell: an image loaded, a container started."""
SPARE = 3.0
"""How much longer than thought cells may take before the site's own limit is asked for instead."""


def cut_tasks(
    launch: Launch,
    seconds: Seconds,
    limits: SiteLimits,
    *,
    single: bool = False,
    worth: float = WORTH_SECONDS,
) -> list[tuple[CellId, ...]]:
    """Return the cells of each task, in the launch's order; ``single``: one cell a task.

    ``seconds``: of the cells that were run before. ``worth``: so many are worth a task of their own.

    As many tasks as may run at once, where each is worth it; more where one would not fit half of the site's
    longest time. Cells of one repro stay together as far as that goes.
    """
    if single:
        return [(cell.id,) for cell in launch.cells]
    total = sum(seconds.get(cell.id, GUESSED_SECONDS) for cell in launch.cells)
    beside = min(limits.running, math.floor(total / worth))
    needed = math.ceil(total / (limits.minutes * 60 / 2))
    guessed = {cell.id: seconds.get(cell.id, GUESSED_SECONDS) for cell in launch.cells}
    parts = split_launch(launch, max(1, beside, needed), guessed)
    return [tuple(cell.id for cell in part.cells) for part in parts]


def cut_arrays(tasks: Sequence[tuple[Asked, ...]], limits: SiteLimits) -> list[tuple[tuple[Asked, ...], ...]]:
    """Return the tasks of each array, at most ``limits.tasks``."""
    return [tuple(tasks[n : n + limits.tasks]) for n in range(0, len(tasks), limits.tasks)]


def task_minutes(
    tasks: Sequence[Sequence[Asked]], seconds: Seconds, known: frozenset[CellId], limits: SiteLimits
) -> int:
    """Return the ``--time`` of an array's tasks: a short one is started sooner where there is a queue.

    Where it is not known of each cell how long it takes: the site's longest. Else so much that the longest
    task can take three times as long as it did, and a cell its own time limit.
    """
    if not all(asked.cell in known for task in tasks for asked in task):
        return limits.minutes
    longest = max(sum(seconds[asked.cell] for asked in task) for task in tasks)
    slowest = max(asked.seconds for task in tasks for asked in task)
    return min(limits.minutes, math.ceil((START_SECONDS + SPARE * longest + slowest) / 60))
