"""Four exported models and what goes wrong with such, from one real release to another in containers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from tests.models import images
from tests.models.conftest import CURRENT, OLDER, RTX, Done, Project
from tests.models.export import EXPORTS, FOUR
from tests.probe.graphs import relu_then

Exported = Callable[[str], Path]
GO, DONT = 0, 11


def upgrade(project: Project, *models: Path, before: str = OLDER, after: str = CURRENT) -> Done:
    words = [f"--models={model}" for model in models]
    page, markdown = project.folder / "report.html", project.folder / "report.md"
    return project.call(
        "upgrade", f"--from={before}", f"--to={after}", *words, f"-o={page}", f"-o={markdown}", "--json"
    )


@pytest.fixture(scope="module")
def moved(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Done]:
    """Ask of all four at once whether to move."""
    project = Project(tmp_path_factory.mktemp("four"))
    return project, upgrade(project, *(exported(name) for name in FOUR))


@pytest.mark.parametrize("name", FOUR)
def test_a_model_that_is_right_at_both_may_go_and_a_third_release_builds_it(
    exported: Exported, moved: tuple[Project, Done], name: str
) -> None:
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


def test_a_release_that_loses_a_scale_is_refused_and_the_other_not_blamed(
    exported: Exported, tmp_path: Path
) -> None:
    """What the defective image computes is what the module without its scale does: the defect is real."""
    project = Project(tmp_path, current=images.DEFECTIVE)
    done = project.run(exported("vit"), "--trt", f"{OLDER},{CURRENT}")
    assert (done.code, done.verdicts()) == (1, {OLDER: "PASS", CURRENT: "FAIL"})
    for version, wrong in ((CURRENT, True), (OLDER, False)):
        outputs = project.record(version)["measurements"]["outputs"].values()
        assert all((y["rel_l2"] > 0.01) if wrong else (y["rel_l2"] < 1e-5) for y in outputs)
    (tmp_path / "lost").mkdir()
    other = Project(tmp_path / "lost")
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
    """Return the outputs of the newer release's record, by the samples' order."""
    kept = project.record(CURRENT)["kept"]
    files = [project.folder / "cache" / "outputs" / f"{kept[name]['sha256']}.npz" for name in sorted(kept)]
    return [np.load(file)["output"] for file in files]


def test_a_model_keeps_its_weights_in_a_file_beside_it(exported: Exported, tmp_path: Path) -> None:
    source, model = exported("cnn"), tmp_path / "model.onnx"
    onnx.save(
        onnx.load(source), model, save_as_external_data=True, location="all.bin", size_threshold=0
    )  # fmt: skip
    assert (tmp_path / "all.bin").stat().st_size > model.stat().st_size
    done = Project(tmp_path).run_with(model, source.parent / "inputs", "--trt", f"{OLDER},{RTX}")
    assert (done.code, done.verdicts()) == (0, {OLDER: "PASS", RTX: "BUILT"}), done.told


@pytest.mark.parametrize(
    ("model", "before", "after", "words"),
    [
        (relu_then(opset=23), CURRENT, OLDER,
         "ONNX Runtime 1.20.1 cannot read opset 23, only up to opset 21"),
        (relu_then("Mine", domain="com.example"), OLDER, CURRENT,
         "ONNX Runtime 1.31.1 cannot run opset 17 with com.example 1: it has no operator Mine (node "
         "/net/second)"),
    ],
    ids=["opset", "custom operator"],
)  # fmt: skip
def test_what_a_release_cannot_take_is_an_answer(
    model: Any, before: str, after: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    project = Project(tmp_path)
    done = upgrade(project, tmp_path / "model.onnx", before=before, after=after)
    assert done.code == DONT, done.told
    (case,) = done.data["models"][0]["cases"]
    assert words in case["after"]["reason"]
    assert project.record(after)["ended"] == "unsupported by this version"
    assert "Traceback" not in done.told
