"""Core attention: graphs and reference agree, limits part right from wrong, the speedup is a fair race."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from trtmatrix.authoring import core_attention as core
from trtmatrix.authoring.arithmetic import FLOAT32, FLOAT64, FP16, FP16_BLOCKS, TF32, Arithmetic
from trtprobe.cell import load_repro

Array = NDArray[Any]
REPRO = Path(__file__).parents[2] / "repros" / "flash_attention.py"
SMALL = core.Size(batch=2, heads=3, queries=7, keys=8, head_size=8)
ONE_HEAD = core.Size(batch=1, heads=1, queries=512, keys=512, head_size=64)
PADDED = core.Size(batch=4, heads=1, queries=128, keys=128, head_size=64)
LONG = core.Size(batch=1, heads=1, queries=32, keys=4096, head_size=64)
MASK_OF: dict[core.Form, core.Mask] = {
    "sdpa": "none", "explicit": "none", "causal": "none", "additive": "window", "boolean": "padding",
}  # fmt: skip


@pytest.fixture(scope="module")
def repro() -> ModuleType:
    return load_repro(REPRO)


def apart(y: Array, r: Array) -> float:
    """rel_l2 of y from r."""
    return float(np.linalg.norm(y.astype(np.float64) - r) / np.linalg.norm(r))


def attend(
    drawn: dict[str, Array], mask: Array | None, scale: float | None = None, arithmetic: Arithmetic = FLOAT64
) -> Array:
    q, k, v = (drawn[name] for name in "qkv")
    return core.compute(q, k, v, mask, scale=scale, arithmetic=arithmetic)


def naive(drawn: dict[str, Array], added: Array | float) -> Array:
    """softmax(q kᵀ / √head_size + added) v in float64, all heads at once."""
    q, k, v = (drawn[name].astype(np.float64) for name in "qkv")
    exp = np.exp(np.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1]) + added)
    return np.asarray(np.einsum("bhqk,bhkd->bhqd", exp / exp.sum(axis=-1, keepdims=True), v))


@pytest.mark.parametrize("name", ["none", "causal", "ahead", "window", "padding", "nothing"])
@pytest.mark.parametrize("queries", [8, core.ROWS + 3])
def test_reference_is_the_naive_float64(name: core.Mask, queries: int) -> None:
    size = core.Size(batch=2, heads=2, queries=queries, keys=queries, head_size=8)
    drawn, mask = core.draw(size, np.float32), core.draw_mask(name, size, np.float32)
    added = 0.0 if mask is None else core.addend(mask)
    with np.errstate(invalid="raise"):
        y = attend(drawn, mask)
    np.testing.assert_allclose(y, naive(drawn, added), rtol=1e-12, atol=1e-13)


def test_masks_leave_each_query_a_key() -> None:
    names: list[core.Mask] = ["causal", "ahead", "window", "padding"]
    for name in names:
        mask = core.draw_mask(name, SMALL, np.float16)
        assert mask is not None
        assert np.isfinite(core.addend(mask)).any(axis=-1).all()
    padding = core.draw_mask("padding", SMALL, np.float16)
    assert padding is not None
    assert padding.sum(axis=-1).ravel().tolist() == [8, 6]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("form", MASK_OF)
def test_graphs_compute_the_reference(form: core.Form, dtype: type[Any]) -> None:
    size = core.Size(batch=2, heads=3, queries=8, keys=8, head_size=8)
    drawn, mask = core.draw(size, dtype), core.draw_mask(MASK_OF[form], size, dtype)
    meant = core.draw_mask("causal", size, dtype) if form == "causal" else mask
    y = on_onnxruntime(core.build(form, size, dtype, mask).SerializeToString(), drawn, mask)
    wide = dtype is np.float32 or form in {"causal", "boolean"}
    assert y.dtype == (np.float32 if wide else np.float16)
    assert apart(y, attend(drawn, meant)) < (1e-6 if dtype is np.float32 else 2e-3)


def on_onnxruntime(model: bytes, inputs: dict[str, Array], mask: Array | None) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], inputs if mask is None else {**inputs, "mask": mask})[0])


WORST = {"fp32": FLOAT32, "tf32": TF32, "fp16": FP16_BLOCKS, "fp16-flag": FP16_BLOCKS}
BEST = {**WORST, "fp16": FP16, "fp16-flag": FP16}
ROUNDED = {"fp16": np.float16}


@pytest.mark.parametrize(
    ("size", "mask"),
    [(ONE_HEAD, "none"), (LONG, "none"), (ONE_HEAD, "causal"), (ONE_HEAD, "window"), (PADDED, "padding")],
)
@pytest.mark.parametrize("precision", WORST)
def test_a_right_kernel_stays_below_the_limit(
    repro: ModuleType, precision: str, size: core.Size, mask: core.Mask
) -> None:
    y, reference = emulated(size, mask, mask, precision, WORST[precision])
    assert apart(y, reference) < 0.4 * repro.LIMITS[precision]


@pytest.mark.parametrize(
    ("size", "mask", "put_in"),
    [(ONE_HEAD, "causal", "ahead"), (ONE_HEAD, "window", "none"), (PADDED, "padding", "none")],
)
@pytest.mark.parametrize("precision", WORST)
def test_a_wrong_mask_is_far_above_the_limit(
    repro: ModuleType, precision: str, size: core.Size, mask: core.Mask, put_in: core.Mask
) -> None:
    y, reference = emulated(size, mask, put_in, precision, BEST[precision])
    assert apart(y, reference) > 30 * repro.LIMITS[precision]


def emulated(
    size: core.Size, mask: core.Mask, put_in: core.Mask, precision: str, arithmetic: Arithmetic
) -> tuple[Array, Array]:
    """The output with one mask in an emulated arithmetic, and the reference with another."""
    dtype = ROUNDED.get(precision, np.float32)
    drawn = core.draw(size, dtype)
    y = attend(drawn, core.draw_mask(put_in, size, dtype), arithmetic=arithmetic)
    return y, attend(drawn, core.draw_mask(mask, size, dtype))


def test_a_lost_root_of_the_scale_is_far_above_the_limit(repro: ModuleType) -> None:
    drawn = core.draw(ONE_HEAD, np.float16)
    lost = attend(drawn, None, scale=64**-0.25, arithmetic=FP16)
    assert apart(lost, attend(drawn, None)) > 100 * repro.LIMITS["fp16"]


def test_cases_are_a_readable_table(repro: ModuleType) -> None:
    cases = {case["id"]: case for case in repro.cases()}
    assert len(cases) == len(list(repro.cases())) == 25
    for name, case in cases.items():
        precision = case["params"]["precision"]
        negative = name.startswith("control-")
        assert case["control"] == ("negative" if negative else None)
        assert case["remarks"] == ([] if negative else ["fused" if "fp16" in precision else "plain"])


@pytest.mark.parametrize("kind", ["causal", "padding", "workaround-causal", "workaround-padding"])
def test_prepared_inputs_are_those_of_the_graph(repro: ModuleType, kind: str) -> None:
    extents = {"batch": 2, "heads": 2, "queries": 8, "keys": 8, "head_size": 8}
    made = repro.prepare({"kind": kind, "precision": "fp16", **extents})
    named = {i.name: i.type.tensor_type for i in made["model"].graph.input}
    assert list(named) == list(made["inputs"])
    assert made["reference"]["y"].dtype == np.float64
    if kind.startswith("workaround"):
        assert made["inputs"]["mask"].dtype == np.float16


class FakeEngine:
    """Stands in for an engine on a GPU: its times are told beforehand."""

    def __init__(self, log: list[str], name: str, times: list[float], fusion: str) -> None:
        self.log, self.name, self.seen = log, name, fusion
        self.times: Iterator[float] = iter(times)

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        return {"y": inputs["q"]}

    def fusion(self, _inputs: dict[str, Array]) -> str:
        self.log.append(f"{self.name} looked at")
        return self.seen

    def latency(self, _inputs: dict[str, Array]) -> float:
        self.log.append(f"{self.name} timed")
        return next(self.times)


class FakeBackend:
    """Stands in for TensorRT on a GPU, which no unit test has: only what run() asks of it."""

    has_streams = True

    def __init__(self, engine_ms: list[float], plain_ms: list[float]) -> None:
        self.log: list[str] = []
        self.engines = {
            False: FakeEngine(self.log, "engine", engine_ms, "fused"),
            True: FakeEngine(self.log, "apart", plain_ms, "plain"),
        }
        self.measured: dict[str, float] = {}
        self.words: list[str] = []

    def build(self, model: Path, precision: str, outputs: tuple[str, ...] = ()) -> FakeEngine:
        assert (model, precision) == (FILES.model, "fp16")
        assert outputs in {(), (core.PROBABILITIES,)}
        engine = self.engines[bool(outputs)]
        self.log.append(f"{engine.name} built")
        return engine

    def measure(self, name: str, value: float) -> None:
        self.measured[name] = float(value)

    def remark(self, word: str) -> None:
        self.words.append(word)


FILES = SimpleNamespace(model=Path("model.onnx"), inputs={"q": np.ones(3)})


def test_speedup_is_the_median_of_alternating_rounds(
    repro: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repro, "cuda_torch", lambda: None)
    # The clock drifts: in each round both slow down, and one round is disturbed.
    trt = FakeBackend([1.0, 2.0, 4.0, 8.0, 16.0], [3.0, 6.0, 90.0, 24.0, 16.0])
    outputs = repro.run({"precision": "fp16", "kind": "sdpa"}, FILES, trt)
    assert outputs["y"] is FILES.inputs["q"]
    assert trt.measured == {"apart_fused": 0.0, "ms": 4.0, "plain_ms": 16.0, "speedup": 3.0}
    assert trt.words == ["fused"]
    assert trt.log == [
        "apart built", "apart looked at", "engine built", "engine looked at",
        *(["engine timed", "apart timed"] * 5),
    ]  # fmt: skip


def test_torch_is_timed_in_the_same_rounds(repro: ModuleType) -> None:
    told: Callable[[list[float]], Callable[[], float]] = lambda times: iter(times).__next__  # noqa: E731
    found = repro.race({
        "ms": told([1.0, 2.0, 4.0, 8.0, 16.0]),
        "plain_ms": told([2.0, 4.0, 8.0, 16.0, 32.0]),
        "torch_ms": told([1.5, 3.0, 60.0, 12.0, 16.0]),
    })  # fmt: skip
    assert found == {"ms": 4.0, "plain_ms": 8.0, "torch_ms": 12.0, "speedup": 2.0, "torch_speedup": 1.5}


def test_without_streams_only_the_numbers_count(repro: ModuleType) -> None:
    trt = FakeBackend([], [])
    trt.has_streams = False
    assert list(repro.run({"precision": "fp16", "kind": "sdpa"}, FILES, trt)) == ["y"]
    assert trt.log == ["engine built"]
    assert (trt.words, trt.measured) == ([], {})
