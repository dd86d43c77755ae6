"""What the site cannot do: refused at submit, or tried at most twice more; each time in words."""

from __future__ import annotations

from tests.slurm.cluster import Cluster
from tests.slurm.image import VERSION
from tests.slurm.nodes import A100, H200, L4, Model
from tests.slurm.project import ONE, Project
from tests.slurm.test_site import doctor


def test_an_impossible_type_is_refused_at_submit(project: Project) -> None:
    project.write_site(models=(A100, L4))
    done = project.run(*ONE, "--case", "passes", "--gpu", "A100")
    assert done.code == 3, done.told
    assert "Requested node configuration is not available" in done.told
    assert "correct gres" in done.told
    assert done.cells["passes", A100.slug]["executed"] is False
    assert project.records() == []


def test_a_node_that_cannot_begin_is_tried_three_times(project: Project) -> None:
    project.write_site(setup=["echo the module is broken >&2", "exit 7"])
    done = project.run(*ONE, "--case", "passes", "--gpu", "H200")
    assert done.code == 3, done.told
    assert project.tries() == ["0.1", "0.2", "0.3"]
    assert done.cells["passes", H200.slug]["executed"] is False
    assert "the script ended with code 7 while: the lines of setup" in done.told
    assert "after 3 attempts" in done.told


def test_an_image_that_is_nowhere_leaves_the_others_alone(project: Project) -> None:
    project.write_versions(v10_8_0="127.0.0.1:1/trtmatrix/nowhere:10.8.0")
    done = project.run("--no-controls", "--case", "passes", "--gpu", "H200", "--trt", f"{VERSION},10.8.0")
    assert done.code == 3, done.told
    cells = {cell["version"]: cell for cell in done.data["cells"]}
    assert cells[VERSION]["verdict"] == "PASS"
    assert cells["10.8.0"]["executed"] is False
    assert "127.0.0.1:1/trtmatrix/nowhere:10.8.0" in done.told


def test_a_launch_that_fails_on_one_node_is_made_on_another(project: Project, cluster: Cluster) -> None:
    with cluster.fail_launches("l4a"):
        done = project.run(*ONE, "--case", "passes", "--gpu", "L4")
    assert done.code == 0, done.told
    assert "task 0 again: the launch failed on l4a; Slurm: Prolog error" in done.told
    assert project.tries() == ["0.1", "0.2"]


def test_a_gres_that_is_another_model_costs_one_job_and_doctor_tells_of_it(project: Project) -> None:
    wrong = Model(gres=H200.gres, name=L4.name, compute=L4.compute, memory=L4.memory)
    project.write_site(models=(wrong,))
    done = project.run(*ONE, "--case", "passes", "--gpu", "L4")
    assert done.code == 3, done.told
    (array,) = project.arrays()
    assert [path.name for path in array.glob("ran/*")] == ["0.1"]
    assert "no other node has it" in done.told
    (summary,) = done.data["summary"]
    assert "could not be made ready (gpu on h200a: h200a gave 'NVIDIA H200'" in summary["headline"]
    assert "said.0.1." in done.told
    told = doctor(project, 3)[f"model of {L4.name}"]
    assert (told["level"], told["found"]) == ("!!", "gpu:h200:1 is NVIDIA H200 on h200a")
