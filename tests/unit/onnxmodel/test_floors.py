"""Graphs rounded between their nodes: as the project's own arithmetic does, with floors of the same size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto
from onnxmodels import FLOAT, Array, make_model, node, normal, run, saved

from trtmatrix.authoring import attention
from trtmatrix.authoring.arithmetic import ENSEMBLE, FLOAT64, round_fp16, round_tf32
from trtmatrix.authoring.randoms import TorchRandom
from trtmatrix.onnxmodel.computing import Graph, Way, compute

SAME_FLOOR = 1.5
"""A floor of the graph and the project's own emulation of the same mathematics differ by less."""


@pytest.mark.parametrize("kind", ["tf32", "fp16", "bf16"])
def test_another_grid_leaves_exact_numbers_alone_and_moves_others_no_further(kind: str) -> None:
    exact = np.array([0.0, 1.0, -3.0, 0.125, 96.0, np.inf, np.nan], np.float32)
    values = np.concatenate([exact, normal(10_000)])
    found = Way(kind=kind, grid=0.83).round(values, kind)
    assert np.array_equal(found[: len(exact)], exact, equal_nan=True)
    bits, real = 7 if kind == "bf16" else 10, slice(len(exact), None)
    assert np.all(np.abs(found[real] - values[real]) <= 2.0**-bits * np.abs(values[real]))
    assert np.mean(found[real] != Way(kind=kind).round(values, kind)[real]) > 0.3


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


def test_sums_are_rounded_block_by_block(tmp_path: Path) -> None:
    w, x = normal(64, 8, seed=1), normal(4, 64)
    model = make_model(
        [node("MatMul", "x w", "y")], {"x": (FLOAT, ["n", 64])}, {"y": (FLOAT, ["n", 8])}, {"w": w}
    )
    found = rounded(model, tmp_path / "m.onnx", x, "fp16", terms=16)
    assert np.array_equal(found, ENSEMBLE["fp16"]["fp16-blocks"].matmul(x, w))


@pytest.mark.parametrize("op", ["Gemm", "Conv"])
def test_products_in_blocks_are_the_same_but_for_rounding(op: str, tmp_path: Path) -> None:
    if op == "Gemm":
        weights = {"w": normal(24, 64, seed=1), "b": normal(24, seed=2)}
        made, shape, out = node("Gemm", "x w b", "y", transB=1, alpha=0.5), [4, 64], [4, 24]
    else:
        weights = {"w": normal(8, 48, 3, 3, seed=1), "b": normal(8, seed=2)}
        made, shape, out = node("Conv", "x w b", "y", pads=[1, 1, 1, 1]), [1, 48, 6, 6], [1, 8, 6, 6]
    x = normal(*shape)
    model = make_model([made], {"x": (FLOAT, shape)}, {"y": (FLOAT, out)}, weights)
    plain = run(model, tmp_path / "p.onnx", x=x)["y"]
    found = rounded(model, tmp_path / "m.onnx", x, "fp16", terms=16)
    error = np.linalg.norm(found - plain) / np.linalg.norm(plain)
    assert 1e-4 < error < 5e-3


def largest(errors: Mapping[str, float], kind: str) -> float:
    return max(error for member, error in errors.items() if member.partition("-")[0] == kind)


@pytest.mark.parametrize("kind", ["tf32", "fp16"])
def test_the_floor_of_attention_is_that_of_the_arithmetic(kind: str, tmp_path: Path) -> None:
    size = attention.Size(batch=1, length=128, heads=4, head_size=32)
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
