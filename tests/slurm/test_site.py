"""How a real site stands, as doctor tells it, and the plan of a run; neither leaves a job."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.slurm.gpus import A100, H200, L4
from tests.slurm.image import VERSION
from tests.slurm.project import Project


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
