"""One cluster for all tests; after each of them it has no job and no container of that test any more."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, start_cluster
from tests.slurm.image import make_standin
from tests.slurm.project import ONE, Client, Project
from tests.slurm.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", autouse=True)
def _image() -> None:
    """Build the images where they are not there; their errors are shown."""
    subprocess.run([str(ROOT / "docker" / "test" / "build")], check=True)
    make_standin()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Start the cluster; a job that is over is forgotten soon, as on a busy one. Nothing is left of it."""
    with start_cluster(epilog=ROOT / "docker" / "slurm" / "epilog", remembered=10) as started:
        yield started
        started.stop()
        assert started.containers() == []
    assert started.left() == []


@pytest.fixture(scope="session")
def halted(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[tuple[Project, Client]]:
    """Start, beside all other tests, a cell that nothing but Slurm's time limit ends: it takes a while."""
    project = Project(tmp_path_factory.mktemp("halted"), cluster)
    project.write_site(minutes=2, running=1)
    client = project.start(*ONE, "--gpu", "H200", "--case", "halts", "--no-confirm")
    wait_until(lambda: bool(project.arrays()), 60, "an array", lambda: client.told)
    yield project, client
    project.end()
    wait_until(lambda: project.queue() == [], 60, "an empty queue", cluster.explain)
    wait_until(lambda: project.containers() == [], 60, "no container", lambda: str(project.containers()))


@pytest.fixture
def project(tmp_path: Path, halted: tuple[Project, Client]) -> Iterator[Project]:
    """Return a project; whatever the test did, all that it started is over when it ends."""
    made = Project(tmp_path, halted[0].cluster)
    yield made
    made.end()
    wait_until(lambda: made.queue() == [], 20, "an empty queue", made.cluster.explain)
    wait_until(lambda: made.containers() == [], 20, "no container", lambda: str(made.containers()))
