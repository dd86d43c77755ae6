"""``upgrade --model`` from one real release to another, in containers, with exported models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.models import images
from tests.models.conftest import CURRENT, OLDER, Done, Project
from tests.models.export import EXPORTS, FOUR
from tests.probe.graphs import relu_then

Exported = Callable[[str], Path]
GO, DONT = 0, 11


def upgrade(project: Project, model: Path, *words: str, before: str = OLDER, after: str = CURRENT) -> Done:
    inputs = model.parent / "inputs"
    given = [f"--inputs={inputs}"] if inputs.is_dir() else []
    return project.call(
        "upgrade", f"--from={before}", f"--to={after}", f"--model={model}", *given, "--json", *words
    )


@pytest.mark.parametrize("name", FOUR)
def test_a_model_that_is_right_at_both_may_go(exported: Exported, name: str, tmp_path: Path) -> None:
    done = upgrade(Project(tmp_path), exported(name))
    assert done.code == GO, done.told
    told = done.data
    assert told["decision"] == "go"
    (case,) = told["models"][0]["cases"]
    assert (case["before"]["verdict"], case["after"]["verdict"]) == ("PASS", "PASS")
    outputs = set(EXPORTS[name].outputs)
    assert {difference["output"] for difference in told["models"][0]["differences"]} == outputs
    assert {line["samples"] for line in told["models"][0]["samples"]} == {EXPORTS[name].samples}
    assert "latency" in {line["measure"] for line in told["performance"]}


def test_a_release_that_loses_a_scale_is_refused(exported: Exported, tmp_path: Path) -> None:
    project = Project(tmp_path, current=images.DEFECTIVE)
    page, markdown = tmp_path / "report.html", tmp_path / "report.md"
    done = upgrade(project, exported("vit"), f"-o={page}", f"-o={markdown}")
    assert done.code == DONT, done.told
    told = done.data
    assert told["decision"] == "don't"
    (case,) = told["models"][0]["cases"]
    assert (case["change"], case["before"]["verdict"], case["after"]["verdict"]) == (
        "regressed",
        "PASS",
        "FAIL",
    )
    (difference,) = told["models"][0]["differences"]
    assert difference["max_abs"] > 0.01
    for text in (page.read_text(), markdown.read_text()):
        assert "regressed" in text
        assert OLDER in text


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
    done = upgrade(Project(tmp_path), tmp_path / "model.onnx", before=before, after=after)
    assert done.code == DONT, done.told
    (case,) = done.data["models"][0]["cases"]
    assert words in case["after"]["reason"]
    assert "Traceback" not in done.told
