"""How often a client looks at Slurm and at the shared folder, and how finely it cuts work."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from trtmatrix.core.errors import UsageError
from trtmatrix.core.slurm.cut import WORTH_SECONDS
from trtmatrix.core.slurm.fate import SETTLE_SECONDS, SILENT_SECONDS
from trtmatrix.core.slurm.gather import LOST_SECONDS

VARIABLE = "TRTMATRIX_SLURM_POLL"
"""Seconds between two looks at squeue; for tests, on a cluster where nobody else waits for it."""

MOST_SECONDS = 30.0
"""squeue is asked no more seldom than this, however little happens: Slurm asks to leave its controller alone
(https://slurm.schedmd.com/squeue.html, "PERFORMANCE")."""

AGAIN_SECONDS = 180.0
"""What a registry or its network lacks for a moment may be there again after so long."""


LATER_SECONDS = 30.0
"""A controller that is full is not to be asked more often than squeue."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds: between looks at the shared folder, at squeue at first and at most, and until silence counts.

    ``settle``: Slurm's of a job, ``silent``: a script's whose job Slurm does not list, ``lost``: that of a
    submission that nobody noted the end of. ``later``: between two tries to submit where Slurm is full.
    ``worth``: as much work is worth a task of its own. ``again``: until an import that failed is tried again.
    """

    folder: float = 1.0
    squeue: float = 5.0
    most: float = MOST_SECONDS
    settle: float = SETTLE_SECONDS
    silent: float = SILENT_SECONDS
    lost: float = LOST_SECONDS
    later: float = LATER_SECONDS
    worth: float = WORTH_SECONDS
    again: float = AGAIN_SECONDS

    def slower(self, now: float) -> float:
        """Return the seconds until squeue is asked again after ``now`` seconds in which nothing changed."""
        return min(self.most, max(self.squeue, now * 1.5))


def read_pace(environment: Mapping[str, str] = os.environ) -> Pace:
    """Return the pace; :class:`UsageError` where the variable is no number of seconds."""
    told = environment.get(VARIABLE, "")
    if not told:
        return Pace()
    try:
        seconds = float(told)
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= MOST_SECONDS:
        raise UsageError(
            f"{VARIABLE}={told}: seconds between two looks at squeue, from 0.05 to {MOST_SECONDS:g}"
        )
    return Pace(
        folder=min(1.0, seconds), squeue=seconds, most=seconds,
        settle=min(SETTLE_SECONDS, 5 * seconds),
        lost=min(LOST_SECONDS, 5 * seconds), later=min(LATER_SECONDS, 5 * seconds),
        worth=min(WORTH_SECONDS, 10 * seconds), again=min(AGAIN_SECONDS, 2 * seconds),
    )  # fmt: skip
