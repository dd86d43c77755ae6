"""One array that this client follows: which of its cells it wants, what came of them, what Slurm says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trtmatrix.core.plan import Launch
from trtmatrix.core.slurm.fate import Attempt
from trtmatrix.core.slurm.jobs import JobStatus, Phase
from trtmatrix.core.slurm.manifest import Manifest, Sent, Try
from trtmatrix.core.slurm.parse import find_task
from trtmatrix.worklist import Task

Place = tuple[int, int]
"""A task of an array, and a cell's place in it."""


@dataclass(kw_only=True, eq=False)
class Following:
    """An array with the cells that are wanted of it.

    ``taken``: those of which a record or another end was taken; ``over``: tasks of which nothing more is to
    come; ``told``: what was last said of it; ``surfaces``: attempts that were looked through for surfaces.
    """

    manifest: Manifest
    launch: Launch
    wanted: Mapping[Place, Task]
    taken: set[Place] = field(default_factory=set)
    over: set[int] = field(default_factory=set)
    surfaces: set[tuple[int, int]] = field(default_factory=set)
    told: str = ""
    _missing: dict[tuple[int, int], float] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The array's key."""
        return self.manifest.key

    @property
    def tasks(self) -> list[int]:
        """The tasks of which something is still to come for us."""
        return sorted({task for task, _ in self.wanted} - self.over)

    def is_open(self, task: int, index: int) -> bool:
        """Whether a cell is wanted of which nothing was taken yet."""
        return (task, index) in self.wanted and (task, index) not in self.taken

    def attempts(
        self, task: int, tries: Sequence[Try], sents: Sequence[Sent], jobs: Jobs
    ) -> list[Attempt]:
        """Return what was tried of a task, with what Slurm says of each attempt's job."""
        mine = sorted((one for one in tries if one.task == task), key=lambda one: one.attempt)
        return [self._attempt(left, sents, jobs) for left in mine]

    def _attempt(self, left: Try, sents: Sequence[Sent], jobs: Jobs) -> Attempt:
        ours = [sent for sent in sents if sent.attempt == left.attempt and left.task in sent.tasks]
        kept = [sent for sent in ours if not sent.lost]
        sent = kept[-1] if kept else None
        status = jobs.of(sent.job, left.task) if sent is not None and sent.job else None
        return Attempt(
            left=left, sent=sent, lost=len(ours) - len(kept), job=status,
            missing=self._since(left, sent, status, jobs.moment),
        )  # fmt: skip

    def _since(self, left: Try, sent: Sent | None, status: JobStatus | None, moment: float) -> float:
        """Return for how long Slurm has answered that a job is no more."""
        place = (left.task, left.attempt)
        if sent is None or not sent.job or (status is not None and status.phase is not Phase.GONE):
            self._missing.pop(place, None)
            return 0.0
        return moment - self._missing.setdefault(place, moment)


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """What Slurm said of our jobs, at a moment of the monotonic clock."""

    statuses: tuple[JobStatus, ...] = ()
    moment: float = 0.0

    def of(self, job: str, task: int) -> JobStatus | None:
        """Return what was said of an array's task; None where it was not listed."""
        return find_task(list(self.statuses), job, task)

    def named(self, name: str) -> list[JobStatus]:
        """Return the jobs of a name."""
        return [one for one in self.statuses if one.name == name]


def placed(task: Task, launch: Launch) -> Task:
    """Return a task whose cell is on the board that a launch is on."""
    return replace(task, cell=replace(task.cell, gpu=launch.gpu))
