"""Finds the arrays that have wanted cells under way already, or had since this client began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trtmatrix.cluster import Cluster
from trtmatrix.core.plan import Launch
from trtmatrix.core.slurm.manifest import Manifest
from trtmatrix.slurm_following import Following, Place
from trtmatrix.worklist import Task, Worklist

Wish = tuple[object, ...]


def adopt(
    cluster: Cluster, suite: str, launch: Launch, work: Worklist, wishes: Mapping[Wish, Task]
) -> tuple[list[Following], list[Task]]:
    """Return the arrays that have these wishes, with the tasks of each; and the tasks that none has.

    To be called under the folder's lock. Of an array that was closed since this client began,
    what was recorded is taken: it was not there when the store was read.
    """
    left, followed = dict(wishes), list[Following]()
    for manifest, over in _candidates(cluster, suite, launch):
        recorded = _recorded(cluster, manifest.key) if over else None
        wanted = dict[Place, Task]()
        for number, cells in enumerate(manifest.tasks):
            for index, asked in enumerate(cells):
                usable = recorded is None or (number, index) in recorded
                if usable and (task := left.pop(asked.wish, None)) is not None:
                    wanted[number, index] = work.as_run(task, asked.run)
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


def _recorded(cluster: Cluster, key: str) -> set[Place]:
    return {(left.task, left.indices[n]) for left in cluster.folder.tries(key) for n in left.records}
