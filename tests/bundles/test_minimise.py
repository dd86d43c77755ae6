"""``minimise`` by the real command line, in real containers, with an image that loses attention's scale."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from projects import ROOT

from tests.bundles.bisect_images import make_sleeper
from tests.bundles.conftest import RIGHT, WRONG, Failing, columns, count_starts, make_failing
from tests.bundles.deep import write_deep
from tests.calling import Project
from trtmatrix.model.own_model import ModelOptions, model_repro, open_model
from trtmatrix.plan.context import Context, ProjectOptions, open_context
from trtmatrix.run.session import Session
from trtmatrix.suite.model import Cause
from trtmatrix.suite.repro_files import LoadedRepro


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Failing:
    return make_failing(tmp_path_factory.mktemp("minimise"))


def kept_in(cache: Path) -> set[Path]:
    return {path for part in ("models", "cases", "sessions") for path in (cache / part).glob("*")}


def test_the_wrong_one_of_many_layers_is_left_by_one_container_each(failing: Failing, tmp_path: Path) -> None:
    target = tmp_path / "smallest"
    cache = failing.project.folder / "cache"
    before = kept_in(cache)
    with count_starts() as started:
        done = failing.minimise(target, f"--good={RIGHT}")
    assert done.code == 0, done.told
    new = [path.parent.name for path in kept_in(cache) - before]
    assert sorted(new) == ["cases", "models"], "the result, a cell of its own now"
    graph = onnx.load(target / "model.onnx").graph
    assert [node.op_type for node in graph.node] == ["Mul"]
    (scale,) = (onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer)
    assert scale == np.float32(32**-0.5)
    report: dict[str, Any] = json.loads((target / "minimised.json").read_text())
    assert done.data == report
    assert (report["before"]["nodes"], report["after"]["nodes"]) == (26, 1)
    assert len(report["trials"]) >= 7
    assert sorted(started) == [RIGHT, WRONG]
    small = ("--inputs", str(target / "inputs.npz"), "--precision", "tf32", "--json")
    ran = failing.project.call("run", "--model", str(target / "model.onnx"), "--trt", WRONG, *small)
    assert ran.verdicts() == {WRONG: "FAIL"}
    assert [cell["id"] for cell in ran.data["cells"]] == [report["smallest"]]


def test_an_interrupted_search_keeps_the_smallest_so_far(tmp_path: Path) -> None:
    failing = make_failing(tmp_path)
    target = tmp_path / "smallest"
    process = failing.project.start(*failing.words(target))
    assert process.stderr is not None
    kept = 0
    for line in process.stderr:
        kept += "— kept (" in line
        if kept == 3:
            process.send_signal(signal.SIGINT)
            break
    printed, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "it was interrupted; what is here is the smallest so far" in printed
    report = json.loads((target / "minimised.json").read_text())
    assert sum(trial["answer"] == "same" for trial in report["trials"]) >= 3
    assert report["after"]["nodes"] < report["before"]["nodes"]
    assert not list((tmp_path / "cache" / "sessions").glob("*"))
    assert not list(tmp_path.glob(".smallest-*"))


def test_a_cell_of_a_shipped_repro_is_minimised_from_its_case(failing: Failing, tmp_path: Path) -> None:
    project = failing.project
    ran = project.call("run", "--repro=mha-tracker", "--case=alone-fp32", "--no-controls", "--json")
    assert ran.verdicts() == {RIGHT: "PASS", WRONG: "FAIL"}, ran.told
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
    "other": ("with the same inputs, precision and profile as when it ran", ("--profile=x=1x12x128",)),
}


@pytest.mark.parametrize("which", REFUSED)
def test_what_cannot_be_minimised_is_refused_at_once(failing: Failing, which: str, tmp_path: Path) -> None:
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


def opened(folder: Path, image: str) -> tuple[Context, list[LoadedRepro]]:
    project = Project(folder, columns=columns(image))
    model = write_deep(folder / "deep", samples=3)
    context = open_context(
        ProjectOptions(
            matrix=folder / "matrix.yaml", repros=ROOT / "repros", results=project.results,
            cache=folder / "cache",
        )
    )  # fmt: skip
    found = []
    for number in range(3):
        inputs = model.parent / "inputs" / f"{number}.npz"
        mine = open_model(context, ModelOptions(model=model, inputs=inputs, precision="fp32"))
        found.append(model_repro(mine))
    return replace(mine, repros={found[0].repro.id: found[0]}), found


def test_a_trial_that_hangs_ends_at_its_time_limit_and_the_next_one_is_run(tmp_path: Path) -> None:
    context, (first, second, _) = opened(tmp_path, make_sleeper())
    hasty = [
        replace(loaded, repro=replace(loaded.repro, cases=(replace(loaded.repro.cases[0], seconds=1.0),)))
        for loaded in (first, second)
    ]
    with count_starts() as started, Session(context, WRONG, "") as session:
        causes = [entry.outcome.cause for entry in map(session.ask, hasty) if entry.outcome]
    assert causes == [Cause.TIME_OUT] * 2
    assert started == [WRONG]
