"""An ArgMax whose winner the noise may change is no mistake; one that is far from it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from onnxmodels import FLOAT, INT64, make_model, node, saved

from trtmatrix.model.integers import compare_integers
from trtmatrix.model.outcomes import Integers

RNG = np.random.default_rng(0)
X = RNG.standard_normal((32, 64)).astype(np.float32)
W = RNG.standard_normal((64, 10)).astype(np.float32)
W[:, 9] = W[:, 0] * np.float32(1 + 1e-7)
"""Class 9 has class 0's numbers, but for a rounding: a tie."""

Ints = NDArray[np.int64]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    nodes = [
        node("MatMul", "x w", "scores"), node("ArgMax", "scores", "kept", axis=-1, keepdims=1),
        node("Squeeze", "kept last", "class"),
    ]  # fmt: skip
    inputs, outputs = {"x": (FLOAT, [32, 64])}, {"class": (INT64, [32])}
    made = make_model(nodes, inputs, outputs, {"w": W, "last": np.array([-1])}, opset=16)
    return saved(made, tmp_path / "m.onnx")


def compare(model: Path, *engines: Ints) -> Integers:
    """Hold engines' classes against the right ones."""
    feeds, right = [{"x": X}], [{"class": np.argmax(X.astype(np.float64) @ W, -1)}]
    given = {"10.8.0": [[{"class": classes}] for classes in engines]}
    (found,) = compare_integers(model, feeds, "fp32", right, given)
    return found


def test_the_reference_itself_needs_no_noise(model: Path) -> None:
    right = np.argmax(X.astype(np.float64) @ W, -1)
    found = compare(model, right)
    assert (found.count, found.differ, found.beyond) == (32, 0, 0)
    assert found.text == "class is the reference in all 32 elements"


def test_a_tie_may_come_out_otherwise_and_the_worst_engine_counts(model: Path) -> None:
    scores = X.astype(np.float64) @ W
    right = np.argmax(scores, -1)
    tied = np.flatnonzero(np.isin(right, (0, 9)))
    assert tied.size, "the test needs a row that 0 or 9 wins"
    other = right.copy()
    other[tied] = 9 - other[tied]
    found = compare(model, right, other)
    assert (found.differ, found.beyond) == (tied.size, 0)
    assert "all of them ties within the noise" in found.text
    wrong = other.copy()
    wrong[tied[0]] = int(np.argmin(scores[tied[0]]))
    found = compare(model, other, wrong, right)
    assert (found.differ, found.beyond) == (tied.size, 1)
    assert "in 1 of them by more than the noise" in found.text
    outside = right.copy()
    outside[0] = -1
    assert compare(model, outside).beyond == 1, "no class at all"
