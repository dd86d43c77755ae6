"""Puts what jobs need on the shared folder: the probe with the repros, and prepared cases."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from trtmatrix.cluster import Cluster
from trtmatrix.effects.paths import probe_folder
from trtmatrix.worklist import Task
from trtmatrix.workshop import Workshop


def stage_suite(cluster: Cluster, shop: Workshop) -> str:
    """Return the key of the probe and the repros, which are on the shared folder then."""
    repros = Path(cluster.repros)
    digests = [shop.probe_digest, *sorted(f"{r.repro.id} {r.repro.digest}" for r in shop.repros.values())]
    digests += sorted({loaded.code.authoring for loaded in shop.repros.values()})
    key = sha256("\n".join(digests).encode()).hexdigest()[:16]
    with cluster.folder.lock():
        cluster.folder.stage_suite(probe_folder(), repros, key)
    return key


def stage_cases(cluster: Cluster, shop: Workshop, tasks: Iterable[Task]) -> bool:
    """Copy the cases of tasks that are not on the shared folder yet; returns whether all are there.

    They are not where the run is to stop meanwhile.
    """
    folders = {shop.cases.folder(shop.repros[task.cell.repro.id], task.cell.case): None for task in tasks}
    for folder in folders:
        if shop.stop.is_set():
            return False
        cluster.folder.stage_case(folder)
    return not shop.stop.is_set()
