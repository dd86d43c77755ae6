"""What becomes of a task: it is waited for, attempted (again), given up, or over. Pure; one decision.

All of it follows from what lies on the shared folder, so that every client comes to the same. What Slurm alone
knows, and soon forgets, is written down first (:class:`Bury`) and decided on then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from trtmatrix.core.model import Cause
from trtmatrix.core.slurm.jobs import JobStatus
from trtmatrix.core.slurm.manifest import Asked, Sent, Try

FIRST = 1
"""The number of a task's first attempt."""
RETRIES = 2
"""How many attempts more a task gets after trouble that is none of its cells'."""
SETTLE_SECONDS = 30.0
"""For how long Slurm must have had no such job before its silence on the shared folder is believed.

What a node wrote last may be seen late: NFS keeps what it knows of a folder for up to 60 s, but asks again when
the folder is opened, which is how it is looked at here.
"""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt at a task, as far as it is known.

    ``sent``: the last sbatch that had it, None where there was none yet; ``lost``: how many before it came to
    nothing. ``job``: what Slurm says of its job; None where it lists none. ``missing``: for how many seconds
    Slurm has answered and had no such job, or only as one that has ended.
    """

    left: Try
    sent: Sent | None = None
    lost: int = 0
    job: JobStatus | None = None
    missing: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A cell that left no record and is not run again: the client records it with this cause.

    ``index``: its place in the task; ``attempt``: in which it came to nothing.
    """

    index: int
    attempt: int
    cause: Cause
    detail: str


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Nothing is to be done now; ``why`` as Slurm's reason, for who waits."""

    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Bury:
    """A job is gone and left no full account: write its state down (``note_gone``), then decide again."""

    attempt: int
    state: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Submit:
    """An attempt at these cells (in this order) is to be submitted.

    ``again``: it stands on the shared folder already and no sbatch had it; only the submission is missing.
    ``retry``: it counts against :data:`RETRIES`; ``why``: what the last one came to. ``avoid``: nodes that had
    trouble of their own (sbatch's ``--exclude``). ``cancel``: a job that hangs in the queue and is to be
    cancelled first.
    """

    attempt: int
    indices: tuple[int, ...]
    again: bool = False
    retry: bool = False
    why: str = ""
    avoid: tuple[str, ...] = ()
    cancel: str = ""


@dataclass(frozen=True, kw_only=True)
class Over:
    """Nothing of the task is to be run any more.

    ``left``: cells that have neither record nor fault: they were not run, because ``why`` (sbatch refused
    them, or a client was told to end).
    """

    left: tuple[int, ...] = ()
    why: str = ""


Step = Union[Wait, Bury, Submit, Over]


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What is to be done next with a task, and the cells of it that the client has to record itself.

    ``faults`` only grow from decision to decision; each is to be recorded once, at whatever step.
    """

    step: Step
    faults: tuple[Fault, ...] = ()


def decide(task: Sequence[Asked], attempts: Sequence[Attempt], *, stopping: bool = False) -> Fate:
    """Return what becomes of a task; ``attempts``: all of it, the first one first.

    ``stopping``: a client cancels the array, so nothing is submitted any more. Never called with statuses of a
    Slurm that did not answer: then it is waited.
    """
    if not attempts:
        return Fate(step=Over(left=tuple(range(len(task)))) if stopping else _first(task))
    return Fate(step=Wait())


def _first(task: Sequence[Asked]) -> Submit:
    return Submit(attempt=FIRST, indices=tuple(range(len(task))))
