"""Puts together what is known of a task's attempts: the folder, the submissions, Slurm's lists. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from trtmatrix.core.slurm.fate import Attempt
from trtmatrix.core.slurm.jobs import JobStatus, Phase, job_name
from trtmatrix.core.slurm.manifest import Sent, Try
from trtmatrix.core.slurm.parse import find_task

LOST_SECONDS = 60.0
"""So long after a submission was begun whose client is dead, no sbatch of it can be under way."""

Place = tuple[str, int | None]


class Sightings:
    """What Slurm's lists say of the jobs that are asked for, and since when they have not been in them.

    A list that was begun before a job was first asked for says nothing of it. Times: seconds of any one
    clock.
    """

    def __init__(self) -> None:
        """Know of nothing."""
        self._first: dict[Place, float] = {}
        self._since: dict[Place, float] = {}
        self._said: dict[Place, JobStatus] = {}
        self._last: dict[Place, float] = {}

    def look(self, jobs: Iterable[JobStatus], begun: float) -> None:
        """Take a whole list of jobs (of squeue, and what sacct has beside it), begun at this time."""
        by_job: dict[str, list[JobStatus]] = {}
        for status in jobs:
            by_job.setdefault(status.job, []).append(status)
        for place, first in self._first.items():
            if first > begun:
                continue
            found = find_task(by_job.get(place[0], []), *place)
            self._last[place] = begun
            if found is not None:
                self._said[place] = found
            if found is None or found.phase is Phase.GONE:
                self._since.setdefault(place, begun)
            else:
                self._since.pop(place, None)

    def of(self, job: str, task: int | None, now: float) -> tuple[JobStatus | None, float]:
        """Return what was said last of a job's task, and for how long it has been gone (``Attempt.missing``).

        Of a job that is no longer listed, only how it ended counts of what was said before.
        """
        place = (job, task)
        self._first.setdefault(place, now)
        said, since = self._said.get(place), self._since.get(place)
        if since is None:
            return said, -1.0
        ended = said if said is not None and said.phase is Phase.GONE else None
        return ended, self._last[place] - since


def attempts_of(
    task: int, tries: Iterable[Try], submissions: Sequence[Sent], seen: Sightings, now: float
) -> tuple[Attempt, ...]:
    """Return all that is known of the attempts at a task, the first one first."""
    own = sorted((left for left in tries if left.task == task), key=lambda left: left.attempt)
    return tuple(_attempt(left, submissions, seen, now) for left in own)


def _attempt(left: Try, submissions: Sequence[Sent], seen: Sightings, now: float) -> Attempt:
    of_it = [s for s in submissions if s.attempt == left.attempt and left.task in s.tasks]
    lost = sum(sent.lost for sent in of_it)
    kept = [sent for sent in of_it if not (sent.lost or sent.later)]
    sent = kept[-1] if kept else None
    job = left.job or (sent.job if sent else "")
    status, missing = seen.of(job, left.task, now) if job else (None, -1.0)
    return Attempt(left=left, sent=sent, lost=lost, job=status, missing=missing)


def find_job(key: str, sent: Sent, jobs: Iterable[JobStatus], claimed: Collection[str] = ()) -> str:
    """Return the job that a submission came to, where its client did not live to note it; else nothing.

    By name and comment (``sent=<number>``); by its name alone where a site does not show comments and only
    one job is left that no other submission claims.
    """
    named = [job for job in jobs if job.name == job_name(key) and job.job not in claimed]
    for job in named:
        if {f"trtmatrix={key}", f"sent={sent.number}"} <= set(job.comment.split()):
            return job.job
    mute = {job.job for job in named if not job.comment}
    return mute.pop() if len(mute) == 1 else ""
