"""gemm-mha-v2: masks mean what they say, graphs compute the reference, defects stand out of the noise."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from trtmatrix.authoring import masked_attention
from trtmatrix.authoring.arithmetic import ENSEMBLE, FLOAT64, FP16_BLOCKS, TF32
from trtmatrix.authoring.attention import Size, Weights, compute
from trtmatrix.authoring.masked_attention import Formulation, Mask, addend, draw_mask
from trtmatrix.authoring.randoms import TorchRandom
from trtmatrix.judge.factors import ALLOWED
from trtprobe.cell import load_repro

Array = NDArray[Any]
REPRO = Path(__file__).parents[2] / "repros" / "gemm_mha_v2.py"
SMALL = Size(batch=3, length=21, heads=2, head_size=8)
PAIRS: list[tuple[Formulation, Mask]] = list(product(get_args(Formulation), get_args(Mask)))


@pytest.fixture(scope="module")
def repro() -> Iterator[ModuleType]:
    module = load_repro(REPRO)
    yield module
    module.drawn.cache_clear()
    module.reference.cache_clear()


def drawn(kind: Mask, dtype: type[Any]) -> tuple[Array, Weights, Array | None]:
    random = TorchRandom(0)
    x = (8 * random.rand(*SMALL.x) - 4).astype(dtype)
    weights = Weights.draw(random, SMALL.embed).astype(dtype)
    return x, weights, draw_mask(kind, SMALL, random, dtype)


def on_onnxruntime(model: onnx.ModelProto, inputs: dict[str, Array]) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], inputs)[0])


def relative(y: Array, reference: Array) -> float:
    return float(np.linalg.norm((y - reference).ravel()) / np.linalg.norm(reference.ravel()))


def named(repro: ModuleType, name: str) -> dict[str, Any]:
    return next(case["params"] for case in repro.cases() if case["id"] == name)


def floor_of(repro: ModuleType, params: dict[str, Any]) -> float:
    """The worst right arithmetic's error, on the small part."""
    reference = repro.emulate(params, FLOAT64, small=True)["y"]
    return max(
        relative(repro.emulate(params, arithmetic, small=True)["y"], reference)
        for precision in ALLOWED[params["precision"]]
        for arithmetic in ENSEMBLE[precision].values()
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("formulation", "kind"), PAIRS)
def test_graphs_compute_the_reference(formulation: Formulation, kind: Mask, dtype: type[Any]) -> None:
    x, weights, mask = drawn(kind, dtype)
    if formulation == "sdpa" and (kind == "causal" or (kind == "padding" and dtype is np.float16)):
        with pytest.raises(ValueError, match="attention in float32"):
            masked_attention.build(SMALL, weights, formulation=formulation, mask=kind)
        return
    model = masked_attention.build(SMALL, weights, formulation=formulation, mask=kind)
    y = on_onnxruntime(model, {"x": x} if mask is None else {"x": x, "mask": mask})
    reference = compute(x, SMALL, weights, mask=addend(kind, SMALL, mask))
    assert y.dtype == dtype
    assert relative(y, reference) < (1e-6 if dtype is np.float32 else 2e-3)


@pytest.mark.parametrize("kind", ["additive", "padding"])
def test_masked_keys_are_as_good_as_absent(kind: Mask) -> None:
    x, weights, mask = drawn(kind, np.float32)
    y = compute(x, SMALL, weights, mask=addend(kind, SMALL, mask))
    for row, kept in enumerate((17, 13, 9)):  # of 21 keys 1/5, 2/5 and 3/5 are masked
        short = Size(batch=1, length=kept, heads=SMALL.heads, head_size=SMALL.head_size)
        np.testing.assert_allclose(
            y[row, :kept], compute(x[row : row + 1, :kept], short, weights)[0], rtol=1e-12, atol=1e-13
        )


def test_causal_queries_see_no_later_key() -> None:
    x, weights, _ = drawn("causal", np.float32)
    y = compute(x, SMALL, weights, mask=addend("causal", SMALL, None))
    short = Size(batch=3, length=5, heads=SMALL.heads, head_size=SMALL.head_size)
    last = compute(x[:, :5], short, weights)[:, -1]
    np.testing.assert_allclose(y[:, 4], last, rtol=1e-12, atol=1e-13)


def test_one_key_is_left_of_each_row() -> None:
    mask = draw_mask("padding", Size(batch=4, length=1, heads=1, head_size=8), TorchRandom(0), np.float32)
    assert mask is not None
    assert not mask.any()


def test_a_bias_differs_by_head() -> None:
    x, weights, mask = drawn("bias", np.float32)
    assert mask is not None
    swapped = compute(x, SMALL, weights, mask=mask[:, ::-1])
    assert relative(swapped, compute(x, SMALL, weights, mask=mask)) > 0.1


