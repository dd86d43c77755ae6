"""Core attention: graphs and reference agree, noise is told from defects, the speedup is a fair race."""

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
from trtmatrix.authoring.arithmetic import ENSEMBLE, FLOAT32, FLOAT64
from trtmatrix.judge.factors import ALLOWED, FAIL_FACTOR, PASS_FACTOR
from trtprobe.cell import load_repro

Array = NDArray[Any]
REPRO = Path(__file__).parents[2] / "repros" / "flash_attention.py"
SMALL = core.Size(batch=2, heads=3, queries=7, keys=8, head_size=8)
LITTLE = {"batch": 2, "heads": 3, "queries": 8, "keys": 8, "head_size": 8}
CASES = {case["id"]: case for case in load_repro(REPRO).cases()}


@pytest.fixture(scope="module")
def repro() -> ModuleType:
    return load_repro(REPRO)


def apart(y: Array, r: Array) -> float:
    """rel_l2 of y from r."""
    return float(np.linalg.norm(y.astype(np.float64) - r) / np.linalg.norm(r))


def attend(drawn: dict[str, Array], mask: Array | None) -> Array:
    q, k, v = (drawn[name] for name in "qkv")
    return core.compute(q, k, v, mask)


def members(params: dict[str, Any]) -> Iterator[Any]:
    """The arithmetics in which an engine of the case may compute."""
    for precision in ALLOWED[params["precision"]]:
        yield from ENSEMBLE[precision].values()


def floor_of(repro: ModuleType, params: dict[str, Any], *, small: bool = False) -> float:
    reference = repro.emulate(params, FLOAT64, small=small)["y"]
    return max(apart(repro.emulate(params, a, small=small)["y"], reference) for a in members(params))


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


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("kind", ["sdpa", "explicit", "causal", "window", "padding", "workaround-padding"])
def test_graphs_compute_the_reference(repro: ModuleType, kind: str, precision: str) -> None:
    params = {"kind": kind, "mask": repro.KINDS[kind][1], "precision": precision, **LITTLE}
    made = repro.prepare(params)
    y = on_onnxruntime(made["model"].SerializeToString(), made["inputs"])
    wide = precision == "fp32" or kind in {"causal", "padding"}
    assert y.dtype == (np.float32 if wide else np.float16)
    assert apart(y, made["reference"]["y"]) < PASS_FACTOR * floor_of(repro, params)


def on_onnxruntime(model: bytes, inputs: dict[str, Array]) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], inputs)[0])


def contained(y: Array, reference: Array, wrong: Array) -> float:
    """How much of a defect is in y."""
    d = wrong - reference
    return float(np.vdot(y - reference, d) / np.vdot(d, d))


DEFECTIVE = [(name, defect) for name, case in CASES.items() for defect in case["defects"]]


@pytest.mark.parametrize(("name", "defect"), DEFECTIVE)
def test_a_known_defect_is_told_from_noise(repro: ModuleType, name: str, defect: str) -> None:
    params = {**CASES[name]["params"], **LITTLE, "queries": 24, "keys": 24}
    reference, wrong = (repro.emulate(params, FLOAT64, which)["y"] for which in ("", defect))
    assert apart(wrong, reference) > FAIL_FACTOR * floor_of(repro, params)
    for arithmetic in members(params):
        right, put_in = (repro.emulate(params, arithmetic, which)["y"] for which in ("", defect))
        assert abs(contained(right, reference, wrong)) < 0.02
        assert contained(put_in, reference, wrong) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["control"]])
def test_the_graph_of_a_control_has_the_defect_that_it_names(repro: ModuleType, name: str) -> None:
    params = {**CASES[name]["params"], **LITTLE}
    made = repro.prepare(params)
    y = on_onnxruntime(made["model"].SerializeToString(), made["inputs"])
    wrong = repro.emulate(params, FLOAT64, CASES[name]["defect"])["y"]
    assert contained(y, made["reference"]["y"], wrong) == pytest.approx(1, abs=0.01)


MEASURED = {  # rel_l2 on an H200, TensorRT 8.5.3.1 or 8.6.0 (results/), not fused
    "sdpa-128-fp16": 0.000868, "sdpa-512-fp16": 0.00118, "sdpa-512-tf32": 0.000559, "sdpa-512-fp32": 5.01e-7,
    "sdpa-2048-fp16": 0.00187, "sdpa-4096-fp16": 0.00249, "sdpa-512x77-fp16": 0.000805,
    "sdpa-1x2048-fp16": 0.00181, "causal-512-fp16": 0.000743, "causal-512-tf32": 0.000527,
    "window-2048-fp16": 0.00136, "padding-512-fp16-flag": 0.00122,
}  # fmt: skip


@pytest.mark.parametrize("name", MEASURED)
def test_the_noise_floor_is_what_engines_show(repro: ModuleType, name: str) -> None:
    floor = floor_of(repro, CASES[name]["params"], small=True)
    assert 1 / 1.5 < MEASURED[name] / floor < 1.5


@pytest.mark.parametrize("kind", ["sdpa", "window", "padding", "causal"])
def test_the_small_part_is_a_part_of_the_whole(repro: ModuleType, kind: str) -> None:
    size = {"batch": 4, "heads": 3, "queries": 700, "keys": 700, "head_size": 8}
    params = {"kind": kind, "mask": repro.KINDS[kind][1], "precision": "fp32", **size}
    for defect in ("", "lost-scale", "lost-mask"):
        whole, part = (repro.emulate(params, FLOAT64, defect, small=small)["y"] for small in (False, True))
        np.testing.assert_allclose(part, whole[2:3, :1, ::3], rtol=1e-12, atol=1e-14)


def test_seeds_draw_other_inputs_and_zero_the_cases_own(repro: ModuleType) -> None:
    params = {"kind": "sdpa", "mask": "none", "precision": "fp32", **LITTLE}
    first, second = (repro.emulate(params, FLOAT32, seed=seed)["y"] for seed in (0, 1))
    assert apart(first, repro.prepare(params)["reference"]["y"]) < 1e-5
    assert apart(second, first) > 0.5


def test_a_scale_is_lost_multiplied_or_left() -> None:
    assert core.scale_left("", 0.25) == core.scale_left("lost-mask", 0.25) == 0.25
    assert core.scale_left("lost-scale", 0.25) == 0.5
    assert core.scale_left("scale*0.5", 0.25) == 0.125


def test_cases_are_a_readable_table(repro: ModuleType) -> None:
    assert len(CASES) == len(list(repro.cases())) == 25
    for name, case in CASES.items():
        precision = case["params"]["precision"]
        negative = name.startswith("control-")
        assert case["control"] == ("negative" if negative else None)
        assert case["remarks"] == ([] if negative else ["fused" if "fp16" in precision else "plain"])
        assert ("lost-mask" in case["defects"]) == (case["params"]["mask"] != "none")


@pytest.mark.parametrize("kind", ["causal", "padding", "workaround-causal", "workaround-padding"])
def test_prepared_inputs_are_those_of_the_graph(repro: ModuleType, kind: str) -> None:
    made = repro.prepare({"kind": kind, "mask": repro.KINDS[kind][1], "precision": "fp16", **LITTLE})
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
