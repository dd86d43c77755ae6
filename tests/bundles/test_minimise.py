"""``minimise`` by the real command line, in real containers, with an image that loses attention's scale."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import numpy as np
import onnx
import pytest

from tests.bundles.conftest import COLUMNS, RIGHT, WRONG
from tests.bundles.deep import write_deep
from tests.models import images
from tests.models.conftest import REPOSITORY, Done, Project


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A project with a cell that fails at one version and is right at the other."""

    project: Project
    cell: str
    model: Path

    def words(self, target: Path, *words: str) -> list[str]:
        """Return the words of a command that minimises the cell."""
        return ["minimise", self.cell, *self.project.files, f"--to={target}", *words]

    def minimise(self, target: Path, *words: str) -> Done:
        """Minimise the cell, printing JSON."""
        return self.project.call_bare(*self.words(target, "--json", *words))


def make_failing(folder: Path) -> Failing:
    images.make_defective()
    project = Project(folder, columns=COLUMNS)
    model = write_deep(folder / "deep")
    ran = project.run(model)
    assert ran.verdicts() == {RIGHT: "PASS", WRONG: "FAIL"}, ran.told
    (cell,) = (cell["id"] for cell in ran.data["cells"] if cell["version"] == WRONG)
    return Failing(project=project, cell=cell, model=model)


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Failing:
    return make_failing(tmp_path_factory.mktemp("minimise"))


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path) -> Iterator[None]:
    """Fail where a container over a test's own folder is left behind."""
    yield
    mounts = [
        mount["Source"]
        for container in docker.from_env().containers.list(all=True, ignore_removed=True)
        for mount in container.attrs["Mounts"]
    ]
    assert not [source for source in mounts if source.startswith(str(tmp_path))]


