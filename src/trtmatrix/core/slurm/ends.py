"""How an attempt at a task ended: who is to blame, and whether what is left is to be tried again. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from trtmatrix.core.gpu_names import slug_of
from trtmatrix.core.model import Cause
from trtmatrix.core.slurm.manifest import Asked, Try
from trtmatrix.core.slurm.words import Trouble

OVERDUE_SECONDS = 30.0
"""A cell that has run for so much longer than its time limit has taken the probe down, as on one host."""

KILLED = frozenset({137, 143})
"""Exit codes of a container that was killed, or told to end, from outside."""

TAIL = 1500
"""Characters of the log that a record's detail gets."""


class Kind(Enum):
    """Whether what an attempt left over is attempted again."""

    WENT_ON = "it came further; the rest is attempted, and that is no retry"
    TROUBLE = "trouble with the site; the rest is retried, but not for ever"
    CANCELLED = "somebody ended it; nothing is retried"


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
class End:
    """How an attempt ended.

    ``culprit``: the cell that ended it, which is data; ``cut``: cells that were running as it was cut short;
    ``cause``: of what is left, should it be given up; ``avoid``: a node that had trouble of its own;
    ``unfit``: which it will always have, as its GPU is another model.
    """

    kind: Kind
    why: str = ""
    culprit: Fault | None = None
    cut: tuple[int, ...] = ()
    cause: Cause = Cause.LAUNCHER_FAILED
    avoid: str = ""
    unfit: bool = False


RETRIED = frozenset({"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "REQUEUED", "REVOKED", "STOPPED", "SUSPENDED"})
"""States of a job that was told to end by the cluster, and not by a person."""

LATE = frozenset({"TIMEOUT", "DEADLINE"})
NEVER = "DependencyNeverSatisfied"


def end_of(task: Sequence[Asked], left: Try, had: Collection[int]) -> End:
    """Return how an attempt ended of which all is known; ``had``: the cells of which a record is there."""
    cut = tuple(index for n in sorted(left.started) if (index := left.indices[n]) not in had)
    if left.published and not left.trouble:
        return _ran(left, cut)
    if left.trouble == Trouble.TIME or left.gone in LATE:
        return _late(task, left, cut)
    if left.published and left.trouble != Trouble.CANCELLED:
        return _troubled(task, left, cut)
    return _gone(left, cut)


def _ran(left: Try, cut: tuple[int, ...]) -> End:
    """Return how an attempt ended whose container ran to its end, as on one host."""
    log = left.log[-TAIL:]
    if left.interrupted:
        kind = Kind.WENT_ON if left.records else Kind.TROUBLE
        return End(kind=kind, why="the probe had no sign of life from its job (was it suspended?)", cut=cut)
    if cut:
        cause = Cause.PROBE_FAILED
        if left.oom:
            cause = Cause.OUT_OF_HOST_MEMORY
        elif left.code in KILLED:
            cause = Cause.INTERRUPTED
        return End(kind=Kind.WENT_ON, culprit=_fault(left, cut[0], cause, f"{_code(left)}: {log}"))
    if left.records:
        return End(kind=Kind.WENT_ON, why=_code(left))
    return End(kind=Kind.TROUBLE, why=f"the probe did not start; {_code(left)}: {log}", avoid=left.node)


def _code(left: Try) -> str:
    return f"the probe ended with code {'unknown' if left.code is None else left.code}"


def _fault(left: Try, index: int, cause: Cause, detail: str) -> Fault:
    return Fault(index=index, attempt=left.attempt, cause=cause, detail=detail)


def _late(task: Sequence[Asked], left: Try, cut: tuple[int, ...]) -> End:
    """Return how an attempt ended at Slurm's time limit: a cell that had had all its own time is to blame."""
    if cut and left.running > task[cut[0]].seconds + OVERDUE_SECONDS:
        detail = f"it was ended: a cell was long over its time limit: {left.log[-TAIL:]}"
        return End(kind=Kind.WENT_ON, culprit=_fault(left, cut[0], Cause.PROBE_FAILED, detail))
    why = (
        "Slurm's time limit came before a single cell was done (limits: minutes in the site's file; or the "
        "partition's MaxTime)"
    )
    if left.records:
        return End(kind=Kind.WENT_ON, why="Slurm's time limit came", cut=cut)
    return End(kind=Kind.TROUBLE, why=why, cut=cut)


def _troubled(task: Sequence[Asked], left: Try, cut: tuple[int, ...]) -> End:
    """Return how an attempt ended whose script could not do its work."""
    cause = Cause.IMAGE_MISSING if left.trouble == Trouble.IMAGE else Cause.LAUNCHER_FAILED
    where = f" on {left.node}" if left.node else ""
    why = f"{left.trouble}{where}: {left.detail or left.log[-TAIL:]}"
    return End(
        kind=Kind.TROUBLE, why=why, cut=cut, cause=cause, avoid=left.node, unfit=_is_other_model(task, left)
    )


def _is_other_model(task: Sequence[Asked], left: Try) -> bool:
    """Whether the node's GPU is none that is wanted: nvidia-smi's answer begins with its name."""
    found = left.gpu.partition(",")[0].strip()
    wanted = {asked.cell.gpu for asked in task}
    return left.trouble == Trouble.GPU and bool(found) and slug_of(found) not in wanted


def _gone(left: Try, cut: tuple[int, ...]) -> End:
    """Return how an attempt ended of which only Slurm could tell."""
    said = f"{left.gone} ({left.gone_why})" if left.gone_why not in {"", "None"} else left.gone
    if left.gone == "CANCELLED" and left.gone_why.strip("()") == NEVER:
        return End(kind=Kind.TROUBLE, why="its image could not be had", cause=Cause.IMAGE_MISSING)
    if left.gone == "CANCELLED" and left.node and not (left.job or left.published):
        # Slurm ends a job so whose prolog or environment fails on its node, where none is requeued; one that
        # a person cancels has no node while it waits, and says that it was told to end while it runs
        why = f"the launch failed on {left.node}; Slurm: {left.gone_why or left.gone}"
        return End(kind=Kind.TROUBLE, why=why, avoid=left.node)
    if left.gone == "CANCELLED" or (left.published and left.gone not in RETRIED):
        return End(kind=Kind.CANCELLED, why=f"the job was cancelled: {said}", cause=Cause.INTERRUPTED)
    if left.gone == "OUT_OF_MEMORY" and cut:
        detail = f"the job ran out of memory (limits: memory in the site's file): {left.log[-TAIL:]}"
        return End(kind=Kind.WENT_ON, culprit=_fault(left, cut[0], Cause.OUT_OF_HOST_MEMORY, detail))
    if left.gone == "PREEMPTED" and left.records:
        return End(kind=Kind.WENT_ON, why=f"the job was ended: {said}", cut=cut)
    where = f" on {left.node}" if left.node else ""
    why = f"the job is gone{where} and told nothing; Slurm: {said}"
    return End(kind=Kind.TROUBLE, why=why, cut=cut, avoid="" if left.gone == "PREEMPTED" else left.node)
