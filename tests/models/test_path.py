"""Four exported models and what goes wrong with such, run in real containers on the CPU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from tests.models import images
from tests.models.conftest import CURRENT, OLDER, RTX, Project
from tests.models.export import EXPORTS, FOUR
from tests.probe.graphs import relu_then

Exported = Callable[[str], Path]


@pytest.mark.parametrize("name", FOUR)
def test_each_model_is_run_by_two_releases_and_built_by_a_third(
    exported: Exported, name: str, tmp_path: Path
) -> None:
    project = Project(tmp_path)
    done = project.run(exported(name))
    assert done.code == 0, done.told
    assert done.verdicts() == {OLDER: "PASS", CURRENT: "PASS", RTX: "BUILT"}
    export = EXPORTS[name]
    wanted = {f"{output}.s{k}" for output in export.outputs for k in range(export.samples)}
    for version in (OLDER, CURRENT):
        record = project.record(version)
        assert set(record["measurements"]["outputs"]) == wanted
        latency = record["engine"]["latency"]
        assert 0 < latency["low_ms"] <= latency["median_ms"] <= latency["high_ms"] < 1000
        assert record["observed"]["library"] == version.removeprefix("onnxruntime-")
    assert project.record(RTX)["ended"] == "built"


def test_a_release_that_loses_a_scale_is_seen_and_the_other_not_blamed(
    exported: Exported, tmp_path: Path
) -> None:
    project = Project(tmp_path, current=images.DEFECTIVE)
    done = project.run(exported("vit"), "--trt", f"{OLDER},{CURRENT}")
    assert done.code == 1
    assert done.verdicts() == {OLDER: "PASS", CURRENT: "FAIL"}
    for measured in project.record(CURRENT)["measurements"]["outputs"].values():
        assert measured["rel_l2"] > 0.01
    for measured in project.record(OLDER)["measurements"]["outputs"].values():
        assert measured["rel_l2"] < 1e-5


def test_the_defect_is_the_one_that_torch_has_without_the_scale(exported: Exported, tmp_path: Path) -> None:
    """What the defective image computes is what the module without its scale does: the defect is real."""
    for place, name, image in (
        ("a", "vit", images.DEFECTIVE), ("b", "vit-lost-scale", images.CURRENT)
    ):  # fmt: skip
        (tmp_path / place).mkdir()
        Project(tmp_path / place, current=image).run(exported(name), "--trt", CURRENT)
    first, second = (_kept(tmp_path / place) for place in "ab")
    assert len(first) == len(second) == 3
    for y, right in zip(first, second, strict=True):
        np.testing.assert_allclose(y, right, rtol=1e-5, atol=1e-6)


def _kept(folder: Path) -> list[NDArray[Any]]:
    """Return the outputs of a project's one record, by the samples' order."""
    (file,) = (folder / "results").rglob("*.json")
    kept = json.loads(file.read_text())["kept"]
    files = [folder / "cache" / "outputs" / f"{kept[name]['sha256']}.npz" for name in sorted(kept)]
    return [np.load(file)["output"] for file in files]


def test_a_model_keeps_its_weights_in_a_file_beside_it(exported: Exported, tmp_path: Path) -> None:
    source = exported("cnn")
    folder = tmp_path / "outside"
    shutil.copytree(source.parent / "inputs", folder / "inputs")
    onnx.save(
        onnx.load(source), folder / "model.onnx", save_as_external_data=True, location="all.bin",
        size_threshold=0,
    )  # fmt: skip
    assert (folder / "all.bin").stat().st_size > (folder / "model.onnx").stat().st_size
    project = Project(tmp_path)
    done = project.run(folder / "model.onnx")
    assert done.code == 0, done.told
    assert done.verdicts() == {OLDER: "PASS", CURRENT: "PASS", RTX: "BUILT"}


def test_an_opset_beyond_a_release_is_an_answer(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(relu_then(opset=23).SerializeToString())
    project = Project(tmp_path)
    done = project.run(tmp_path / "model.onnx", "--trt", f"{OLDER},{CURRENT}")
    assert done.verdicts()[CURRENT] == "PASS", done.told
    record = project.record(OLDER)
    assert record["ended"] == "unsupported by this version"
    assert record["detail"].endswith("ONNX Runtime 1.20.1 cannot read opset 23, only up to opset 21")
