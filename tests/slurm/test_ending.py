"""Runs that are ended: by Ctrl-C, by scancel, by KILL. No job, no container stays; what is done is kept."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.nodes import H200
from tests.slurm.project import INTERRUPTED, ONE, Client, Project
from tests.slurm.waiting import wait_until
from trtmatrix.core.slurm.words import CONTAINER_LABEL

SLEEPS = (*ONE, "--gpu", "H200", "--case", "passes,long-sleep")


def start(project: Project) -> Client:
    """Start a run and wait until its first cell is recorded and its second one runs."""
    project.write_site(running=1)  # one task: the cells in their order
    client = project.start(*SLEEPS)

    def is_there() -> bool:
        assert client.process.poll() is None, client.told
        return len(list(project.results.rglob("*.json"))) == 1 and len(project.containers()) == 1

    wait_until(is_there, 60, "the second cell", lambda: client.told)
    return client


@pytest.fixture
def without_epilog(cluster: Cluster) -> Iterator[None]:
    """Switch the epilog off: what is gone then was ended by the script itself."""
    cluster.no_epilog.touch()
    yield
    cluster.no_epilog.unlink()


@pytest.mark.usefixtures("without_epilog")
def test_an_interrupted_run_leaves_no_job_and_no_container(project: Project) -> None:
    client = start(project)
    client.interrupt()
    done = client.wait(30)
    assert project.left() == []  # already as it comes back
    assert done.code == INTERRUPTED, done.told
    assert [record["cell"]["case"] for record in project.records()] == ["passes"]


@pytest.mark.usefixtures("without_epilog")
def test_a_job_that_somebody_cancels_is_not_tried_again(project: Project, cluster: Cluster) -> None:
    client = start(project)
    (job,) = project.queue()
    cluster.ask("scancel", job.split()[0])
    done = client.wait(60)
    assert project.left() == []
    assert done.code == 3, done.told
    assert (done.cells["passes", H200.slug]["verdict"], done.cells["long-sleep", H200.slug]["cause"]) == (
        "PASS", "interrupted",
    )  # fmt: skip
    assert project.tries() == ["0.1"]


def test_the_epilog_removes_what_a_killed_script_leaves(project: Project, cluster: Cluster) -> None:
    client = start(project)
    (container,) = project.containers()
    os.kill(cluster.script_of(int(container.attrs["Labels"][CONTAINER_LABEL])), signal.SIGKILL)
    wait_until(lambda: container.id not in {c.id for c in project.containers()}, 5, "the epilog")
    # the cells that it had left are tried again: that is no cell's fault
    wait_until(lambda: len(project.containers()) == 1, 30, "a fresh attempt", lambda: client.told)
    client.interrupt()
    done = client.wait(30)
    assert done.code == INTERRUPTED, done.told
    assert [record["cell"]["case"] for record in project.records()] == ["passes"]
