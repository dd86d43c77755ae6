"""A run on two types of GPU: placed by type, every end told as on one host, all in one table; then served."""

import re
import shutil
import subprocess

import pytest

from tests.calling import Done
from tests.slurm.cluster import Cluster
from tests.slurm.gpus import H200, L4, NODES, Model
from tests.slurm.image import VERSION
from tests.slurm.project import Project

WAYS = ("passes", "is-wrong", "faults", "after-faults", "hangs", "after-hangs")
BOTH = pytest.mark.parametrize("model", [L4, H200], ids=lambda model: model.gres)
SELECTION = ("--trt", VERSION, "--case", ",".join(WAYS))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Project:
    return Project(tmp_path_factory.mktemp("run") / "project", cluster)


@pytest.fixture(scope="module")
def done(project: Project) -> Done:
    done = project.run(*SELECTION)
    assert done.code == 0, done.told  # crashes and hangs are data, and no surprise
    return done


@BOTH
@pytest.mark.parametrize(("case", "verdict", "cause"), [
    ("passes", "PASS", None), ("is-wrong", "FAIL", None), ("faults", "NO VERDICT", "crashed"),
    ("hangs", "NO VERDICT", "time-out"), ("after-faults", "PASS", None), ("after-hangs", "PASS", None),
])  # fmt: skip
def test_a_cell_ends_as_here(done: Done, model: Model, case: str, verdict: str, cause: str | None) -> None:
    cell = done.cells[case, model.slug]
    assert (cell["verdict"], cell["cause"], cell["executed"]) == (verdict, cause, True), cell["reason"]


@BOTH
@pytest.mark.usefixtures("done")
def test_a_cell_runs_on_a_node_with_its_one_device(project: Project, cluster: Cluster, model: Model) -> None:
    nodes = [node for node in NODES if node.model is model]
    first = project.first("passes", model)
    assert first["gpu"]["name"] == model.name
    assert first["gpu"]["driver"] in {node.driver for node in nodes}
    scalars = first["measurements"]["scalars"]
    assert scalars["devices"] == 1
    assert scalars["device"] in {minor for node in nodes for minor in cluster.minors[node.name]}


@pytest.mark.usefixtures("done")
def test_an_array_a_version_and_gpu_is_one_sbatch_without_sacct(project: Project, cluster: Cluster) -> None:
    assert sorted(cells[0].partition("#")[2] for cells in project.cells()) == [H200.slug, L4.slug]
    lines = [(folder / "commands").read_text().splitlines() for folder in project.submissions()]
    assert [len(each) for each in lines] == [2, 2]
    assert shutil.which("sacct", path=cluster.environment["PATH"]) is None


@pytest.mark.usefixtures("done")
def test_a_crash_is_not_tried_again_but_confirmed_alone_where_others_were_before_it(project: Project) -> None:
    for model in (L4, H200):
        cells = [r for r in project.records() if r["cell"]["gpu"] == model.slug]
        assert [r["cell"]["case"] for r in cells].count("passes") == 1
        first, *again = sorted(
            (r for r in cells if r["cell"]["case"] == "faults"), key=lambda r: "confirms" in r
        )
        assert len(again) == (first["worker"]["position"] > 0)
        assert all("confirms" in record for record in again)


@pytest.mark.usefixtures("done")
def test_different_drivers_of_one_model_are_shown(project: Project) -> None:
    drivers = {node.driver for node in NODES if node.model is L4}
    assert {r["gpu"]["driver"] for r in project.records() if r["cell"]["gpu"] == L4.slug} == drivers
    for words in ((), ("--executor=slurm",)):
        command = project.command("--trt", VERSION, "--gpu", "L4", *words, verb="table")
        environment = project.cluster.environment
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert all(driver in done.stdout for driver in drivers)


@pytest.mark.usefixtures("done")
def test_no_record_names_a_node(project: Project) -> None:
    hosts = {r["gpu"]["host"] for r in project.records()}
    assert len(hosts) == len(NODES)
    assert all(re.fullmatch("[0-9a-f]{16}", host) for host in hosts)
    text = "".join(path.read_text() for path in project.results.rglob("*.json"))
    assert not any(f'"{node.name}"' in text for node in NODES)


@pytest.mark.usefixtures("done")
def test_a_second_run_is_served_and_submits_nothing(project: Project) -> None:
    before = project.submissions()
    again = project.run(*SELECTION)
    assert again.code == 0, again.told
    assert not any(cell["executed"] for cell in again.data["cells"])
    assert project.submissions() == before
    assert project.left() == []
    assert list(project.local.glob("trtmatrix.*/jobs"))  # the nodes' own disks, and not the shared folder
    assert not (project.shared / "cache" / "jobs").exists()
    assert project.open_runs() == []
