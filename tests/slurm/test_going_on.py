"""What dies in the middle: a client, a node. The work goes on elsewhere, and nothing is run twice."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from pathlib import Path

from tests.slurm.cluster import Cluster
from tests.slurm.gpus import L4
from tests.slurm.project import INTERRUPTED, ONE, Project
from tests.slurm.waiting import wait_until

SLEEPS = tuple(f"sleep-{number}" for number in range(4))


def test_clients_share_one_run_whoever_of_them_is_killed_interrupted_or_comes_back(
    project: Project, cluster: Cluster, tmp_path: Path
) -> None:
    words = (*ONE, "--gpu", "H200", "--case", "sleep-*")
    other, third = (Project(tmp_path / name, cluster) for name in ("other", "third"))
    clients = [each.start(*words) for each in (project, other, third)]
    wait_until(lambda: len(project.containers()) > 0, 60, "a container", lambda: clients[0].told)
    clients[0].kill()
    clients[2].interrupt()
    assert clients[2].wait(30).code == INTERRUPTED
    assert len(project.queue()) > 0  # the others' as well as its own
    clients[0] = project.start(*words, name="2")
    done = [client.wait(90) for client in clients[:2]]
    assert [one.code for one in done] == [0, 0], done[0].told + done[1].told
    assert len(project.arrays()) == 1
    assert project.tries() == ["0.1", "1.1"]
    for each in (project, other):
        assert Counter(record["cell"]["case"] for record in each.records()) == Counter(SLEEPS)
    runs = [{(r["cell"]["case"], r["started"]) for r in each.records()} for each in (project, other)]
    assert runs[0] == runs[1]  # the very same ones


def test_the_cells_of_a_lost_node_run_on_another_and_it_is_used_again_once_it_is_back(
    project: Project, cluster: Cluster
) -> None:
    client = project.start(*ONE, "--gpu", "L4", "--case", "sleep-*")
    try:
        wait_until(lambda: project.running() == 2, 60, "two containers", lambda: client.told)
        cluster.kill_node("l4a")
        done = client.wait(90)
    finally:
        if "l4a" not in cluster.running:
            cluster.start_node("l4a")
    assert done.code == 0, done.told
    assert "NODE_FAIL" in done.told
    assert Counter(record["cell"]["case"] for record in project.records()) == Counter(SLEEPS)
    assert len(project.arrays()) == 1
    assert Counter(name.partition(".")[2] for name in project.tries()) == {"1": 2, "2": 1}
    cluster.wait_for_node("l4a", "idle")
    project.write_site(options=["--nodelist=l4a"])
    again = project.run(*ONE, "--gpu", "L4", "--case", "passes")
    assert again.code == 0, again.told
    assert project.first("passes", L4)["gpu"]["host"] == sha256(b"l4a").hexdigest()[:16]
