"""Runs that are ended: by Ctrl-C, by scancel, by KILL. No job, no container stays; what is done is kept."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.gpus import H200
from tests.slurm.project import INTERRUPTED, ONE, Client, Project
from tests.waiting import wait_until
from trtmatrix.launchers.container import JOB_LABELS

SLEEPS = (*ONE, "--gpu", "H200", "--case", "passes,long-sleep")


def start(project: Project) -> Client:
    """Start a run and wait until its first cell is recorded and its second one runs."""
    client = project.start(*SLEEPS)

    def is_there() -> bool:
        assert client.process.poll() is None, client.told
        return len(project.records()) == 1 and project.running() == 1

    wait_until(is_there, 120, "the second cell", lambda: client.told)
    return client


@pytest.fixture
def _no_epilog(cluster: Cluster) -> Iterator[None]:
    """Switch the epilog off: what is gone then was ended by the task itself."""
    cluster.no_epilog.touch()
    yield
    cluster.no_epilog.unlink()


@pytest.mark.usefixtures("_no_epilog")
def test_an_interrupted_run_leaves_no_job_and_no_container(project: Project) -> None:
    client = start(project)
    client.interrupt()
    done = client.wait(40)
    assert project.left() == []  # already as it comes back
    assert done.code == INTERRUPTED, done.told
    assert [record["cell"]["case"] for record in project.records()] == ["passes"]
    assert project.open_runs() == []


@pytest.mark.usefixtures("_no_epilog")
def test_a_job_that_somebody_cancels_is_not_tried_again(project: Project, cluster: Cluster) -> None:
    client = start(project)
    (job,) = project.queue()
    cluster.ask("scancel", job.split()[0])
    done = client.wait(120)
    assert project.left() == []
    assert done.code == 3, done.told
    assert done.cells["passes", H200.slug]["verdict"] == "PASS"
    assert done.cells["long-sleep", H200.slug]["executed"] is False
    assert "CANCELLED" in done.told
    assert len(project.submissions()) == 1


def test_the_epilog_removes_what_a_killed_task_leaves(project: Project, cluster: Cluster) -> None:
    client = start(project)
    (container,) = project.containers()
    os.kill(cluster.script_of(int(container.attrs["Labels"][JOB_LABELS["SLURM_JOB_ID"]])), signal.SIGKILL)
    wait_until(lambda: container.id not in {c.id for c in project.containers()}, 12, "the epilog")
    wait_until(lambda: project.running() == 1, 120, "another try", lambda: client.told)
    client.interrupt()
    assert client.wait(40).code == INTERRUPTED
    assert [record["cell"]["case"] for record in project.records()] == ["passes"]


def test_a_killed_client_leaves_jobs_that_the_next_one_follows(project: Project) -> None:
    words = (*ONE, "--gpu", "H200", "--case", "sleep-0,sleep-1,sleep-2")
    client = project.start(*words)
    wait_until(project.running, 120, "a container", lambda: client.told)
    client.kill()
    again = project.start(*words, name="2").wait(120)
    assert again.code == 0, again.told
    assert len(project.submissions()) == 1
    assert set(Counter(record["cell"]["case"] for record in project.records()).values()) == {1}


def test_clients_of_one_selection_share_one_run(project: Project, cluster: Cluster, tmp_path: Path) -> None:
    words = (*ONE, "--gpu", "H200", "--case", "sleep-0,sleep-1,sleep-2")
    other = Project(tmp_path / "other", cluster, project.shared)
    clients = [each.start(*words) for each in (project, other)]
    done = [client.wait(120) for client in clients]
    assert [one.code for one in done] == [0, 0], done[0].told + done[1].told
    assert len(project.submissions()) == 1
    runs = [{(r["cell"]["case"], r["run"]) for r in each.records()} for each in (project, other)]
    assert len(runs[0]) == 3
    assert runs[0] == runs[1]  # the very same ones
