"""What becomes of a task: it is waited for, attempted (again), or over. Pure; one decision.

All of it follows from what lies on the shared folder, so that every client comes to the same. What Slurm
alone knows, and soon forgets, is written down first (:class:`Bury`) and decided on then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trtmatrix.core.slurm.ends import NEVER, End, Fault, Kind, end_of
from trtmatrix.core.slurm.jobs import JobStatus, Phase
from trtmatrix.core.slurm.manifest import Asked, Sent, Try
from trtmatrix.core.slurm.words import Trouble

__all__ = [
    "FIRST", "RETRIES", "SETTLE_SECONDS", "SILENT_SECONDS", "UNLISTED", "Attempt", "Bury", "Fate", "Fault",
    "Over", "Step", "Submit", "Wait", "decide",
]  # fmt: skip

FIRST = 1
"""The number of a task's first attempt."""

RETRIES = 2
"""How many attempts more a task gets after trouble that is none of its cells'."""

SETTLE_SECONDS = 30.0
"""For how long Slurm must have had no such job before the shared folder's silence is believed.

What a node wrote last may be seen late over NFS, though each look opens the folder, which asks the server
anew; and Slurm may call a job ended while its script still copies.
"""

SILENT_SECONDS = 60.0
"""For how long the script of a job that Slurm does not list must have given no sign of life.

A list without a job is no word of its end: a controller that came up from an old state, or another cluster's,
gives such lists too. A script gives a sign each 10 s; NFS may show it late.
"""

UNLISTED = "UNLISTED"
"""The state of a job that Slurm does not know (any more)."""

HELD = ("REQUEUE_HOLD", "SPECIAL_EXIT")
STUCK = (NEVER, "launch failed requeued", "user env retrieval failed", "JobHoldMaxRequeue")
"""States, and reasons, of jobs that wait and will never run without a hand of somebody's.

One that a person holds (JobHeldAdmin, JobHeldUser) is waited for: who held it lets it go. Source: Slurm's
documentation, "Job State Codes" and "Job Reason Codes"; of the two with blanks: src/slurmctld/job_mgr.c and
what sites tell of them. Releases and formats differ in blanks, capitals and signs between the words.
"""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt at a task, as far as it is known.

    ``sent``: the last sbatch that had it and was not lost, None where there is none; ``lost``: how many
    came to nothing. ``job``: what Slurm says of its job; None where it lists none. ``missing``: for how many
    seconds Slurm has answered and had no such job, or only as one that has ended; below 0 where it has not
    been asked since.
    """

    left: Try
    sent: Sent | None = None
    lost: int = 0
    job: JobStatus | None = None
    missing: float = -1.0


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Nothing is to be done now; ``why`` in Slurm's words, for who waits."""

    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Bury:
    """A job is gone and left no full account: write its state down (``note_gone``), then decide again.

    ``cancel``: the job hangs in the queue and never runs: it is to be cancelled first.
    """

    attempt: int
    state: str
    reason: str = ""
    node: str = ""
    cancel: bool = False


@dataclass(frozen=True, kw_only=True)
class Submit:
    """An attempt at these cells, in this order, is to be submitted.

    ``again``: it stands on the shared folder already, and no sbatch had it: only the submission is missing.
    ``retry``: it counts against :data:`RETRIES`; ``why``: what the last one came to. ``avoid``: nodes that
    had trouble of their own (sbatch's ``--exclude``); ``unfit``: those of them that are of no use at all.
    """

    attempt: int
    indices: tuple[int, ...]
    again: bool = False
    retry: bool = False
    why: str = ""
    avoid: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Over:
    """Nothing of the task is to be run any more.

    ``left``: cells that have neither record nor fault: they were not run, because ``why`` (sbatch's own
    words as it refused them; or empty: a client was told to end).
    """

    left: tuple[int, ...] = ()
    why: str = ""


