"""How a real site stands, as doctor tells it, and the plan of a run; neither leaves a job."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.slurm.image import IMAGE, VERSION
from tests.slurm.gpus import A100, H200, L4
from tests.slurm.project import Project


def doctor(project: Project, code: int) -> dict[str, dict[str, Any]]:
    words = project.command("--executor=slurm", "--no-controls", "--json", verb="doctor")
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=project.cluster.environment)
    assert done.returncode == code, done.stdout + done.stderr
    return {finding["what"]: finding for finding in json.loads(done.stdout)["findings"]}


def test_doctor_of_a_site_that_is_well_but_for_one_gpu(project: Project) -> None:
    project.write_site(models=(L4, H200, A100), tasks=5000)
    found = doctor(project, 3)
    assert found["Slurm"]["found"].startswith("2")
    assert "squeue tells in JSON; no accounting" in found["Slurm"]["found"]
    assert found[L4.name]["level"] == found[H200.name]["level"] == "ok"
    assert found[A100.name]["found"].startswith("sbatch would refuse it (gres: gpu:a100:1): ")
    assert "MaxArraySize is 1001" in found["arrays"]["found"]
    assert "removes our containers" in found["epilog"]["found"]
    assert "2 of 2 nodes can take jobs" in found[f"nodes of {L4.name}"]["found"]


def test_memory_that_no_node_has_is_told_as_that(project: Project) -> None:
    site = json.loads((project.folder / "slurm.yaml").read_text())
    site["limits"]["memory"] = "900g"
    (project.folder / "slurm.yaml").write_text(json.dumps(site))
    found = doctor(project, 3)
    assert found[L4.name]["found"].startswith("sbatch would refuse it (limits.memory): ")
    assert "lower limits.memory" in found[L4.name]["remedy"]


def test_a_plan_submits_and_writes_nothing(project: Project) -> None:
    done = project.run("--plan", f"--trt={VERSION}", "--no-controls")
    assert done.code == 0, done.told
    slurm = done.data["slurm"]
    assert [each["gpu"] for each in slurm["arrays"]] == ["nvidia-h200", "nvidia-l4"]
    assert [each["reference"] for each in slurm["imports"]] in ([IMAGE], [])
    assert all(each["text"].startswith("#!/bin/bash\n") for each in slurm["arrays"])
    assert project.arrays() == []
