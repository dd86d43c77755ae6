"""What Slurm says of our jobs: asked seldom, waited for where it does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trtmatrix.core.slurm.gather import Sightings
from trtmatrix.core.slurm.jobs import JobStatus
from trtmatrix.effects.slurm import Slurm, SlurmAway
from trtmatrix.slurm_pace import Pace


@dataclass(kw_only=True)
class Queue:
    """The last answer of squeue. ``away``: why there is none now; ``answered``: when there was one.

    Times are of the monotonic clock, in seconds.
    """

    slurm: Slurm
    pace: Pace
    note: Callable[[str], None]
    jobs: tuple[JobStatus, ...] = ()
    seen: Sightings = field(default_factory=Sightings)
    answered: float = 0.0
    away: str = "it was not asked yet"
    _told: bool = False
    _due: float = 0.0
    _wait: float = 0.0

    def ask(self) -> None:
        """Ask where it is time to; that Slurm does not answer is told once, and never taken for an answer."""
        begun = time.monotonic()
        if begun < self._due:
            return
        try:
            jobs = tuple(self.slurm.jobs())
        except SlurmAway as error:
            if not self._told:
                self.note(f"Slurm does not answer; it is waited for: {error}")
            self.away, self._told = str(error), True
        else:
            if self._told:
                self.note("Slurm answers again")
            if jobs != self.jobs:
                self.hurry()
            self.away, self._told, self.jobs, self.answered = "", False, jobs, begun
            self.seen.look(jobs, begun)
        self._wait = self.pace.slower(self._wait)
        self._due = time.monotonic() + self._wait

    def hurry(self) -> None:
        """Ask soon: something happens."""
        self._wait = 0.0
        self._due = min(self._due, time.monotonic() + self.pace.squeue)
