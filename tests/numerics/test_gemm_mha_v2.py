"""gemm-mha-v2: graphs compute the reference, defects stand out of the noise."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import numpy as np
import pytest

from tests.numerics.graphs import Array, floor_of, on_onnxruntime, relative
from trtmatrix.authoring.arithmetic import FLOAT64, FP16_BLOCKS, TF32
from trtmatrix.authoring.attention import Formulation, Mask, Size, Weights, addend, build, compute, draw_mask
from trtmatrix.authoring.randoms import TorchRandom

REPRO = Path(__file__).parents[2] / "repros" / "gemm_mha_v2.py"
SMALL = Size(batch=3, length=21, heads=2, head_size=8)
FORMULATIONS: tuple[Formulation, ...] = ("explicit", "bert", "wide", "sdpa-default")
PAIRS: list[tuple[Formulation, Mask]] = [
    *product(FORMULATIONS, get_args(Mask)), ("sdpa", "none"), ("mha", "none"),
]  # fmt: skip


def drawn(kind: Mask, dtype: type[Any]) -> tuple[Array, Weights, Array | None]:
    random = TorchRandom(0)
    x = (8 * random.rand(*SMALL.x) - 4).astype(dtype)
    weights = Weights.draw(random, SMALL.embed).astype(dtype)
    return x, weights, draw_mask(kind, SMALL, random, dtype)


def named(repro: ModuleType, name: str) -> dict[str, Any]:
    return next(case["params"] for case in repro.cases() if case["id"] == name)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("formulation", "kind"), PAIRS)
def test_graphs_compute_the_reference(formulation: Formulation, kind: Mask, dtype: type[Any]) -> None:
    x, weights, mask = drawn(kind, dtype)
    if formulation == "sdpa-default" and (kind == "causal" or (kind == "padding" and dtype is np.float16)):
        with pytest.raises(ValueError, match="attention in float32"):
            build(SMALL, weights, formulation, kind)
        return
    model = build(SMALL, weights, formulation, kind)
    y = on_onnxruntime(model, {"x": x} if mask is None else {"x": x, "mask": mask})["y"]
    reference = compute(x, SMALL, weights, mask=addend(kind, SMALL, mask))
    assert y.dtype == dtype
    assert relative(y, reference) < (1e-6 if dtype is np.float32 else 2e-3)


def test_a_float32_core_is_within_the_noise_of_fp16(repro: ModuleType) -> None:
    params = {**named(repro, "workaround-wide-masked"), "batch": 1}
    size, weights, x, mask = repro.drawn(*repro.drawn_by(params), seed=0)
    added = addend(params["mask"], size, mask)
    wide = compute(x, size, weights, mask=added, arithmetic=FP16_BLOCKS, core=TF32, queries=128)
    right = repro.emulate(params, FLOAT64, small=True)["y"]
    assert relative(wide, right) < 1.1 * floor_of(repro, params, small=True)


def test_the_marked_tensor_is_in_the_graph(repro: ModuleType) -> None:
    case = next(case for case in repro.cases() if case["params"]["outputs"])
    made = repro.prepare({**case["params"], "length": 9})
    assert case["params"]["outputs"] in {name for node in made["model"].graph.node for name in node.output}