def report_of(target: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((target / "minimised.json").read_text())
    return report


def check_scale_alone(target: Path) -> None:
    """Check that nothing but the product with the scale is left, of as few numbers as there can be."""
    graph = onnx.load(target / "model.onnx").graph
    assert [node.op_type for node in graph.node] == ["Mul"]
    (scale,) = (onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer)
    assert scale == np.float32(32**-0.5)
    with np.load(target / "inputs.npz") as fed:
        (array,) = (fed[name] for name in fed.files)
        assert array.size == 1


@pytest.mark.parametrize("words", [("--no-polygraphy",), ()])
def test_of_many_layers_the_one_that_is_wrong_is_left(
    failing: Failing, words: tuple[str, ...], tmp_path: Path
) -> None:
    target = tmp_path / "smallest"
    done = failing.minimise(target, f"--good={RIGHT}", *words)
    assert done.code == 0, done.told
    check_scale_alone(target)
    assert done.data == report_of(target)
    assert done.data["before"]["nodes"] == 26
    assert done.data["before"]["samples"] == 2
    assert done.data["after"] == {"nodes": 1, "inputs": 1, "samples": 1, "values": 1, "weights": 1}
    by_polygraphy = [t for t in done.data["trials"] if t["what"].startswith("Polygraphy")]
    assert bool(by_polygraphy) is not bool(words)
    assert any(trial["answer"] == "same" for trial in by_polygraphy) is not bool(words)


def test_the_smallest_is_a_cell_of_its_own_that_can_be_run_and_bundled(
    failing: Failing, tmp_path: Path
) -> None:
    target = tmp_path / "smallest"
    done = failing.minimise(target, "--no-polygraphy")
    smallest = done.data["smallest"]
    assert done.data["commands"][0] == f"python -m trtmatrix bundle make {smallest}"
    archive = tmp_path / "small.tar.gz"
    made = failing.project.call_bare(
        "bundle",
        "make",
        smallest,
        *failing.project.files,
        f"--to={archive}",
        "--yes",
        "--no-changes",
        "--json",
    )
    assert made.code == 0, made.told
    words = done.data["commands"][1].split()[3:]
    ran = failing.project.call(*words, "--json")
    assert ran.verdicts() == {WRONG: "FAIL"}
    assert [cell["id"] for cell in ran.data["cells"]] == [smallest]


def test_trials_share_launches_and_the_nearest_right_version_is_asked_without_its_name(
    tmp_path: Path,
) -> None:
    failing = make_failing(tmp_path)
    done = failing.minimise(tmp_path / "smallest", "--no-polygraphy")
    assert (done.code, done.data["good"]) == (0, RIGHT), done.told
    assert f"NOTE: what is left must be right at {RIGHT}" in done.told
    found = (failing.project.folder / "cache" / "minimise" / "results").rglob("*.json")
    records = [record for record in map(read_json, found) if record["cell"]["version"] == WRONG]
    assert len({record["run"] for record in records}) < len(records) / 2
    none = failing.minimise(tmp_path / "none", "--no-polygraphy", "--steps=1", "--good=none")
    assert (none.data["good"], "NOTE: no other version is asked" in none.told) == ("", True)


def read_json(file: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(file.read_text())
    return data


def test_the_same_search_ends_in_the_same_bytes_and_runs_nothing_twice(
    failing: Failing, tmp_path: Path
) -> None:
    first, again = (failing.minimise(tmp_path / name, "--no-polygraphy", "--steps=6") for name in "ab")
    names = {"commands"}  # they name the folder
    reports = [{k: v for k, v in done.data.items() if k not in names} for done in (first, again)]
    assert reports[0] == reports[1]
    assert (tmp_path / "a" / "model.onnx").read_bytes() == (tmp_path / "b" / "model.onnx").read_bytes()
    assert (tmp_path / "a" / "inputs.npz").read_bytes() == (tmp_path / "b" / "inputs.npz").read_bytes()
    assert "all of its 6 moves are judged" in first.data["ended"]


def test_trials_leave_no_files_but_their_records(failing: Failing, tmp_path: Path) -> None:
    def held() -> set[Path]:
        cache = failing.project.folder / "cache"
        return {path for part in ("models", "cases", "blobs") for path in (cache / part).glob("*")}

    before = held()
    failing.minimise(tmp_path / "one", "--no-polygraphy", "--steps=3")
    new = held() - before
    kept = {path for path in new if path.parent.name == "models"}
    assert len(kept) <= 1  # the result, which is a cell of its own now
    assert len([path for path in new if path.parent.name == "cases"]) <= 1


def test_an_interrupted_search_keeps_the_smallest_so_far(tmp_path: Path) -> None:
    failing = make_failing(tmp_path)
    target = tmp_path / "smallest"
    process = subprocess.Popen(
        [sys.executable, "-m", "trtmatrix", *failing.words(target, "--no-polygraphy")], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stderr is not None
    kept = 0
    for line in process.stderr:
        kept += "— kept (" in line
        if kept == 4:
            process.send_signal(signal.SIGINT)
            break
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "it was interrupted; what is here is the smallest so far" in printed
    report = report_of(target)
    assert sum(trial["answer"] == "same" for trial in report["trials"]) >= 4
    assert report["after"]["nodes"] < report["before"]["nodes"]
    ran = failing.project.run_with(target / "model.onnx", target / "inputs.npz", f"--trt={WRONG}")
    assert ran.verdicts() == {WRONG: "FAIL"}
    assert not list((tmp_path / "cache" / "minimise").glob(".scratch-*"))
    assert not list(tmp_path.glob(".smallest-*"))


def test_a_cell_of_a_shipped_repro_is_minimised_from_its_prepared_case(
    failing: Failing, tmp_path: Path
) -> None:
    project = failing.project
    case = ("--repro=mha-tracker", "--case=alone-fp32", "--no-controls", "--json")
    ran = project.call("run", *case)
    verdicts = {cell["version"]: cell["verdict"] for cell in ran.data["cells"]}
    assert verdicts == {RIGHT: "PASS", WRONG: "FAIL"}, ran.told
    cell = f"mha-tracker/alone-fp32@{WRONG}#cpu"
    target = tmp_path / "tracker"
    done = project.call_bare(
        "minimise", cell, *project.files, f"--to={target}", "--no-polygraphy", "--steps=12", "--json"
    )
    assert done.code == 0, done.told
    assert done.data["after"]["nodes"] < done.data["before"]["nodes"] / 3
    assert done.data["smallest"].endswith(f"@{WRONG}#cpu")


def test_a_model_can_be_named_with_its_inputs(failing: Failing, tmp_path: Path) -> None:
    words = (f"--model={failing.model}", f"--inputs={failing.model.parent / 'inputs'}")
    done = failing.minimise(tmp_path / "named", "--no-polygraphy", "--steps=2", *words)
    assert done.code == 0, done.told
    other = failing.minimise(tmp_path / "other", f"--model={failing.model}", "--profile=x=1x12x128")
    assert other.code == 2
    assert "name the same model, inputs, precision and profile as when it ran" in other.told


def test_a_cell_that_is_right_is_not_minimised_nor_one_whose_graph_has_the_defect(
    failing: Failing, tmp_path: Path
) -> None:
    right = failing.project.call_bare(
        "minimise", failing.cell.replace(WRONG, RIGHT), *failing.project.files, f"--to={tmp_path / 'x'}"
    )
    assert right.code == 2
    assert "it does not fail" in right.told
    failing.project.call("run", "--repro=controls", f"--trt={RIGHT}", "--case=wrong-scale-fp32")
    control = failing.project.call_bare(
        "minimise", f"controls/wrong-scale-fp32@{RIGHT}#cpu", *failing.project.files, f"--to={tmp_path / 'x'}"
    )
    assert control.code == 2, control.told
    assert "was put into its graph, not into the version" in control.told
    assert not (tmp_path / "x").exists()


def test_a_version_that_is_not_right_either_is_told(failing: Failing, tmp_path: Path) -> None:
    same = failing.minimise(tmp_path / "x", f"--good={WRONG}")
    assert (same.code, "name another version of onnxruntime" in same.told) == (2, True)
    unknown = failing.minimise(tmp_path / "x", "--good=onnxruntime-1.31.3")
    assert (unknown.code, "perhaps you meant" in unknown.told) == (2, True)
