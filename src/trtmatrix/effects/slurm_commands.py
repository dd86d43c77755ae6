"""Runs one of Slurm's commands: for a limited time, killed with all that it started."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trtmatrix.core.errors import MachineryError, UsageError

INSTALL = "run on a host where sbatch works (a login node), or install Slurm's client (Debian: slurm-client)"

_DROPPED = ("SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "SCONTROL_")
_DROPPED_WORDS = frozenset({
    "SBATCH_WAIT", "SBATCH_ARRAY_INX", "SBATCH_REQUEUE", "SBATCH_JOB_NAME", "SBATCH_DEPENDENCY",
    "SBATCH_OUTPUT", "SBATCH_ERROR", "SBATCH_INPUT", "SBATCH_OPEN_MODE", "SLURM_TIME_FORMAT",
    "SBATCH_CLUSTERS", "SLURM_CLUSTERS",
})  # fmt: skip
"""What would change what is asked or answered: a user's own formats and filters.

Another cluster's name is dropped for all of them alike: where jobs are sent they are looked for. An account's
and a partition's variables are the site's to set, and stay. Source: the environment sections of
the commands' manuals.
"""


NOT_THERE = frozenset({errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR})
"""Why a command cannot be started that will not be started later either."""


class SlurmAway(MachineryError):
    """Slurm does not answer now; what was asked may be done nevertheless."""


_NAME = re.compile(r"^[a-z]+: (?:error: )?")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """What it says, mostly of a failure, without its name before each line."""
        lines = [_NAME.sub("", line.strip()) for line in (self.err or self.out).splitlines()]
        return "; ".join(line for line in lines if line)[-600:]


Run = Callable[[Sequence[str], float], Answer]
"""Runs a command for at most so many seconds: ``SlurmAway`` beyond, ``UsageError`` if it is not there."""


def run_command(words: Sequence[str], seconds: float) -> Answer:
    """Run a command in a session of its own, which is killed whole however this ends."""
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        if error.errno in NOT_THERE:
            raise UsageError(f"{words[0]} cannot be started: {error.strerror}\n  {INSTALL}") from error
        raise SlurmAway(
            f"{words[0]} cannot be started now: {error.strerror}: is this host out of processes or memory? "
            "ulimit -u, free"
        ) from error
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise SlurmAway(
            f"{words[0]} did not answer within {seconds:.0f} s: is the controller well? scontrol ping"
        ) from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            pass
    return Answer(
        code=process.returncode, out=out.decode("utf-8", "replace"), err=err.decode("utf-8", "replace")
    )


def environment() -> dict[str, str]:
    """Return this process's variables without those that change what Slurm's commands are asked or answer."""
    kept = {
        name: value for name, value in os.environ.items()
        if not name.startswith(_DROPPED) and name not in _DROPPED_WORDS
    }  # fmt: skip
    return {**kept, "SLURM_BITSTR_LEN": "0"}