Step = Wait | Bury | Submit | Over


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What is to be done next with a task, and the cells of it that the client has to record itself.

    ``faults`` are there at every step; a cell that was recorded, by the probe or so, is not recorded again.
    """

    step: Step
    faults: tuple[Fault, ...] = ()


def decide(
    task: Sequence[Asked], attempts: Sequence[Attempt], *, stopping: bool = False,
    settle: float = SETTLE_SECONDS, silent: float = SILENT_SECONDS,
) -> Fate:  # fmt: skip
    """Return what becomes of a task; ``attempts``: all that were made at it, the first one first.

    ``stopping``: a client cancels the array, so nothing is submitted any more. Not to be asked while Slurm
    does not answer: what it does not say is not "gone".
    """
    had = {left.indices[n] for left in (one.left for one in attempts) for n in left.records}
    ends = [end_of(task, one.left, had) for one in attempts if _has_ended(one.left)]
    faults = [end.culprit for end in ends if end.culprit is not None]
    settled = had | {fault.index for fault in faults}
    open_ = tuple(index for index in range(len(task)) if index not in settled)
    if not attempts:
        step: Step = Over(left=open_) if stopping else Submit(attempt=FIRST, indices=open_)
        return Fate(step=step)
    last = attempts[-1]
    if not _has_ended(last.left):
        step = _watch(last, open_, ends, stopping, settle, silent)
        return Fate(step=step, faults=tuple(faults))
    if not open_ or stopping:
        return Fate(step=Over(left=open_), faults=tuple(faults))
    if _may_go_on(ends[-1], attempts):
        return Fate(step=_further(attempts, ends, open_), faults=tuple(faults))
    given = [_give_up(index, ends[-1], len(attempts), last.left.attempt) for index in open_]
    return Fate(step=Over(), faults=(*faults, *given))


def _has_ended(left: Try) -> bool:
    """Whether all is known of how an attempt ended: it said so, or somebody looked at Slurm.

    A script cannot tell who ended its job (a person, a preemption, a node that goes down): Slurm can.
    """
    return bool(left.gone) or (left.published and left.trouble != Trouble.CANCELLED)


def _may_go_on(end: End, attempts: Sequence[Attempt]) -> bool:
    match end.kind:
        case Kind.WENT_ON:
            return True
        case Kind.TROUBLE:
            return sum(one.left.retry for one in attempts) < RETRIES
        case Kind.CANCELLED:
            return False


def _further(attempts: Sequence[Attempt], ends: Sequence[End], open_: tuple[int, ...]) -> Submit:
    """Return the next attempt: what was running when one was cut short comes last, as it may be why."""
    cut = {index for end in ends for index in end.cut}
    return Submit(
        attempt=attempts[-1].left.attempt + 1, indices=tuple(sorted(open_, key=lambda i: (i in cut, i))),
        retry=ends[-1].kind is Kind.TROUBLE, why=ends[-1].why, avoid=_nodes(ends),
        unfit=_unfit(ends),
    )  # fmt: skip


def _nodes(ends: Sequence[End]) -> tuple[str, ...]:
    return tuple(sorted({end.avoid for end in ends if end.avoid}))


def _unfit(ends: Sequence[End]) -> tuple[str, ...]:
    return _nodes([end for end in ends if end.unfit])


def _give_up(index: int, end: End, attempts: int, attempt: int) -> Fault:
    again = f" (after {attempts} attempts)" if end.kind is Kind.TROUBLE else ""
    return Fault(index=index, attempt=attempt, cause=end.cause, detail=f"{end.why}{again}")


def _watch(
    last: Attempt, open_: tuple[int, ...], ends: Sequence[End], stopping: bool, settle: float,
    silent: float,
) -> Step:  # fmt: skip
    """Return what to do about an attempt that has not ended, as far as is known."""
    left, sent = last.left, last.sent
    ran = bool(left.job or left.started or left.records or left.published)
    if sent is None and not ran:
        return _unsent(last, open_, ends, stopping)
    if sent is not None and sent.refused:
        return Over(left=open_, why=sent.refused)
    if sent is not None and sent.is_open and not ran:
        return Wait(why="sbatch has not answered")
    return _listed(last, open_, 0.0 if stopping else settle, silent)


def _unsent(last: Attempt, open_: tuple[int, ...], ends: Sequence[End], stopping: bool) -> Step:
    left = last.left
    if stopping or not open_:
        return Over(left=open_)
    if last.lost > RETRIES:
        return Over(left=open_, why=f"sbatch was called {last.lost} times, and Slurm has no such job")
    return Submit(
        attempt=left.attempt, indices=left.indices, again=True, retry=left.retry, why=left.why,
        avoid=_nodes(ends), unfit=_unfit(ends),
    )  # fmt: skip


def _listed(last: Attempt, open_: tuple[int, ...], settle: float, silent: float) -> Step:
    """Return what to do about an attempt that was submitted, by what Slurm says of its job."""
    attempt, job = last.left.attempt, last.job
    if job is not None and job.phase is not Phase.GONE:
        if job.state in HELD or is_stuck(job.reason):
            state = "CANCELLED" if job.reason.strip("()") == NEVER else "LAUNCH_FAILED"
            return Bury(attempt=attempt, state=state, reason=job.reason, node=job.node, cancel=True)
        return Wait(why=job.reason or job.state)
    if not open_ and not last.left.published:
        return Over()
    if last.missing < settle:
        return Wait(why="the job has ended")
    listed = job is not None and job.state not in {"", UNLISTED}
    if not listed and last.left.job and not last.left.published and last.left.seconds < silent:
        return Wait(why="Slurm does not list the job, and its script gives signs of life")
    if job is None:
        return Bury(attempt=attempt, state=UNLISTED, node=last.left.node)
    return Bury(attempt=attempt, state=job.state or UNLISTED, reason=job.reason, node=job.node)


def is_stuck(reason: str) -> bool:
    """Whether a job that waits for this reason will never run without a hand of somebody's."""
    return any(_letters(reason).startswith(_letters(stuck)) for stuck in STUCK)


def _letters(reason: str) -> str:
    """Return a reason's letters alone: ``(Launch_Failed requeued)`` is ``launchfailedrequeued``."""
    return "".join(filter(str.isalpha, reason)).lower()
