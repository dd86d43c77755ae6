"""Finds the arrays that have wanted cells under way already, or had since this client began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trtmatrix.cluster import Cluster
from trtmatrix.core.plan import Launch
from trtmatrix.core.slurm.fate import Fate, Over, decide
from trtmatrix.core.slurm.gather import Sightings, attempts_of
from trtmatrix.core.slurm.manifest import Manifest
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.slurm_following import NEVER_RAN, Following, Place
from trtmatrix.worklist import Task, Worklist

Wish = tuple[object, ...]


def adopt(
    cluster: Cluster, suite: str, launch: Launch, work: Worklist, wishes: Mapping[Wish, Task]
) -> tuple[list[Following], list[Task]]:
    """Return the arrays that have these wishes, with the tasks of each; and the tasks that none has.

    To be called under the folder's lock. Of an array that was closed since this client began,
    what was recorded is taken: it was not there when the store was read. What was refused or given up is
    not: whoever types the command again has mended something, and wants it tried.
    """
    left, followed = dict(wishes), list[Following]()
    for manifest, over in _candidates(cluster, suite, launch):
        recorded = _recorded(cluster, manifest.key) if over else None
        hopeless = set() if over else _given_up(cluster.folder, manifest)
        wanted = dict[Place, Task]()
        for number, cells in enumerate(manifest.tasks):
            for index, asked in enumerate(cells):
                place = (number, index)
                usable = place not in hopeless if recorded is None else place in recorded
                if usable and (task := left.pop(asked.wish, None)) is not None:
                    wanted[place] = work.as_run(task, asked.run)
        if wanted:
            followed.append(Following(manifest=manifest, launch=launch, wanted=wanted))
    return followed, list(left.values())


def _candidates(cluster: Cluster, suite: str, launch: Launch) -> Iterator[tuple[Manifest, bool]]:
    """Yield the arrays of a launch's version and GPU that are of use, and whether each is over."""
    image = cluster.key_of(launch.version)
    for manifest, over in reversed(cluster.folder.all_arrays(cluster.past)):
        same = (manifest.gpu, manifest.version, manifest.image, manifest.suite) == (
            launch.gpu.slug, launch.version.name, image, suite,
        )  # fmt: skip
        if same and (over or not cluster.folder.stopping(manifest.key)):
            yield manifest, over


def fates_of(folder: SharedFolder, manifest: Manifest) -> list[Fate]:
    """Return what becomes of each task by the shared folder alone: what only Slurm knows is waited for."""
    sents = folder.submissions(manifest.key)
    tries, unseen = folder.tries(manifest.key), Sightings()
    return [
        decide(cells, attempts_of(task, tries, sents, unseen, 0.0))
        for task, cells in enumerate(manifest.tasks)
    ]


def _given_up(folder: SharedFolder, manifest: Manifest) -> set[Place]:
    """Return the cells that come to nothing, as they were refused or had trouble too often."""
    found = set[Place]()
    for task, fate in enumerate(fates_of(folder, manifest)):
        if isinstance(fate.step, Over):
            never = {fault.index for fault in fate.faults if fault.cause in NEVER_RAN}
            found |= {(task, index) for index in never.union(fate.step.left)}
    return found


def _recorded(cluster: Cluster, key: str) -> set[Place]:
    return {(left.task, left.indices[n]) for left in cluster.folder.tries(key) for n in left.records}
