"""Ends what runs on Slurm when a run is interrupted: jobs that nobody else follows are cancelled, and waited for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trtmatrix.core.errors import MachineryError
from trtmatrix.core.slurm.jobs import Phase
from trtmatrix.effects.shared_clients import Client
from trtmatrix.slurm_following import Following

if TYPE_CHECKING:
    from trtmatrix.slurm_run import SlurmRun

PATIENCE_SECONDS = 120.0
"""Jobs that are cancelled have so long to go: Slurm's KillWait is 30 s by default, an epilog comes after it."""


def end_arrays(arrays: Sequence[Following], run: SlurmRun, client: Client) -> None:
    """Cancel the arrays that no other living client follows, and return when their jobs are gone."""
    folder, note = run.cluster.folder, run.shop.progress.note
    with folder.lock():
        others = client.followed_by_others()
        ours = [one for one in arrays if one.key not in others]
        for one in ours:
            folder.stop_array(one.key, "the client that ran it was interrupted")
        jobs = _jobs_of(ours, run)
        client.leave([one.key for one in arrays])
    if len(ours) < len(arrays):
        note(f"{len(arrays) - len(ours)} arrays go on: another client follows them")
    if jobs:
        note(f"cancelling {len(jobs)} jobs: {', '.join(jobs)}")
        _cancel(jobs, run)
    with folder.lock():
        for one in ours:
            folder.close_array(one.key, "interrupted")


def _jobs_of(ours: Sequence[Following], run: SlurmRun) -> list[str]:
    """Return the jobs of arrays, the imports that only they wait for too, those in doubt by their names."""
    found = dict[str, None]()
    names = {f"trtmatrix-{one.key}" for one in ours}
    for one in ours:
        found.update({s.job: None for s in run.cluster.folder.submissions(one.key) if s.job})
    try:
        listed = run.slurm.jobs()
    except MachineryError:
        listed = []
    found.update({job.job: None for job in listed if job.name in names})
    own = {s.after for one in ours for s in run.cluster.folder.submissions(one.key)}
    keys = {one.key for one in ours}
    others = {
        s.after for m in run.cluster.folder.arrays() if m.key not in keys
        for s in run.cluster.folder.submissions(m.key)
    }  # fmt: skip
    imports = (own | set(run.images.submitted.values())) - others
    found.update({job: None for job in sorted(imports) if job})
    gone = {job.job for job in listed if job.phase is Phase.GONE} - {
        job.job for job in listed if job.phase is not Phase.GONE
    }
    return [job for job in found if job not in gone]


def _cancel(jobs: Sequence[str], run: SlurmRun) -> None:
    """Cancel jobs and wait until Slurm has none of them any more; says what is left where that takes long."""
    until, living = time.monotonic() + PATIENCE_SECONDS, set(jobs)
    asked = False
    while living and time.monotonic() < until:
        try:
            if not asked:
                run.slurm.cancel(jobs)
                asked = True
            living = {j.job for j in run.slurm.jobs() if j.job in jobs and j.phase is not Phase.GONE}
        except MachineryError as error:
            run.shop.progress.note(f"Slurm does not answer; it is asked again: {error}")
        if living:
            time.sleep(min(1.0, run.pace.squeue))
    if living:
        run.shop.progress.note(
            f"not gone after {PATIENCE_SECONDS:g} s: {', '.join(sorted(living))}; cancel by hand: scancel "
            f"{' '.join(sorted(living))}"
        )
