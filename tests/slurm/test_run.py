"""A run on two types of GPU: placed by type, every end told as it was, all in one table; then served."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.image import VERSION
from tests.slurm.nodes import H200, L4, NODES, Model
from tests.slurm.project import Client, Done, Project

WAYS = ("passes", "is-wrong", "faults", "after-faults", "hangs", "after-hangs")
MODELS = (L4, H200)
BOTH = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.gres)
SELECTION = ("--trt", VERSION, "--case", ",".join(WAYS))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, halted: tuple[Project, Client]) -> Project:
    return Project(tmp_path_factory.mktemp("run"), halted[0].cluster)


@pytest.fixture(scope="module")
def done(project: Project) -> Done:
    """Run all ways in which a cell can end, on both models, in two tasks each."""
    return project.run(*SELECTION)


@BOTH
@pytest.mark.parametrize(
    ("case", "verdict", "cause"),
    [
        ("passes", "PASS", None), ("is-wrong", "FAIL", None), ("faults", "NO VERDICT", "crashed"),
        ("hangs", "NO VERDICT", "time-out"), ("after-faults", "PASS", None), ("after-hangs", "PASS", None),
    ],
)  # fmt: skip
def test_a_cell_ends_as_on_one_host(
    done: Done, model: Model, case: str, verdict: str, cause: str | None
) -> None:
    cell = done.cells[case, model.slug]
    assert (cell["verdict"], cell["cause"], cell["executed"]) == (verdict, cause, True), cell["reason"]


def test_crashes_and_hangs_are_data_and_no_surprise(done: Done) -> None:
    assert done.code == 0, done.told


@BOTH
def test_a_cell_runs_on_a_node_with_its_gpu_and_sees_one_device(
    done: Done, project: Project, cluster: Cluster, model: Model
) -> None:
    assert done.code == 0
    nodes = [node for node in NODES if node.model is model]
    minors = {minor for node in nodes for minor in cluster.minors[node.name]}
    first = project.first("passes", model)
    assert first["gpu"]["name"] == model.name
    assert first["gpu"]["driver"] in {node.driver for node in nodes}
    scalars = first["measurements"]["scalars"]
    assert scalars["devices"] == 1
    assert scalars["device"] in minors


def test_each_array_went_to_the_nodes_of_its_type(done: Done, project: Project, cluster: Cluster) -> None:
    assert done.code == 0
    by_type = {node.name: node.model.gres for node in NODES}
    seen, over = set(), cluster.submitted()
    for array in project.arrays():
        gpu = json.loads((array / "manifest.json").read_text())["gpu"]
        types = {by_type[job["NodeList"]] for job in over if job["Name"] == f"trtmatrix-{array.name}"}
        assert types == {model.gres for model in MODELS if model.slug == gpu}
        seen |= types
    assert seen == {"l4", "h200"}


def test_the_image_is_imported_once_for_everybody(done: Done, cluster: Cluster) -> None:
    assert done.code == 0
    assert len([job for job in cluster.submitted() if "-import-" in job["Name"]]) == 1


def test_all_of_it_without_accounting(done: Done, cluster: Cluster) -> None:
    assert done.code == 0
    assert shutil.which("sacct", path=cluster.environment["PATH"]) is None
    assert "sacct" not in done.told  # it is not missed


def test_a_crash_is_not_retried_but_confirmed_alone_where_others_were_before_it(
    done: Done, project: Project
) -> None:
    assert done.code == 0
    assert {name.partition(".")[2] for name in project.tries()} == {"1"}
    for model in MODELS:
        cells = [r for r in project.records() if r["cell"]["gpu"] == model.slug]
        assert [r["cell"]["case"] for r in cells].count("passes") == 1
        (first, *again) = sorted(
            (r for r in cells if r["cell"]["case"] == "faults"), key=lambda r: "confirms" in r
        )
        assert len(again) == (first["worker"]["position"] > 0)
        assert all("confirms" in record for record in again)


def test_different_drivers_of_one_model_are_shown(done: Done, project: Project) -> None:
    assert done.code == 0
    drivers = {r["gpu"]["driver"] for r in project.records() if r["cell"]["gpu"] == L4.slug}
    assert drivers == {node.driver for node in NODES if node.model is L4}  # two tasks, a node each
    table = project.command("--trt", VERSION, "--gpu", "L4", verb="table")
    text = project.call(table)
    assert all(driver in text for driver in drivers)


def test_no_record_names_a_node(done: Done, project: Project) -> None:
    assert done.code == 0
    hosts = {r["gpu"]["host"] for r in project.records()}
    assert len(hosts) == len(NODES)
    assert all(re.fullmatch("[0-9a-f]{16}", host) for host in hosts)
    text = "".join(path.read_text() for path in project.results.rglob("*.json"))
    assert not any(f'"{node.name}"' in text for node in NODES)


def test_a_second_run_is_served_and_submits_nothing(done: Done, project: Project) -> None:
    assert done.code == 0
    before = len(project.arrays())
    again = project.run(*SELECTION)
    assert again.code == 0, again.told
    assert not any(cell["executed"] for cell in again.data["cells"])
    assert len(project.arrays()) == before


def test_all_arrays_are_over_and_nothing_is_left(done: Done, project: Project) -> None:
    assert done.code == 0
    assert project.left() == []
    assert project.arrays()
    assert all((array / "over").exists() for array in project.arrays())