ROWS = [
    "fp16-h8-d64-s256",
    "fp16-h4-d192",
    "fp16-s17",
    "fp16-bias",
    "fp16-causal",
    "flag-d64",
    "workaround-tf32",
]
"""Among them the greatest floors: wide sums, a scale that float16 rounds much, few keys, sharp scores."""


@pytest.mark.parametrize("name", [*ROWS, "workaround-fp32"])
def test_known_defects_are_far_above_the_noise(repro: ModuleType, name: str) -> None:
    params = named(repro, name)
    floor = floor_of(repro, params)
    assert floor < (4e-3 if name != "workaround-fp32" else 2e-6)
    reference = repro.emulate(params, FLOAT64)["y"]
    for defect in ["lost-scale", *(["lost-mask"] if params["mask"] != "none" else [])]:
        assert relative(repro.emulate(params, FLOAT64, defect)["y"], reference) > 100 * floor


@pytest.mark.parametrize("name", ["workaround-wide", "workaround-wide-masked"])
def test_a_float32_core_is_within_the_noise_of_fp16(repro: ModuleType, name: str) -> None:
    params = named(repro, name)
    size, weights, x, mask = repro.drawn(*repro.drawn_by(params), seed=0)
    added = addend(params["mask"], size, mask)
    wide = compute(x, size, weights, mask=added, arithmetic=FP16_BLOCKS, core=TF32)
    assert relative(wide, repro.emulate(params, FLOAT64)["y"]) < 1.1 * floor_of(repro, params)


def test_a_single_lost_key_shows(repro: ModuleType) -> None:
    params = {**named(repro, "fp16-h8-d64-s256"), "batch": 1}
    size, weights, x, _ = repro.drawn(*repro.drawn_by(params), seed=0)
    lost = np.zeros((1, 1, 1, size.length))
    lost[..., -1] = -np.inf
    reference = repro.emulate(params, FLOAT64)["y"]
    assert relative(compute(x, size, weights, mask=lost), reference) > 15 * floor_of(repro, params)


def test_the_mask_is_what_lost_mask_loses(repro: ModuleType) -> None:
    for kind in ("additive", "padding", "bias", "causal"):
        params = {**repro.BASE, "heads": 2, "length": 32, "mask": kind}
        lost, bare = (
            repro.emulate(p, FLOAT64, d)["y"]
            for p, d in ((params, "lost-mask"), ({**params, "mask": "none"}, ""))
        )
        assert np.array_equal(lost, bare)


def test_softmax_is_sharp_but_not_saturated(repro: ModuleType) -> None:
    size, weights, x, _ = repro.drawn(*repro.drawn_by(named(repro, "fp16-h8-d64-s256")), seed=0)
    qkv = (x[0].astype(np.float64) @ weights.qkv.T.astype(np.float64)).reshape(size.length, 3, size.heads, -1)
    scores = np.einsum("shd,thd->hst", qkv[:, 0], qkv[:, 1]) * size.scale
    assert 1.5 < scores.std() < 2
    assert abs(scores.mean()) < 0.1
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    assert 0.1 < probabilities.max(axis=-1).mean() < 0.2


def test_cases_are_a_readable_table(repro: ModuleType) -> None:
    cases = {case["id"]: case for case in repro.cases()}
    assert len(cases) == 47
    sizes = {case["params"]["head_size"] for case in cases.values()}
    assert sizes >= {16, 24, 32, 40, 48, 64, 72, 80, 96, 128, 160, 192, 256}
    lengths = {case["params"]["length"] for case in cases.values()}
    assert lengths == {1, 17, 64, 128, 197, 256, 512, 1024}
    negative = {name for name, case in cases.items() if case.get("control") == "negative"}
    assert negative == {name for name in cases if name.startswith("control-")}


def test_inputs_are_those_of_the_graph(repro: ModuleType) -> None:
    for case in repro.cases():
        params = {**case["params"], "batch": 1, "heads": 1, "head_size": 16, "length": 9}
        made = repro.prepare(params)
        assert [tensor.name for tensor in made["model"].graph.input] == list(made["inputs"])
        assert made["reference"]["y"].dtype == np.float64
        half = params["precision"] == "fp16"
        assert made["inputs"]["x"].dtype == (np.float16 if half else np.float32)


def test_the_marked_tensor_is_in_the_graph(repro: ModuleType) -> None:
    case = next(case for case in repro.cases() if case["params"]["outputs"])
    made = repro.prepare({**case["params"], "length": 9})
    assert case["params"]["outputs"] in {name for node in made["model"].graph.node for name in node.output}
