"""Ends what runs on Slurm for an interrupted run: cancels what nobody else follows, and waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trtmatrix.cluster import Cluster
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.slurm.jobs import JobStatus, Phase, job_name
from trtmatrix.effects.shared_clients import Client
from trtmatrix.effects.slurm import Slurm, SlurmAway
from trtmatrix.slurm_following import Following
from trtmatrix.slurm_images import SlurmImages

PATIENCE_SECONDS = 120.0
"""So long cancelled jobs have to go: KillWait is 30 s by default, and an epilog comes after it."""
LAST_SECONDS = 10.0
"""So long the scripts of jobs that are gone have to say their last."""


@dataclass(kw_only=True)
class Ending:
    """What ends arrays. ``seconds``: between two looks at squeue."""

    cluster: Cluster
    slurm: Slurm
    client: Client
    images: SlurmImages
    note: Callable[[str], None]
    seconds: float

    def end(self, arrays: Sequence[Following]) -> None:
        """Cancel the arrays that no other living client follows, and return when their jobs are gone."""
        folder = self.cluster.folder
        with folder.lock():
            others = self.client.followed_by_others()
            ours = [one for one in arrays if one.key not in others]
            for one in ours:  # from now on nobody submits anything of them
                folder.stop_array(one.key, "its client was interrupted")
            imports = self._imports(ours)
            self.client.leave([one.key for one in arrays])
        if len(ours) < len(arrays):
            self.note(f"{len(arrays) - len(ours)} arrays go on: another client follows them")
        self._cancel(ours, imports)
        self._hear(ours)
        with folder.lock():
            for one in ours:
                folder.close_array(one.key, "its client was interrupted")

    def _imports(self, ours: Sequence[Following]) -> set[str]:
        """Return the imports that were submitted here and that no other open array waits for."""
        folder, keys = self.cluster.folder, {one.key for one in ours}
        others = [m.key for m in folder.arrays() if m.key not in keys and not folder.stopping(m.key)]
        return set(self.images.submitted.values()) - {s.after for k in others for s in folder.submissions(k)}

    def _cancel(self, ours: Sequence[Following], imports: set[str]) -> None:
        """Cancel jobs, found by their ids and by their names, until Slurm has none of them any more."""
        names = {job_name(one.key) for one in ours}
        ids = imports | {s.job for one in ours for s in self.cluster.folder.submissions(one.key) if s.job}
        until, told = time.monotonic() + PATIENCE_SECONDS, set[str]()
        living: list[JobStatus] | None = None
        while living is None or living:
            if time.monotonic() > until:
                self._tell_left(living, names | ids)
                return
            try:
                living = [j for j in self.slurm.jobs() if _is_ours(j, names, ids)]
                if new := {job.job for job in living} - told:
                    self.note(f"cancelling on Slurm: {', '.join(sorted(new))}")
                    self.slurm.cancel(sorted(new))
                    told |= new
            except SlurmAway as error:
                self.note(f"Slurm does not answer; it is asked again: {error}")
            except MachineryError as error:
                self.note(str(error))
            if living is None or living:
                time.sleep(min(self.seconds, 1.0))

    def _hear(self, ours: Sequence[Following]) -> None:
        """Wait until the scripts that ran have said their last: containers are gone then, records there.

        Slurm may call a job ended while its script still removes its container. One that was killed says
        nothing: the epilog removes what it left.
        """
        until = time.monotonic() + LAST_SECONDS
        while time.monotonic() < until:
            tries = [left for one in ours for left in self.cluster.folder.tries(one.key)]
            if all(left.published for left in tries if left.job):
                return
            time.sleep(min(self.seconds, 0.2))

    def _tell_left(self, living: list[JobStatus] | None, ids: set[str]) -> None:
        jobs = sorted({job.job for job in living}) if living else sorted(ids)
        self.note(
            f"not known to be gone after {PATIENCE_SECONDS:g} s; look with squeue --me, and cancel by hand: "
            f"scancel {' '.join(jobs)}"
        )


def _is_ours(job: JobStatus, names: set[str], ids: set[str]) -> bool:
    return (job.name in names or job.job in ids) and job.phase is not Phase.GONE
