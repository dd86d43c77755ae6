"""One cluster for all tests; after each of them it has no job, no container and no job's folder any more."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.containers.engines import client
from tests.slurm.cluster import Cluster, start_cluster, wait_until
from tests.slurm.image import make_standin
from tests.slurm.project import Project
from trtmatrix.core.slurm.words import CONTAINER_LABEL

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", autouse=True)
def _image() -> None:
    """Build the images where they are not there; their errors are shown."""
    subprocess.run([str(ROOT / "docker" / "test" / "build")], check=True)
    make_standin()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Start the cluster; a job that is over is forgotten soon, as on a busy one."""
    with start_cluster(epilog=ROOT / "docker" / "slurm" / "epilog", remembered=10) as started:
        yield started
        started.stop()
        assert containers(started) == []


@pytest.fixture
def project(tmp_path: Path, cluster: Cluster) -> Iterator[Project]:
    """Return a project; whatever the test did, all that it started is over when it ends."""
    yield Project(tmp_path, cluster)
    wait_until(lambda: cluster.queue() == [], 20, "an empty queue", cluster.explain)
    wait_until(lambda: containers(cluster) == [], 5, "no container", lambda: str(containers(cluster)))


def containers(cluster: Cluster) -> list[Any]:
    """Return the containers, running or not, that jobs of the cluster started."""
    found = client().containers.list(all=True, filters={"label": CONTAINER_LABEL}, sparse=True)
    return [c for c in found if cluster.owns(int(c.attrs["Labels"][CONTAINER_LABEL]))]
