"""Core attention: graphs and reference agree, noise is told from defects, the speedup is a fair race."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.numerics.graphs import contained, on_onnxruntime
from trtmatrix.authoring import core_attention as core
from trtmatrix.authoring.arithmetic import FLOAT64
from trtprobe.cell import load_repro

REPRO = load_repro(Path(__file__).parents[2] / "repros" / "flash_attention.py")
LITTLE = {"batch": 2, "heads": 3, "queries": 8, "keys": 8, "head_size": 8}
CASES = {case["id"]: case for case in REPRO.cases()}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["control"]])
def test_the_graph_of_a_control_has_the_defect_that_it_names(name: str) -> None:
    params = {**CASES[name]["params"], **LITTLE}
    made = REPRO.prepare(params)
    y = on_onnxruntime(made["model"], made["inputs"])["y"]
    wrong = REPRO.emulate(params, FLOAT64, CASES[name]["defect"])["y"]
    assert contained(y, made["reference"]["y"], wrong) == pytest.approx(1, abs=0.01)


FILES = SimpleNamespace(model=Path("model.onnx"), inputs={"q": np.ones(3)})


def test_speedup_is_the_median_of_alternating_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a stand-in for TensorRT on a GPU, whose engines' times are told beforehand."""
    log, words, measured = list[str](), list[str](), dict[str, float]()
    # The clock drifts: in each round both slow down, and one round is disturbed.
    times = {"engine": [1.0, 2.0, 4.0, 8.0, 16.0], "apart": [3.0, 6.0, 90.0, 24.0, 16.0]}

    def build(model: Path, precision: str, outputs: tuple[str, ...] = ()) -> Any:
        assert (model, precision) == (FILES.model, "fp16")
        assert outputs in {(), (core.PROBABILITIES,)}
        name, seen = ("apart", "plain") if outputs else ("engine", "fused")

        def tell(did: str) -> str:
            log.append(f"{name} {did}")
            return seen

        tell("built")
        return SimpleNamespace(
            run=lambda inputs: {"y": inputs["q"]}, fusion=lambda _: tell("looked at"),
            latency=lambda _: tell("timed") and times[name].pop(0),
        )  # fmt: skip

    monkeypatch.setattr(REPRO, "cuda_torch", lambda: None)
    trt = SimpleNamespace(has_streams=True, build=build, measure=measured.__setitem__, remark=words.append)
    outputs = REPRO.run({"precision": "fp16", "kind": "sdpa"}, FILES, trt)
    assert outputs["y"] is FILES.inputs["q"]
    assert measured == {"apart_fused": 0.0, "ms": 4.0, "plain_ms": 16.0, "speedup": 3.0}
    assert words == ["fused"]
    assert log == [
        "apart built", "apart looked at", "engine built", "engine looked at",
        *(["engine timed", "apart timed"] * 5),
    ]  # fmt: skip
