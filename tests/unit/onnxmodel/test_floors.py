"""Graphs rounded between their nodes: as the project's own arithmetic does, with floors of the same size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto
from onnxmodels import FLOAT, Array, make_model, node, normal, saved

from trtmatrix.authoring import attention
from trtmatrix.authoring.arithmetic import ENSEMBLE, FLOAT64, round_fp16, round_tf32
from trtmatrix.authoring.randoms import TorchRandom
from trtmatrix.onnxmodel.computing import Graph, Way, compute

SAME_FLOOR = 1.5
"""A floor of the graph and the project's own emulation of the same mathematics differ by less."""


def rounded(model: ModelProto, path: Path, x: Array, kind: str, **more: Any) -> Array:
    return Graph(saved(model, path), {"x": x.shape}).run({"x": x}, Way(kind=kind, **more))["y"]


def test_only_the_operands_of_products_are_rounded_to_tf32(tmp_path: Path) -> None:
    w, b, x = normal(32, 32, seed=1), normal(32, seed=2), normal(4, 32)
    nodes = [node("Gemm", "x w b", "g"), node("Add", "g b", "y")]
    model = make_model(nodes, {"x": (FLOAT, [4, 32])}, {"y": (FLOAT, [4, 32])}, {"w": w, "b": b})
    found = rounded(model, tmp_path / "m.onnx", x, "tf32")
    assert np.allclose(found, round_tf32(x) @ round_tf32(w) + b + b, rtol=1e-6, atol=1e-6)
    assert not np.allclose(found, x @ w + b + b, rtol=1e-6, atol=1e-6)


def test_every_tensor_is_rounded_to_fp16_and_overflows_as_there(tmp_path: Path) -> None:
    w, x = normal(32, 32, seed=1), normal(4, 32)
    nodes = [node("MatMul", "x w", "m"), node("Exp", "m", "e"), node("Add", "e big", "y")]
    weights = {"w": w, "big": np.float32(65504)}
    model = make_model(nodes, {"x": (FLOAT, [4, 32])}, {"y": (FLOAT, [4, 32])}, weights)
    found = rounded(model, tmp_path / "m.onnx", x, "fp16")
    middle = round_fp16(np.exp(round_fp16(round_fp16(x) @ round_fp16(w))))
    expected = round_fp16(middle + np.float32(65504))
    assert np.isinf(expected).any()
    assert np.mean(found == expected) > 0.99  # a sum in another order may round to the neighbour


def largest(errors: Mapping[str, float], kind: str) -> float:
    return max(error for member, error in errors.items() if member.partition("-")[0] == kind)


@pytest.mark.parametrize("kind", ["tf32", "fp16"])
def test_the_floor_of_attention_is_that_of_the_arithmetic(kind: str, tmp_path: Path) -> None:
    size = attention.Size(batch=1, length=64, heads=4, head_size=16)
    random = TorchRandom(0)
    x = (8 * random.rand(*size.x) - 4).astype(np.float32)
    weights = attention.Weights.draw(random, size.embed)
    model = attention.build(size, weights)

    def by_hand(arithmetic: Any) -> Array:
        return np.asarray(attention.compute(x, size, weights, arithmetic=arithmetic))

    reference = by_hand(FLOAT64)
    members = ENSEMBLE[kind].values()
    expected = max(float(np.linalg.norm(by_hand(a) - reference) / np.linalg.norm(reference)) for a in members)
    computed = compute(saved(model, tmp_path / "m.onnx"), [{"x": x}], "fp16-flag")
    (name,) = computed.references[0]
    assert np.allclose(computed.references[0][name], reference, atol=1e-7)  # the graph's scale is a float32
    found = largest(computed.errors[0][name], kind)
    assert expected / SAME_FLOOR < found < expected * SAME_FLOOR
