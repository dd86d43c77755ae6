"""Four exported models and what goes wrong with such, from one real release to another in containers."""

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnxmodels import saved_outside
from projects import ROOT

import torch
from tests.calling import Done, Project
from tests.models import images
from tests.models.conftest import CURRENT, OLDER, RTX, make_project
from tests.models.export import EXPORTS, FOUR

Exported = Callable[[str], Path]
GO, DONT = 0, 11


def upgrade(project: Project, *models: Path) -> Done:
    words = [f"--models={model}" for model in models]
    page, markdown = project.folder / "report.html", project.folder / "report.md"
    return project.call(
        "upgrade", f"--from={OLDER}", f"--to={CURRENT}", *words, f"-o={page}", f"-o={markdown}", "--json"
    )


@pytest.fixture(scope="module")
def moved(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Done]:
    project = make_project(tmp_path_factory.mktemp("four"))
    return project, upgrade(project, *(exported(name) for name in FOUR))


@pytest.mark.parametrize("name", FOUR)
def test_a_model_may_go_and_rtx_builds_it(exported: Exported, moved: tuple[Project, Done], name: str) -> None:
    (project, told), export = moved, EXPORTS[name]
    assert told.code == GO, told.told
    model = next(model for model in told.data["models"] if model["name"] == name)
    (case,) = model["cases"]
    verdicts = (model["decision"], case["before"]["verdict"], case["after"]["verdict"])
    assert verdicts == ("go", "PASS", "PASS")
    assert {difference["output"] for difference in model["differences"]} == set(export.outputs)
    assert {line["samples"] for line in model["samples"]} == {export.samples}
    wanted = {f"{output}.s{k}" for output in export.outputs for k in range(export.samples)}
    for version in (OLDER, CURRENT):
        record = project.record(f"{version}/{model['repro']}")
        assert set(record["measurements"]["outputs"]) == wanted
        latency = record["engine"]["latency"]
        assert 0 < latency["low_ms"] <= latency["median_ms"] <= latency["high_ms"] < 1000
        assert record["observed"]["library"] == version.removeprefix("onnxruntime-")
    done = project.run(exported(name), "--trt", RTX)
    assert (done.code, done.verdicts()) == (0, {RTX: "BUILT"}), done.told


def test_a_release_that_loses_a_scale_is_refused_and_it_alone(exported: Exported, tmp_path: Path) -> None:
    """What the defective image computes is what the module without its scale does: the defect is real."""
    project = make_project(tmp_path, current=images.DEFECTIVE)
    done = project.run(exported("vit"), "--trt", f"{OLDER},{CURRENT}")
    assert (done.code, done.verdicts()) == (1, {OLDER: "PASS", CURRENT: "FAIL"})
    for version, wrong in ((CURRENT, True), (OLDER, False)):
        outputs = project.record(version)["measurements"]["outputs"].values()
        assert all((y["rel_l2"] > 0.01) if wrong else (y["rel_l2"] < 1e-5) for y in outputs)
    (tmp_path / "lost").mkdir()
    other = make_project(tmp_path / "lost")
    other.run(exported("vit-lost-scale"), "--trt", CURRENT)
    found, right = (_kept(one) for one in (project, other))
    assert len(found) == len(right) == 3
    for y, r in zip(found, right, strict=True):
        np.testing.assert_allclose(y, r, rtol=1e-5, atol=1e-6)

    refused = upgrade(project, exported("vit"))
    assert (refused.code, refused.data["decision"]) == (DONT, "don't"), refused.told
    (model,) = refused.data["models"]
    (case,), (difference,) = model["cases"], model["differences"]
    told = (case["change"], case["before"]["verdict"], case["after"]["verdict"])
    assert told == ("regressed", "PASS", "FAIL")
    assert difference["max_abs"] > 0.01
    for file in ("report.html", "report.md"):
        text = (tmp_path / file).read_text()
        assert "regressed" in text
        assert OLDER in text


def _kept(project: Project) -> list[NDArray[Any]]:
    kept = project.record(CURRENT)["kept"]
    files = [project.folder / "cache" / "outputs" / f"{kept[name]['sha256']}.npz" for name in sorted(kept)]
    return [np.load(file)["output"] for file in files]


def test_a_model_keeps_its_weights_in_a_file_beside_it(exported: Exported, tmp_path: Path) -> None:
    source, model = exported("cnn"), tmp_path / "model.onnx"
    saved_outside(onnx.load(source), model, "all.bin")
    assert (tmp_path / "all.bin").stat().st_size > model.stat().st_size
    done = make_project(tmp_path).run(model, "--trt", f"{OLDER},{RTX}", inputs=source.parent / "inputs")
    assert (done.code, done.verdicts()) == (0, {OLDER: "PASS", RTX: "BUILT"}), done.told


EXAMPLE = ROOT / "docs" / "examples" / "export_torch_module.py"


def test_the_example_for_users_runs_as_it_stands(tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(folder)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert f"--model {folder / 'model.onnx'} --inputs {folder / 'inputs'}" in last
    samples = sorted((folder / "inputs").glob("*.npz"))
    assert len({np.load(sample)["ids"].shape for sample in samples}) > 3, "sizes differ from call to call"
    torch.manual_seed(0)
    module = runpy.run_path(str(EXAMPLE))["Classifier"]().eval()
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    for sample in samples:
        feeds = dict(np.load(sample))
        with torch.no_grad():
            right = module(**{name: torch.from_numpy(array) for name, array in feeds.items()})
        np.testing.assert_allclose(session.run(None, feeds)[0], right.numpy(), rtol=1e-4, atol=1e-5)
