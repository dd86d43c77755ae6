"""Cancels the jobs of arrays, and waits until Slurm has none of them any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from trtmatrix.core.errors import MachineryError
from trtmatrix.core.slurm.gather import find_job
from trtmatrix.core.slurm.jobs import JobStatus, Phase, job_name
from trtmatrix.core.slurm.manifest import Sent
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.effects.slurm import Slurm, SlurmAway
from trtmatrix.slurm_pace import Pace

PATIENCE_SECONDS = 45.0
"""So long cancelled jobs have to go: KillWait is 30 s by default, and an epilog comes after it."""
LAST_SECONDS = 10.0
"""So long the scripts of jobs that are gone have to say their last."""


@dataclass(kw_only=True)
class Cancelling:
    """What cancels arrays that are marked as ``stopping``. ``hurry``: set where nobody waits any longer."""

    folder: SharedFolder
    slurm: Slurm
    note: Callable[[str], None]
    pace: Pace
    hurry: threading.Event
    _told: set[str] = field(default_factory=set)
    _cancelled: set[str] = field(default_factory=set)

    def cancel(self, keys: Sequence[str], others: Collection[str] = (), *, doubt: float = 0.0) -> list[str]:
        """Cancel arrays and these other jobs; returns the arrays that surely have no job any more.

        What is known by its id is cancelled before Slurm is asked for anything, and what may yet come of an
        sbatch without an answer by its name: an answer may take long, or never come. For such a one alone it
        is waited so many seconds longer (``doubt``), unless the run is to stop.
        """
        known = {*others, *self._ids(keys)}
        self._scancel(known, [key for key in keys if self._open(key)])
        until, since, gone = time.monotonic() + PATIENCE_SECONDS, 0.0, self._never_sent(keys)
        living = [JobStatus(job=job, task=None, phase=Phase.WAITING) for job in sorted(known)]
        while living or len(gone) < len(keys):
            begun = time.monotonic()
            if (jobs := self._look()) is not None:
                since = since or begun
                living = [job for job in jobs if self._is_meant(job, keys, others)]
                self._scancel({job.job for job in living})
                silent = begun - since >= self.pace.lost
                gone = [key for key in keys if self._is_gone(key, jobs, silent)]
                if not living and len(gone) == len(keys):
                    break
            more = 0.0 if living or self.folder.give_up() else doubt
            if time.monotonic() > until + more or self.hurry.wait(min(self.pace.squeue, 1.0)):
                self._tell_left({job.job for job in living}, [key for key in keys if key not in gone])
                break
        self._hear(gone)
        return gone

    def _ids(self, keys: Iterable[str]) -> set[str]:
        return {sent.job for key in keys for sent in self.folder.submissions(key) if sent.job}

    def _open(self, key: str) -> list[Sent]:
        return [sent for sent in self.folder.submissions(key) if sent.is_open]

    def _never_sent(self, keys: Sequence[str]) -> list[str]:
        """Return the arrays of which Slurm has never heard."""
        return [key for key in keys if not self._ids([key]) and not self._open(key)]

    def _look(self) -> list[JobStatus] | None:
        try:
            return self.slurm.jobs()
        except SlurmAway as error:
            self._tell(f"Slurm does not answer; it is asked again: {error}")
        except MachineryError as error:
            self._tell(str(error))
        return None

    def _is_meant(self, job: JobStatus, keys: Sequence[str], others: Collection[str]) -> bool:
        known = {*others, *self._ids(keys)}
        return (job.job in known or job.name in map(job_name, keys)) and job.phase is not Phase.GONE

    def _is_gone(self, key: str, jobs: Sequence[JobStatus], silent: bool) -> bool:
        """Whether Slurm has no job of an array, and none may come of an sbatch that it has not answered."""
        ids = self._ids([key])
        if any(self._is_meant(job, [key], ()) for job in jobs):
            return False
        return silent or all(find_job(key, sent, jobs, ids) for sent in self._open(key))

    def _scancel(self, jobs: Collection[str], keys: Sequence[str] = ()) -> None:
        """Cancel jobs, each once, and what has the names of these arrays."""
        new = sorted(set(jobs) - self._cancelled)
        if not new and not keys:
            return
        names = [job_name(key) for key in keys]
        try:
            self.slurm.cancel(new)
            self._cancelled |= set(new)
            self.slurm.cancel_named(names)
        except MachineryError as error:  # those that are listed are cancelled again
            self._tell(str(error))
        else:  # only now: a terminal that takes no words keeps nothing from being cancelled
            self._tell(f"cancelling on Slurm: {', '.join([*new, *names])}")

    def _hear(self, keys: Sequence[str]) -> None:
        """Wait until the scripts that ran have said their last: containers are gone then, records there.

        Slurm may call a job ended while its script still removes its container. One that was killed says
        nothing: the epilog removes what it left.
        """
        until = time.monotonic() + LAST_SECONDS
        while time.monotonic() < until:
            tries = [left for key in keys for left in self.folder.tries(key)]
            if all(left.published or left.gone for left in tries if left.job):
                return
            if self.hurry.wait(min(self.pace.squeue, 0.2)):
                return

    def _tell_left(self, jobs: Collection[str], keys: Sequence[str]) -> None:
        by_hand = scancel_words(jobs, [key for key in keys if self._open(key)])
        self.note(
            f"not known to be gone: look with squeue --me, and end it by hand: {by_hand} "
            "(else the next run does that)"
        )

    def _tell(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self.note(words)


def scancel_words(jobs: Iterable[str], keys: Iterable[str] = ()) -> str:
    """Return the command that cancels jobs, and those of arrays whose jobs' ids are not known."""
    by_id = [f"scancel {' '.join(sorted(jobs))}"] if jobs else []
    return "; ".join([*by_id, *(f"scancel --name={job_name(key)}" for key in keys)]) or "nothing is known"
