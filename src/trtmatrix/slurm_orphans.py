"""Looks after open arrays that no living client follows: closes those of no use, tells of those that run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trtmatrix.cluster import Cluster
from trtmatrix.core.counting import counted
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.model import CellId
from trtmatrix.core.plan import Launch
from trtmatrix.core.slurm.fate import Over
from trtmatrix.core.slurm.jobs import JobStatus, Phase, job_name
from trtmatrix.core.slurm.manifest import Manifest
from trtmatrix.digests import cell_digests
from trtmatrix.effects.shared_clients import living_clients
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.effects.slurm import Slurm
from trtmatrix.slurm_adopting import fates_of
from trtmatrix.slurm_cancelling import scancel_words
from trtmatrix.workshop import Workshop

CLEANED_DAYS = 30.0
"""What has been over for so long is removed from the shared folder; what is open for so long, and nobody's,
and has no job, is over."""

Wanted = tuple[str, str, str, str, CellId, tuple[tuple[str, str], ...]]
"""A cell of a manifest: its GPU, version, image, suite, id and digests."""


@dataclass(frozen=True, kw_only=True)
class Orphan:
    """An open array that no living client follows, with its jobs that wait or run."""

    manifest: Manifest
    jobs: tuple[str, ...]

    def tell(self, now: Collection[CellId] = ()) -> str:
        """Return what a person has to know; ``now``: the cells of this run, made of something else by now."""
        version, gpu, cells = self.manifest.version, self.manifest.gpu, self.cells
        changed = " (what it runs has changed since)" if not set(now).isdisjoint(cells) else ""
        return (
            f"no client follows the array {self.manifest.key}: {counted(len(cells), 'cell')} of {version} on "
            f"{gpu}{changed}; the command that began it goes on with it; to end it: {self.end}"
        )

    @property
    def cells(self) -> list[CellId]:
        """All cells of the array."""
        return [asked.cell for task in self.manifest.tasks for asked in task]

    @property
    def end(self) -> str:
        """The command that cancels its jobs; nothing where it has none."""
        return scancel_words(self.jobs) if self.jobs else ""


def orphans(folder: SharedFolder, jobs: Iterable[JobStatus]) -> list[Orphan]:
    """Return the open arrays that no living client follows. To be called under the folder's lock."""
    known = list(jobs)
    return [orphan_of(folder, manifest, known) for manifest in _unfollowed(folder)]


def orphan_of(folder: SharedFolder, manifest: Manifest, jobs: Iterable[JobStatus]) -> Orphan:
    """Return an array that no living client follows, with those of these jobs that are its own and live."""
    sents, name = {sent.job for sent in folder.submissions(manifest.key)}, job_name(manifest.key)
    own = {job.job for job in jobs if job.phase is not Phase.GONE and (job.job in sents or job.name == name)}
    return Orphan(manifest=manifest, jobs=tuple(sorted(own)))


def _unfollowed(folder: SharedFolder) -> list[Manifest]:
    followed = {key for keys in living_clients(folder.root).values() for key in keys}
    return [m for m in folder.arrays() if m.key not in followed and not folder.stopping(m.key)]


def look_after(
    cluster: Cluster, shop: Workshop, slurm: Slurm, launches: Sequence[Launch], suite: str,
    note: Callable[[str], None],
) -> None:  # fmt: skip
    """Close what nobody needs of what no client follows, and tell of jobs that go on for nobody here."""
    folder = cluster.folder
    with folder.lock():
        for manifest in _unfollowed(folder):
            if _is_void(folder, manifest):
                folder.close_array(manifest.key, "nothing came of it, and its client is gone")
        if not _unfollowed(folder):
            return
    try:
        jobs = slurm.jobs()
    except MachineryError:  # that is told of where an answer is needed
        return
    wanted = set(_wanted(cluster, shop, launches, suite))
    now = {cell.id for launch in launches for cell in launch.cells}
    with folder.lock():
        for orphan in orphans(folder, jobs):
            if not wanted.isdisjoint(_cells(orphan.manifest)):
                continue
            if orphan.jobs:
                note(orphan.tell(now))
            elif shop.clock() - _made(orphan.manifest, shop.clock()) > timedelta(days=CLEANED_DAYS):
                folder.close_array(orphan.manifest.key, "nobody came back for it")


def _is_void(folder: SharedFolder, manifest: Manifest) -> bool:
    """Whether an array never came to Slurm, or all of it was refused or given up, without a record."""
    if any(left.records for left in folder.tries(manifest.key)):
        return False
    if not folder.submissions(manifest.key):
        return True
    return all(isinstance(fate.step, Over) for fate in fates_of(folder, manifest))


def _wanted(cluster: Cluster, shop: Workshop, launches: Sequence[Launch], suite: str) -> Iterable[Wanted]:
    for launch in launches:
        place = (launch.gpu.slug, launch.version.name, cluster.key_of(launch.version), suite)
        for cell in launch.cells:
            digests = {**cell_digests(cell, shop.repros[cell.repro.id]), "probe": shop.probe_digest}
            yield (*place, cell.id, tuple(sorted(digests.items())))


def _cells(manifest: Manifest) -> Iterable[Wanted]:
    place = (manifest.gpu, manifest.version, manifest.image, manifest.suite)
    for task in manifest.tasks:
        for asked in task:
            yield (*place, asked.cell, tuple(sorted(asked.digests.items())))


def _made(manifest: Manifest, now: datetime) -> datetime:
    try:
        return datetime.fromisoformat(manifest.made.replace("Z", "+00:00"))
    except ValueError:
        return now
