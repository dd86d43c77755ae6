"""One array that this client follows: which of its cells it wants, what came of them, what Slurm says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trtmatrix.core.model import Cause
from trtmatrix.core.plan import Launch
from trtmatrix.core.slurm.manifest import Manifest
from trtmatrix.worklist import Task

Place = tuple[int, int]
"""A task of an array, and a cell's place in it."""


NEVER_RAN = frozenset({Cause.LAUNCHER_FAILED, Cause.IMAGE_MISSING, Cause.INTERRUPTED})
"""What a cell ends with that no probe was started for: nothing was measured, and nothing is recorded."""


@dataclass(kw_only=True, eq=False)
class Following:
    """An array with the cells that are wanted of it.

    ``taken``: those of which a record or another end was taken; ``over``: tasks of which nothing more is to
    come for us; ``told``: what was last said of it; ``surfaces``: attempts that were looked through for
    surfaces; ``refused``: why cells were not run, as it was told; ``doubted``: since when it is not known
    what became of a submission.
    """

    manifest: Manifest
    launch: Launch
    wanted: Mapping[Place, Task]
    taken: set[Place] = field(default_factory=set)
    over: set[int] = field(default_factory=set)
    surfaces: set[tuple[int, int]] = field(default_factory=set)
    told: str = ""
    refused: set[str] = field(default_factory=set)
    doubted: float | None = None

    @property
    def key(self) -> str:
        """The array's key."""
        return self.manifest.key

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"{self.launch.gpu.name} {self.launch.version.name}"

    @property
    def tasks(self) -> list[int]:
        """The tasks of which something is still to come for us."""
        return sorted({task for task, _ in self.wanted} - self.over)

    def is_open(self, task: int, index: int) -> bool:
        """Whether a cell is wanted of which nothing was taken yet."""
        return (task, index) in self.wanted and (task, index) not in self.taken

    def is_settled(self, task: int) -> bool:
        """Whether all that is wanted of a task was taken."""
        return all(place in self.taken for place in self.wanted if place[0] == task)


def placed(task: Task, launch: Launch) -> Task:
    """Return a task whose cell is on the board that a launch is on."""
    return replace(task, cell=replace(task.cell, gpu=launch.gpu))
