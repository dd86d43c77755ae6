"""Attention blocks: graphs, reference and emulated arithmetic agree with the reported figure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from trtmatrix.authoring import attention
from trtmatrix.authoring.arithmetic import (
    FLOAT32,
    FLOAT64,
    FP16,
    FP16_BLOCKS,
    TF32,
    Arithmetic,
    round_tf32,
)
from trtmatrix.authoring.attention import Size, Weights, compute
from trtmatrix.authoring.randoms import TorchRandom
from trtprobe.cell import load_repro

Array = NDArray[Any]
REPRO = Path(__file__).parents[2] / "repros" / "sdpa_scale.py"
SMALL = Size(batch=2, length=21, heads=3, head_size=8)
REPORTED = Size(batch=6, length=1568, heads=8, head_size=48)


def drawn(size: Size) -> tuple[Array, Weights]:
    random = TorchRandom(0)
    x = random.rand(*size.x)
    return x, Weights.draw(random, size.embed)


def apart(a: Array, b: Array) -> float:
    return float(np.abs(a.astype(np.float64) - b.astype(np.float64)).sum())


def naive(x: Array, size: Size, weights: Weights, scale: float) -> Array:
    """The block in a few lines of float64, all heads at once."""
    qkv = np.einsum("bse,fe->bsf", x.astype(np.float64), weights.qkv.astype(np.float64))
    q, k, v = np.moveaxis(qkv.reshape(*x.shape[:2], 3, size.heads, size.head_size), 2, 0)
    exp = np.exp(scale * np.einsum("bshd,bthd->bhst", q, k))
    y = np.einsum("bhst,bthd->bshd", exp / exp.sum(axis=-1, keepdims=True), v)
    return np.asarray(y.reshape(x.shape) @ weights.proj.T.astype(np.float64) + weights.bias)


def on_onnxruntime(model: onnx.ModelProto, x: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(["y"], {"x": x})[0])


@pytest.fixture(scope="module")
def repro() -> Iterator[ModuleType]:
    module = load_repro(REPRO)
    yield module
    module.drawn.cache_clear()


def test_draws_are_those_of_torch() -> None:
    # The digests are of torch 2.13: rand(6, 1568, 384), Linear(384, 1152), Linear(384, 384).
    x, weights = drawn(REPORTED)
    digest = hashlib.sha256()
    for array in (x, weights.qkv, weights.proj, weights.bias):
        digest.update(array.tobytes())
    assert digest.hexdigest()[:16] == "2637becd23d6428f"
    assert x[0, 0, :2].tolist() == [0.49625658988952637, 0.7682217955589294]


@pytest.mark.parametrize("factor", [None, 0.5, 3.0])
def test_reference_is_the_naive_float64(factor: float | None) -> None:
    x, weights = drawn(SMALL)
    scale = SMALL.scale if factor is None else factor
    expected = naive(x, SMALL, weights, scale)
    np.testing.assert_allclose(compute(x, SMALL, weights, q_factor=factor), expected, rtol=1e-12, atol=1e-14)
    root = math.sqrt(scale)
    np.testing.assert_allclose(
        compute(x, SMALL, weights, q_factor=root, k_factor=root), expected, rtol=1e-12, atol=1e-14
    )


def test_reference_survives_logits_beyond_the_range_of_exp() -> None:
    x, weights = drawn(SMALL)
    assert np.isfinite(compute(x, SMALL, weights, q_factor=1e6)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("build", [attention.explicit, attention.sdpa, attention.sdpa_default, attention.mha])
def test_graphs_compute_the_reference(
    build: Callable[[Size, Weights], onnx.ModelProto], dtype: type[Any]
) -> None:
    x, weights = drawn(SMALL)
    x, weights = x.astype(dtype), weights.astype(dtype)
    y = on_onnxruntime(build(SMALL, weights), x)
    assert y.dtype == dtype
    bound = 1e-6 if dtype is np.float32 else 2e-3
    assert np.abs(y - compute(x, SMALL, weights)).max() < bound


def test_factors_of_a_graph_are_those_of_the_reference() -> None:
    x, weights = drawn(SMALL)
    lost = compute(x, SMALL, weights, q_factor=math.sqrt(SMALL.scale))
    explicit = attention.explicit(SMALL, weights, scale=math.sqrt(SMALL.scale))
    sdpa = attention.sdpa(SMALL, weights, k_factor=1.0)
    for model in (explicit, sdpa):
        np.testing.assert_allclose(on_onnxruntime(model, x), lost, atol=1e-6)


def test_tf32_keeps_ten_bits_and_rounds_to_nearest_even() -> None:
    step = 2.0**-10
    values = np.array([1 + step, 1 + step / 2, 1 + 1.5 * step, 1 + 0.51 * step, -1 - 0.49 * step])
    kept = round_tf32(values.astype(np.float32))
    assert kept.tolist() == [1 + step, 1.0, 1 + 2 * step, 1 + step, -1.0]


def test_blocks_of_fp16_round_after_each_block() -> None:
    ones = np.ones((1, 4096), dtype=np.float32)
    assert FP16.matmul(ones, ones.T).item() == 4096
    # 2048 + 1 is 2048 in float16: with blocks of one the sum stops there.
    single = Arithmetic(working=np.float32, block=1)
    assert single.matmul(ones, ones.T).item() == 2048
    assert FP16_BLOCKS.matmul(ones, ones.T).item() == 4096


def test_one_lost_factor_gives_the_reported_figure() -> None:
    # NVIDIA/TensorRT#4333: sum of |explicit - sdpa| on TensorRT 10.7.0 is 1373.3945.
    x, weights = drawn(REPORTED)
    explicit = compute(x, REPORTED, weights, arithmetic=TF32)
    lost = compute(x, REPORTED, weights, q_factor=math.sqrt(REPORTED.scale), arithmetic=TF32)
    assert apart(explicit, lost) == pytest.approx(1373.38, abs=0.05)


FLOORS = {"fp32": FLOAT32, "tf32": TF32, "fp16": FP16_BLOCKS}  # the worst that is right
DEFECTS = {"fp32": FLOAT32, "tf32": TF32, "fp16": FP16}  # the least that is wrong


@pytest.mark.parametrize("variation", ["", "-head64", "-zeromean"])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_limits_part_right_from_defective(repro: ModuleType, precision: str, variation: str) -> None:
    limit = repro.LIMITS[variation].get(precision)
    if limit is None:
        assert (precision, variation) in {("fp32", "-head64"), ("fp32", "-zeromean")}
        return
    base = {**repro.BASE, **repro.VARIATIONS[variation]}
    shape = (base[name] for name in ("length", "heads", "head_size", "amplitude"))
    size, weights, x, reference = repro.drawn(1, *shape, half=precision == "fp16")
    right = compute(x, size, weights, arithmetic=FLOORS[precision])
    root = math.sqrt(size.scale)
    wrong = compute(x, size, weights, q_factor=root, arithmetic=DEFECTS[precision])
    rows = base["batch"]  # one row of the batch stands for all
    assert rows * apart(right, reference) < 0.75 * limit
    assert rows * apart(wrong, reference) > 1.3 * limit


def test_cases_are_a_readable_table(repro: ModuleType) -> None:
    cases = list(repro.cases())
    names = [case["id"] for case in cases]
    assert len(set(names)) == len(names) == 49
    assert {"sdpa-tf32", "explicit-fp16-flag", "sdpa-default-fp32", "mha-fp16"} <= set(names)
    negative = {case["id"] for case in cases if case["control"] == "negative"}
    assert negative == {name for name in names if name.startswith("control-")}


def test_reference_is_float64(repro: ModuleType) -> None:
    small = {**repro.BASE, "batch": 1, "length": 16, "formulation": "sdpa", "precision": "fp16"}
    made = repro.prepare(small)
    assert made["reference"]["y"].dtype == FLOAT64.working
    assert made["inputs"]["x"].dtype == np.float16
    assert made["model"].opset_import[0].version == 17
