"""Core attention: graphs and reference agree, noise is told from defects, the speedup is a fair race."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tests.numerics.graphs import Array, contained, floor_of, on_onnxruntime, relative
from trtmatrix.authoring import core_attention as core
from trtmatrix.authoring.arithmetic import FLOAT64
from trtmatrix.judge.factors import PASS_FACTOR
from trtprobe.cell import load_repro

REPRO = Path(__file__).parents[2] / "repros" / "flash_attention.py"
LITTLE = {"batch": 2, "heads": 3, "queries": 8, "keys": 8, "head_size": 8}
CASES = {case["id"]: case for case in load_repro(REPRO).cases()}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("kind", ["sdpa", "explicit", "causal", "window", "padding", "workaround-padding"])
def test_graphs_compute_the_reference(repro: ModuleType, kind: str, precision: str) -> None:
    params = {"kind": kind, "mask": repro.KINDS[kind][1], "precision": precision, **LITTLE}
    made = repro.prepare(params)
    y = on_onnxruntime(made["model"], made["inputs"])["y"]
    wide = precision == "fp32" or kind in {"causal", "padding"}
    assert y.dtype == (np.float32 if wide else np.float16)
    assert relative(y, made["reference"]["y"]) < PASS_FACTOR * floor_of(repro, params)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["control"]])
def test_the_graph_of_a_control_has_the_defect_that_it_names(repro: ModuleType, name: str) -> None:
    params = {**CASES[name]["params"], **LITTLE}
    made = repro.prepare(params)
    y = on_onnxruntime(made["model"], made["inputs"])["y"]
    wrong = repro.emulate(params, FLOAT64, CASES[name]["defect"])["y"]
    assert contained(y, made["reference"]["y"], wrong) == pytest.approx(1, abs=0.01)


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
