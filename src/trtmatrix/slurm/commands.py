"""Asks Slurm by its own commands: sbatch, squeue, scancel, and sacct where it is there."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trtmatrix.core.errors import MachineryError, UsageError

SECONDS = 60.0
SUBMIT_SECONDS = 180.0
"""sbatch itself tries again for a while where the controller is busy."""

OVER = frozenset({
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
    "OUT_OF_MEMORY", "REVOKED",
})  # fmt: skip
"""States in which a job has ended (https://slurm.schedmd.com/job_state_codes.html). A COMPLETING one has not."""
STUCK = ("launchfailedrequeued", "userenvretrievalfailed", "jobholdmaxrequeue")
"""Reasons, letters alone, for which a job waits until somebody lets it go: nobody will."""
LATER = (
    "unable to contact slurm controller", "socket timed out", "connection", "zero bytes were transmitted",
    "in standby mode", "no route to host", "munge", "protocol authentication error", "socket error",
    "network is unreachable", "job queue full", "temporarily", "unable to create job record", "submitjob",
)  # fmt: skip
"""Parts of what sbatch says, in lower case, where Slurm does not answer or has enough jobs for now.

Source: slurm_errno.c of https://github.com/SchedMD/slurm; reasons: https://slurm.schedmd.com/job_reason_codes.html.
"""
REMEDIES = (
    ("invalid partition", 'partition: sinfo -o "%P %a %l %G" lists them'),
    ("invalid account", "account or qos: sacctmgr show assoc user=$USER format=account,partition,qos"),
    ("invalid qos", "account or qos: sacctmgr show assoc user=$USER format=account,partition,qos"),
    ("accounting/qos policy", "limits: sacctmgr show qos; sacctmgr show assoc"),
    ("time limit", 'limits.minutes: sinfo -o "%P %l" says what partitions allow'),
    ("job array", "limits.tasks: scontrol show config says MaxArraySize and MaxJobCount"),
    ("memory specification", 'limits.memory: sinfo -o "%P %c %m %N" says what the nodes have'),
    ("unrecognized option", "options: man sbatch"),
    ("", 'gres, constraint, partition or limits: sinfo -o "%P %G %f %c %m %N" says what the nodes have'),
)  # fmt: skip
"""What sbatch refuses, in lower case, and what to correct in the site's file."""


DROPPED = (
    "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "SCONTROL_", "SLURM_CLUSTERS", "SBATCH_CLUSTERS",
    "SBATCH_WAIT", "SBATCH_DEPENDENCY",
)  # fmt: skip
"""A user's own variables that change what is asked or answered. An account's or a partition's stay."""


class SlurmAway(MachineryError):
    """Slurm does not answer now, or takes no more jobs now; it may later.

    ``unknown``: whether what was asked may have been done nevertheless.
    """

    def __init__(self, message: str, *, unknown: bool = False) -> None:
        """Keep the words."""
        super().__init__(message)
        self.unknown = unknown


class Refused(MachineryError):
    """sbatch refuses a job; the message has its words and what to correct."""


@dataclass(frozen=True, kw_only=True)
class JobState:
    """What Slurm says of one task of an array: state, node and reason in its own words."""

    state: str
    node: str = ""
    reason: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it has ended and nothing of it runs any more."""
        return self.state in OVER

    @property
    def is_stuck(self) -> bool:
        """Whether it waits and never will run."""
        letters = re.sub("[^a-z]", "", self.reason.lower())
        return self.state == "PENDING" and letters.startswith(STUCK)


def run_command(words: Sequence[str], seconds: float = SECONDS, told: str = "") -> str:
    """Return what a command of Slurm's prints. Its whole session is killed after so many seconds.

    :class:`UsageError` where the command is not here, :class:`SlurmAway` where it does not answer,
    :class:`MachineryError` with its own words where it fails.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)}
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", env=environment, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise UsageError(
            f"{words[0]} cannot be started: {error.strerror}\n  run on a host where sbatch works (a login node)"
        ) from error
    try:
        out, err = process.communicate(told, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise SlurmAway(f"{words[0]} did not answer within {seconds:.0f} s: scontrol ping", unknown=True) from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        lines = [re.sub(r"^[a-z]+: (?:error: )?", "", line) for line in (err or out).strip().splitlines()]
        raise MachineryError("; ".join(lines)[-600:] or f"{words[0]} ended with code {process.returncode}")
    return out


class Slurm:
    """One cluster's controller, asked as this user."""

    def submit(self, words: Sequence[str], script: str) -> str:
        """Submit a script's file and return the job's id; :class:`Refused`, :class:`SlurmAway`."""
        return self._sbatch([*words, script]).strip().split(";")[0]

    def test(self, words: Sequence[str]) -> None:
        """Ask whether a job would be taken; nothing is submitted. Raises as :meth:`submit`."""
        self._sbatch(["--test-only", *words], "#!/bin/bash\n")

    def _sbatch(self, words: Sequence[str], told: str = "") -> str:
        try:
            return run_command(["sbatch", *words], SUBMIT_SECONDS, told)
        except SlurmAway:
            raise
        except UsageError:
            raise
        except MachineryError as error:
            said = str(error).lower()
            if any(words in said for words in LATER):
                raise SlurmAway(str(error)) from error
            remedy = next(remedy for words, remedy in REMEDIES if words in said)
            raise Refused(f"sbatch refused the job: {error}\n  correct in slurm.yaml {remedy}") from error

    def jobs(self, names: Iterable[str]) -> dict[tuple[str, int], JobState]:
        """Return what Slurm still knows of arrays by name: (name, task) → state; also of what is over.

        :class:`SlurmAway` where it does not answer: that is never "no such job".
        """
        wanted = sorted(names)
        if not wanted:
            return {}
        try:
            out = run_command(["squeue", "-h", "-r", "-t", "all", "-n", ",".join(wanted), "-o", "%j|%K|%T|%N|%r"])
        except UsageError:
            raise
        except MachineryError as error:
            raise SlurmAway(f"squeue: {error}") from error
        found = {}
        for line in out.splitlines():
            name, task, state, node, reason = [*line.split("|", 4), "", "", "", ""][:5]
            if task.isdecimal():
                found[name, int(task)] = JobState(state=state, node=node, reason=reason)
        return found

    def accounted(self, job: str) -> dict[int, JobState]:
        """Return what accounting says of an array's tasks, by number; nothing where there is none."""
        if shutil.which("sacct") is None:
            return {}
        try:
            out = run_command(["sacct", "-n", "-X", "-P", "-j", job, "-o", "JobID,State,NodeList"])
        except MachineryError:
            return {}
        found = {}
        for line in out.splitlines():
            name, state, node = [*line.split("|", 2), "", ""][:3]
            task = name.partition("_")[2]
            if task.isdecimal() and state:
                found[int(task)] = JobState(state=state.split()[0], node=node)
        return found

    def cancel(self, names: Iterable[str]) -> None:
        """End all tasks of arrays by name."""
        for name in sorted(names):
            run_command(["scancel", "-n", name])
