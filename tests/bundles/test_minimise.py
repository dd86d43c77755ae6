"""``minimise`` by the real command line, in real containers, with an image that loses attention's scale."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.bundles.deep import write_deep
from tests.bundles.started import RIGHT, WRONG, columns, count_starts
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
    project = Project(folder, columns=columns())
    model = write_deep(folder / "deep")
    ran = project.run(model)
    assert ran.verdicts() == {RIGHT: "PASS", WRONG: "FAIL"}, ran.told
    (cell,) = (cell["id"] for cell in ran.data["cells"] if cell["version"] == WRONG)
    return Failing(project=project, cell=cell, model=model)


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Failing:
    return make_failing(tmp_path_factory.mktemp("minimise"))


def test_of_many_layers_the_one_that_is_wrong_is_left_with_one_container_a_version(
    failing: Failing, tmp_path: Path
) -> None:
    target = tmp_path / "smallest"
    cache = failing.project.folder / "cache"
    before = {path for part in ("models", "cases", "sessions") for path in (cache / part).glob("*")}
    with count_starts() as started:
        done = failing.minimise(target, f"--good={RIGHT}")
    assert done.code == 0, done.told
    new = {path for part in ("models", "cases", "sessions") for path in (cache / part).glob("*")} - before
    assert {path.parent.name for path in new} == {"cases", "models"}, "the result, a cell of its own now"
    assert len(new) == 2
    graph = onnx.load(target / "model.onnx").graph
    assert [node.op_type for node in graph.node] == ["Mul"]
    (scale,) = (onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer)
    assert scale == np.float32(32**-0.5)
    report: dict[str, Any] = json.loads((target / "minimised.json").read_text())
    assert done.data == report
    assert (report["before"]["nodes"], report["before"]["samples"]) == (26, 2)
    assert (report["after"]["nodes"], report["after"]["samples"]) == (1, 1)
    assert len(report["trials"]) >= 8
    assert sorted(started) == [RIGHT, WRONG]
    small = ("--inputs", str(target / "inputs.npz"), "--precision", "tf32", "--json")
    ran = failing.project.call("run", "--model", str(target / "model.onnx"), "--trt", WRONG, *small)
    assert ran.verdicts() == {WRONG: "FAIL"}
    assert [cell["id"] for cell in ran.data["cells"]] == [report["smallest"]]


def test_an_interrupted_search_keeps_the_smallest_so_far(tmp_path: Path) -> None:
    failing = make_failing(tmp_path)
    target = tmp_path / "smallest"
    process = subprocess.Popen(
        [sys.executable, "-m", "trtmatrix", *failing.words(target)], text=True,
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
    printed, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "it was interrupted; what is here is the smallest so far" in printed
    report = json.loads((target / "minimised.json").read_text())
    assert sum(trial["answer"] == "same" for trial in report["trials"]) >= 4
    assert report["after"]["nodes"] < report["before"]["nodes"]
    assert not list((tmp_path / "cache" / "sessions").glob("*"))
    assert not list(tmp_path.glob(".smallest-*"))


def test_a_cell_of_a_shipped_repro_is_minimised_from_its_prepared_case(
    failing: Failing, tmp_path: Path
) -> None:
    project = failing.project
    ran = project.call("run", "--repro=mha-tracker", "--case=alone-fp32", "--no-controls", "--json")
    verdicts = {cell["version"]: cell["verdict"] for cell in ran.data["cells"]}
    assert verdicts == {RIGHT: "PASS", WRONG: "FAIL"}, ran.told
    cell = f"mha-tracker/alone-fp32@{WRONG}#cpu"
    done = project.call_bare("minimise", cell, *project.files, f"--to={tmp_path / 'x'}", "--json")
    assert done.code == 0, done.told
    assert done.data["after"]["nodes"] <= 3
    assert done.data["smallest"].endswith(f"@{WRONG}#cpu")


REFUSED = {
    "right": ("it does not fail", ()),
    "control": ("was put into its graph, not into the version", ()),
    "same": ("not listed; known are", (f"--good={WRONG}",)),
    "unknown": ("not listed; known are", ("--good=onnxruntime-1.31.3",)),
    "other": ("name the same model, inputs, precision and profile as when it ran", ("--profile=x=1x12x128",)),
}


@pytest.mark.parametrize("which", REFUSED)
def test_what_cannot_be_minimised_is_refused_before_anything_is_run(
    failing: Failing, which: str, tmp_path: Path
) -> None:
    said, words = REFUSED[which]
    project, cell = failing.project, failing.cell
    if which == "right":
        cell = cell.replace(WRONG, RIGHT)
    if which == "control":
        project.call("run", "--repro=controls", f"--trt={RIGHT}", "--case=wrong-scale-fp32")
        cell = f"controls/wrong-scale-fp32@{RIGHT}#cpu"
    if which == "other":
        words = (*words, f"--model={failing.model}")
    done = project.call_bare("minimise", cell, *project.files, f"--to={tmp_path / 'x'}", *words)
    assert (done.code, said in done.told) == (2, True), done.told
    assert not (tmp_path / "x").exists()
