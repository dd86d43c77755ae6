"""Attention blocks: graphs, reference and emulated arithmetic agree with the reported figure."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.numerics.graphs import Array, on_onnxruntime
from trtmatrix.authoring import attention
from trtmatrix.authoring.arithmetic import (
    FP16,
    FP16_BLOCKS,
    TF32,
    Arithmetic,
    round_fp16,
    round_tf32,
)
from trtmatrix.authoring.attention import Size, Weights, compute
from trtmatrix.authoring.randoms import TorchRandom

REPRO = Path(__file__).parents[2] / "repros" / "sdpa_scale.py"
SMALL = Size(batch=2, length=21, heads=3, head_size=8)


def drawn(size: Size) -> tuple[Array, Weights]:
    random = TorchRandom(0)
    x = random.rand(*size.x)
    return x, Weights.draw(random, size.embed)


def apart(a: Array, b: Array) -> float:
    return float(np.abs(a.astype(np.float64) - b.astype(np.float64)).sum())


def test_factors_of_a_graph_are_those_of_the_reference() -> None:
    x, weights = drawn(SMALL)
    lost = compute(x, SMALL, weights, q_factor=math.sqrt(SMALL.scale))
    explicit = attention.build(SMALL, weights, scale=math.sqrt(SMALL.scale))
    sdpa = attention.build(SMALL, weights, "sdpa", factors=(SMALL.scale**0.5, 1.0))
    for model in (explicit, sdpa):
        np.testing.assert_allclose(on_onnxruntime(model, {"x": x})["y"], lost, atol=1e-6)


def test_tf32_keeps_ten_bits_and_rounds_to_nearest_even() -> None:
    step = 2.0**-10
    values = np.array([1 + step, 1 + step / 2, 1 + 1.5 * step, 1 + 0.51 * step, -1 - 0.49 * step])
    kept = round_tf32(values.astype(np.float32))
    assert kept.tolist() == [1 + step, 1.0, 1 + 2 * step, 1 + step, -1.0]


def test_blocks_of_fp16_round_after_each_block() -> None:
    ones = np.ones((1, 4096), dtype=np.float32)
    assert FP16.matmul(ones, ones.T).item() == 4096
    # 2048 + 1 is 2048 in float16: with blocks of one the sum stops there.
    single = Arithmetic(working=np.float32, terms=1, accumulated=round_fp16)
    assert single.matmul(ones, ones.T).item() == 2048
    assert FP16_BLOCKS.matmul(ones, ones.T).item() == 4096


def reported(repro: ModuleType) -> dict[str, Any]:
    return next(case["params"] for case in repro.cases() if case["id"] == "sdpa-tf32")


@pytest.fixture(scope="module")
def explicit(repro: ModuleType) -> Array:
    y = repro.emulate(reported(repro), TF32)["y"]
    assert y.size == 3_612_672
    return np.asarray(y)


def test_one_lost_factor_gives_the_reported_figure(repro: ModuleType, explicit: Array) -> None:
    # NVIDIA/TensorRT#4333: sum of |explicit - sdpa| on TensorRT 10.7.0 is 1373.3945.
    lost = repro.emulate(reported(repro), TF32, "lost-scale")["y"]
    assert apart(explicit, lost) == pytest.approx(1373.38, abs=0.05)
    twin = repro.FACTS["twins"][0]
    assert twin["reported"]["10.7.0"] == pytest.approx(1373.38, abs=0.05)
