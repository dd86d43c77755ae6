"""One real cluster for all tests of Slurm, and a project of its own for each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, lacking, start_cluster
from tests.slurm.image import make_standin
from tests.slurm.project import Project

EPILOG = Path(__file__).resolve().parents[2] / "docker" / "slurm" / "epilog"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    assert not lacking(), lacking()
    make_standin()
    with start_cluster(epilog=EPILOG) as started:
        yield started
        assert started.containers() == []


@pytest.fixture
def project(tmp_path: Path, cluster: Cluster) -> Iterator[Project]:
    made = Project(tmp_path / "project", cluster)
    yield made
    made.end()
