"""A job as Slurm tells of it, whatever its release; what this tool's jobs are called."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

PREFIX = "trtmatrix-"
"""What the name of each job begins with; a key follows."""


class Phase(str, Enum):
    """How far a job has come, as far as Slurm says."""

    WAITING = "waiting"
    RUNNING = "running"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """One job, or one task of an array. ``task`` is None where it is no array's.

    ``state``: Slurm's own word (``NODE_FAIL``), in capitals without what it is decorated with, empty where
    nothing is known of a job that is no longer listed; ``by``: who cancelled it (name or uid), if accounting
    knows. How a script ended, its own files tell: Slurm's exit code is not looked at.
    """

    job: str
    task: int | None
    phase: Phase
    state: str = ""
    reason: str = ""
    node: str = ""
    name: str = ""
    comment: str = ""
    by: str = ""


def job_name(key: str) -> str:
    """Return the name of a key's jobs."""
    return f"{PREFIX}{key}"


def job_comment(key: str, **facts: str) -> str:
    """Return the comment of a key's jobs: the key and what a person wants to read in squeue."""
    return " ".join([f"trtmatrix={key}", *(f"{name}={value}" for name, value in facts.items())])
