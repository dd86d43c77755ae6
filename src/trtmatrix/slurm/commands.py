"""Asks Slurm by its own commands: sbatch, squeue and scancel."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.common.processes import run_to_end

SECONDS, SUBMIT_SECONDS = 60.0, 180.0  # sbatch itself tries again for a while

OVER = frozenset({
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
    "OUT_OF_MEMORY", "REVOKED",
})  # fmt: skip
"""States of a job that has ended (https://slurm.schedmd.com/job_state_codes.html); COMPLETING is none."""
STUCK = ("launchfailedrequeued", "userenvretrievalfailed", "jobholdmaxrequeue")
"""Reasons, letters alone, for which a job waits until somebody lets it go: nobody will."""
LATER = (
    "unable to contact slurm controller", "socket timed out", "connection", "zero bytes were transmitted",
    "in standby mode", "no route to host", "munge", "protocol authentication error", "socket error",
    "network is unreachable", "job queue full", "temporarily", "unable to create job record", "submitjob",
)  # fmt: skip
"""Parts of what sbatch says where Slurm does not answer, or has enough jobs for now (slurm_errno.c of
https://github.com/SchedMD/slurm; https://slurm.schedmd.com/job_reason_codes.html)."""
REMEDY = (
    "correct in slurm.yaml gres, constraint, partition, account, qos, options or limits:\n"
    '  sinfo -o "%P %G %f %c %m %l %N" says what there is, sacctmgr show assoc user=$USER what you may use'
)
UNSURE = ("timed out", "zero bytes", "connection reset", "socket error")
"""Parts of what sbatch says where Slurm may have taken the job all the same."""
DROPPED = (
    "SQUEUE_", "SCANCEL_", "SINFO_", "SCONTROL_", "SLURM_CLUSTERS", "SBATCH_CLUSTERS",
    "SBATCH_WAIT", "SBATCH_DEPENDENCY",
)  # fmt: skip
"""A user's own variables that change what is asked or answered. An account's or a partition's stay."""
Task = tuple[str, int]  # a task of an array: the name of its jobs, and its number


class SlurmAway(MachineryError):
    """Slurm does not answer now, or takes no more jobs now; ``unknown``: it may have done what was asked."""

    def __init__(self, message: str, *, unknown: bool = False) -> None:
        super().__init__(message)
        self.unknown = unknown


class JobRefused(MachineryError):
    """sbatch refuses a job; the message has its words and what to correct."""


@dataclass(frozen=True, kw_only=True)
class JobState:
    """What Slurm says of one task of an array: state, node and reason in its own words."""

    state: str
    node: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return self.state.lower() + (f" ({self.reason})" if self.state == "PENDING" else "")

    @property
    def is_over(self) -> bool:
        """Whether it has ended and nothing of it runs any more."""
        return self.state in OVER

    @property
    def is_stuck(self) -> bool:
        """Whether it waits and never will run."""
        letters = re.sub("[^a-z]", "", self.reason.lower())
        return self.state == "PENDING" and letters.startswith(STUCK)


def run_command(words: Sequence[str], seconds: float = SECONDS) -> str:
    """Return what a command of Slurm's prints; it is killed with all that it started after so many seconds.

    :class:`UsageError` where the command is not here, :class:`SlurmAway` where it does not answer,
    :class:`MachineryError` with its own words where it fails.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)}
    code, said = run_to_end(words, environment, seconds)
    if code == 127:
        raise UsageError(f"{said}: run on a login node, where sbatch works")
    if code == 124 or code < 0:
        raise SlurmAway(f"{words[0]} did not answer within {seconds:.0f} s: scontrol ping", unknown=True)
    if code:
        lines = [re.sub(r"^[a-z]+: (?:error: )?", "", line) for line in said.strip().splitlines()]
        raise MachineryError("; ".join(lines)[-600:] or f"{words[0]} ended with code {code}")
    return said


def submit(words: Sequence[str], script: str) -> str:
    """Submit a script's file and return the job's id; :class:`JobRefused`, :class:`SlurmAway`."""
    said = sbatch([*words, script])
    ids = [line.partition(";")[0] for line in said.splitlines() if line[:1].isdecimal()]
    if not ids:  # as a site's own command in its place may do
        raise SlurmAway(f"sbatch told no job's id: {said.strip()[-300:]!r}", unknown=True)
    return ids[-1]


def sbatch(words: Sequence[str]) -> str:
    """Return what sbatch says, which may only be asked to test a job. Raises as :func:`submit`."""
    try:
        return run_command(["sbatch", *words], SUBMIT_SECONDS)
    except SlurmAway:
        raise
    except MachineryError as error:
        said = str(error).lower()
        if any(words in said for words in LATER):
            raise SlurmAway(str(error), unknown=any(words in said for words in UNSURE)) from error
        raise JobRefused(f"sbatch refused the job: {error}\n  {REMEDY}") from error


def jobs(names: Iterable[str]) -> dict[Task, JobState]:
    """Return what Slurm still knows of arrays by name: (name, task) → state; also of what is over.

    :class:`SlurmAway` where it does not answer: that is never "no such job".
    """
    wanted = ",".join(sorted(names))
    if not wanted:
        return {}
    try:
        out = run_command(["squeue", "-h", "-r", "-t", "all", "-n", wanted, "-o", "%j|%K|%T|%N|%r"])
    except MachineryError as error:
        raise SlurmAway(f"squeue: {error}") from error
    found = {}
    for line in out.splitlines():
        name, task, state, node, reason = [*line.split("|", 4), "", "", "", ""][:5]
        if task.isdecimal():
            found[name, int(task)] = JobState(state=state, node=node, reason=reason)
    return found
