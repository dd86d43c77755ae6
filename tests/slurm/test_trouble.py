"""What the site cannot do, refused or tried at most twice more, in words; how it stands; a plan of a run."""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.slurm.cluster import Cluster
from tests.slurm.gpus import A100, H200, L4, Model
from tests.slurm.image import VERSION
from tests.slurm.project import ONE, Project
from tests.waiting import wait_until

SIX = tuple(f"sleep-{number}" for number in range(6))


def test_an_impossible_type_is_refused_at_submit_in_the_sites_own_words(project: Project) -> None:
    project.write_site(models=(A100, L4))
    done = project.run(*ONE, "--case", "passes", "--gpu", "A100")
    assert done.code == 3, done.told
    assert "Requested node configuration is not available" in done.told
    assert "correct in slurm.yaml gres" in done.told
    assert done.cells["passes", A100.slug]["executed"] is False
    assert (project.records(), project.submissions()) == ([], [])


def test_a_node_that_cannot_begin_is_not_asked_again_but_the_others_are(project: Project) -> None:
    project.write_site(setup=["echo the module is broken >&2", "exit 7"])
    done = project.run(*ONE, "--case", "passes", "--gpu", "L4")
    assert done.code == 3, done.told
    assert len(project.submissions()) == 2
    assert done.cells["passes", L4.slug]["executed"] is False
    assert "try 2 of 3: the module is broken" in done.told
    (log,) = {word.strip("()") for word in done.told.split() if word.endswith("1/0.log)")}
    assert "the module is broken" in Path(log).read_text()  # where it is said to be
    assert "no other node" in done.told


def test_a_usage_error_is_not_tried_again(project: Project) -> None:
    project.write_site(setup=["export TRTMATRIX_REGISTRY=https://no.registry"])
    done = project.run(*ONE, "--case", "passes", "--gpu", "H200")
    assert done.code == 3, done.told
    assert len(project.submissions()) == 1
    assert "exit code 2" in done.told
    assert "TRTMATRIX_REGISTRY" in done.told


def test_a_launch_that_fails_on_one_node_is_made_on_another(project: Project, cluster: Cluster) -> None:
    with cluster.fail_launches("l4a"):
        done = project.run(*ONE, "--case", "passes", "--gpu", "L4")
    assert done.code == 0, done.told
    assert "the task ended on l4a" in done.told
    assert len(project.submissions()) == 2
    assert project.first("passes", L4)["gpu"]["host"] == sha256(b"l4b").hexdigest()[:16]


def test_a_gres_that_is_another_model_leaves_no_record(project: Project) -> None:
    project.write_site(models=(Model(gres=H200.gres, name=L4.name, compute="8.9", memory=23034),))
    done = project.run(*ONE, "--case", "passes", "--gpu", "L4")
    assert done.code == 3, done.told
    assert project.records() == []
    assert "no other node" in done.told
    assert "this host has NVIDIA H200" in project.logs()


def test_a_task_that_is_preempted_goes_on_where_it_was(project: Project, cluster: Cluster) -> None:
    client = project.start(*ONE, "--gpu", "H200", "--case", "sleep-0,sleep-1,long-sleep")
    wait_until(lambda: len(project.records()) == 2, 120, "two records", lambda: client.told)
    cluster.ask("sbatch", "--partition=urgent", "--gres=gpu:h200:2", "--output=/dev/null", "--wrap=sleep 2")
    wait_until(lambda: "PREEMPTED" in client.told, 120, "a preemption", lambda: client.told)
    wait_until(project.running, 120, "the next try", lambda: client.told)
    client.interrupt()
    client.wait(40)
    assert project.cells() == [
        [f"life/{case}@{VERSION}#{H200.slug}" for case in cases]
        for cases in (["long-sleep", "sleep-0", "sleep-1"], ["long-sleep"])
    ]


def test_the_cells_of_a_lost_node_run_on_another(project: Project, cluster: Cluster) -> None:
    client = project.start(*ONE, "--gpu", "L4", "--case", "sleep-*")
    try:
        wait_until(lambda: project.running() == 2, 120, "two containers", lambda: client.told)
        cluster.kill_node("l4a")
        done = client.wait(120)
    finally:
        if "l4a" not in cluster.running:
            cluster.start_node("l4a")
    assert done.code == 0, done.told
    assert "NODE_FAIL" in done.told
    assert Counter(record["cell"]["case"] for record in project.records()) == Counter(SIX)
    cluster.wait_for_node("l4a", "idle")
    wait_until(lambda: not project.running(), 120, "the end of what the node was running")
    for left in project.containers():  # in another namespace than the next job of that node: not known dead
        left.remove(force=True)


def test_a_controller_that_does_not_answer_is_waited_for(project: Project, cluster: Cluster) -> None:
    client = project.start(*ONE, "--gpu", "H200", "--case", "sleep-0,sleep-1")
    wait_until(project.running, 120, "a container", lambda: client.told)
    controller = int((cluster.folder / "slurmctld.pid").read_text())
    os.kill(controller, signal.SIGSTOP)
    try:
        wait_until(lambda: "Slurm does not answer" in client.told, 120, "a word of it", lambda: client.told)
        time.sleep(1)
    finally:
        os.kill(controller, signal.SIGCONT)
    done = client.wait(120)
    assert done.code == 0, done.told
    assert len(project.submissions()) == 1


def doctor(project: Project, code: int) -> dict[str, dict[str, Any]]:
    words = project.command("--executor=slurm", "--json", verb="doctor")
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=project.cluster.environment)
    assert done.returncode == code, done.stdout + done.stderr
    return {finding["what"]: finding for finding in json.loads(done.stdout)["findings"]}


def test_doctor_of_a_site_that_is_well_but_for_one_gpu(project: Project) -> None:
    project.write_site(models=(L4, H200, A100))
    found = doctor(project, 3)
    assert found["Slurm"]["found"].startswith("2")
    assert found[L4.name]["level"] == found[H200.name]["level"] == "ok"
    assert "Requested node configuration is not available" in found[A100.name]["found"]
    assert str(project.shared) in found["shared folder"]["found"]


def test_a_plan_submits_and_writes_no_run(project: Project) -> None:
    done = project.run("--plan", f"--trt={VERSION}", "--no-controls")
    assert done.code == 0, done.told
    arrays = done.data["slurm"]
    assert [array["gpu"] for array in arrays] == [H200.slug, L4.slug]
    assert all(array["command"].startswith("sbatch --parsable") for array in arrays)
    assert project.submissions() == []
