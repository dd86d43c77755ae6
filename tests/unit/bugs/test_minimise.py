"""What minimise keeps and refuses: real graphs, Polygraphy's real reducer, and versions that are made up."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from builders import make_cell, make_entry
from onnxmodels import FLOAT, make_model, node, normal

from trtmatrix.bugs.manner import Kind, Manner
from trtmatrix.bugs.minimise import FailingModel, Minimiser, Ran, fold_to_static
from trtmatrix.common.errors import ExitCode, MachineryError

BAD, GOOD = "10.7.0", "10.8.0"
WRONG = Manner(kind=Kind.WRONG, errors=(0.5,), words="wrong by 900 floors")
RIGHT = Ran(manner=None, right=True, said="PASS 1")


def fails(manner: Manner = WRONG, *, some: bool = False) -> Ran:
    return Ran(manner=manner, right=False, said=manner.words, cell=f"model/a@{BAD}#nvidia-l4", some=some)


def chain() -> FailingModel:
    """Relu, Tanh, Exp, Abs, one after another, of 4 rows of 3."""
    steps = [("Relu", "x", "a"), ("Tanh", "a", "b"), ("Exp", "b", "c"), ("Abs", "c", "y")]
    nodes = [node(*step) for step in steps]
    model = make_model(nodes, {"x": (FLOAT, (4, 3))}, {"y": (FLOAT, (4, 3))})
    return FailingModel(model=model, sample={"x": normal(4, 3)})


Answers = Callable[[FailingModel, str], Ran]


class Versions:
    """Answers of versions that are made up; it notes what was run, and with how many engines."""

    def __init__(self, answer: Answers, last: Ran | None = None) -> None:
        self.answer, self.last, self.ran = answer, last, list[tuple[str, int]]()

    def run(self, model: FailingModel, version: str, *, builds: int = 0, lasting: bool = False) -> Ran:
        self.ran.append((version, -1 if lasting else builds))
        return self.last if lasting and self.last else self.answer(model, version)


def has_exp(model: FailingModel, version: str) -> Ran:
    """The bad version computes Exp wrongly."""
    is_there = any(item.op_type == "Exp" for item in model.model.graph.node)
    return fails() if is_there and version == BAD else RIGHT


def minimise(
    target: Path, answer: Answers = has_exp, model: FailingModel | None = None, *, good: str = GOOD,
    manner: Manner = WRONG, steps: int = 200, last: Ran | None = None,
) -> tuple[Any, ExitCode, Versions]:  # fmt: skip
    found: Any = SimpleNamespace(entry=make_entry(make_cell(version=BAD), 1400.0), manner=manner)
    versions: Any = Versions(answer, last)
    search = Minimiser(found, model or chain(), versions, target, steps, 60.0, good)
    code = search.run()
    return search, code, versions


def test_the_node_that_is_wrong_is_left_alone(tmp_path: Path) -> None:
    end, code, versions = minimise(tmp_path / "x")
    graph = onnx.load(tmp_path / "x" / "model.onnx").graph
    assert (code, [item.op_type for item in graph.node]) == (ExitCode.AS_EXPECTED, ["Exp"])
    assert (end.best.size["nodes"], end.best.size["values"]) == (1, 12)
    with np.load(tmp_path / "x" / "inputs.npz") as fed:  # what the whole model has there
        (array,) = (fed[name] for name in fed.files)
    assert np.allclose(array, np.tanh(np.maximum(chain().sample["x"], 0)))
    assert versions.ran[0] == (BAD, 0)
    assert versions.ran[-1] == (BAD, -1)
    assert {builds for version, builds in versions.ran[2:-1]} == {1}
    assert json.loads((tmp_path / "x" / "minimised.json").read_text()) == end.data
    assert end.text().endswith(f"  python -m trtmatrix bundle make model/a@{BAD}#nvidia-l4\n")


def test_what_fails_otherwise_or_at_the_good_version_too_is_not_kept(tmp_path: Path) -> None:
    zeros, whole = Manner(kind=Kind.ZEROS, errors=(1.0,), words="zero all over"), chain()

    def answer(model: FailingModel, version: str) -> Ran:
        nodes = len(model.model.graph.node)
        if version == GOOD:
            return fails() if nodes == 1 else RIGHT
        return fails() if nodes == 1 or model is whole else fails(zeros)

    end, code, _ = minimise(tmp_path / "x", answer, whole)
    assert (code, end.is_smaller) == (ExitCode.SURPRISE, False)
    told = "\n".join(step["said"] for step in end.tried)
    assert "it fails otherwise: zero all over; before: wrong" in told
    assert f"{GOOD} is not right: wrong by 900" in told
    assert end.text().endswith("nothing smaller fails in the same way\n")
    assert not (tmp_path / "x").exists()


def test_any_other_garbage_is_the_same_and_what_is_right_once_is_asked_again(tmp_path: Path) -> None:
    garbage = replace(WRONG, errors=(1.0, 1e23), words="wrong by 1e23")
    nan = Manner(kind=Kind.NOT_FINITE, errors=(float("nan"),), words="NaN")

    def answer(model: FailingModel, version: str) -> Ran:
        found = has_exp(model, version)
        return fails(garbage if len(model.model.graph.node) == 4 else nan) if found.manner else found

    end, code, versions = minimise(tmp_path / "x", answer, manner=garbage, good="")
    assert (code, end.best.size["nodes"]) == (ExitCode.AS_EXPECTED, 1)
    assert {builds for _, builds in versions.ran[1:-1]} == {1, 2}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda *_: RIGHT, "its graph run as a plain model does not fail: PASS 1"),
        (lambda *_: fails(Manner(kind=Kind.ENDED, what="crashed", words="crashed: x")), "it fails otherwise"),
        (lambda *_: fails(), f"--good {GOOD}: it is not right there: wrong by 900"),
    ],
)
def test_what_is_no_start_is_said(answer: Answers, said: str, tmp_path: Path) -> None:
    with pytest.raises(MachineryError, match=said):
        minimise(tmp_path / "x", answer)
    assert not (tmp_path / "x").exists()


def test_a_budget_ends_it(tmp_path: Path) -> None:
    end, _, _ = minimise(tmp_path / "x", steps=2)
    assert (len(end.tried), end.ended) == (2, "its 2 steps or its time are used: more by --steps, --seconds")


def shaped() -> FailingModel:
    """Reshape to what Shape gives, with a dynamic batch."""
    nodes = [node("Shape", "x", "to"), node("Reshape", "x to", "y")]
    model = make_model(nodes, {"x": (FLOAT, ("n", 3))}, {"y": (FLOAT, ("n", 3))})
    return FailingModel(model=model, sample={"x": normal(4, 3)}, profile={"x": ((1, 3), (4, 3), (8, 3))})


def test_a_dynamic_model_is_folded_to_its_sample_s_shapes(tmp_path: Path) -> None:
    folded = fold_to_static(shaped())
    assert ([item.op_type for item in folded.model.graph.node], folded.is_dynamic) == (["Reshape"], False)
    assert folded.profile == {}

    def answer(model: FailingModel, version: str) -> Ran:
        return fails() if version == BAD and model.is_dynamic else RIGHT

    end, code, _ = minimise(tmp_path / "x", answer, shaped())
    assert code is ExitCode.SURPRISE
    assert end.ended.startswith("it fails with dynamic shapes only")
