"""sdpa-scale: the figure of the report from emulated arithmetic, its run over a stand-in for the product."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from projects import ROOT

from tests.numerics.graphs import floor_of, relative
from trtmatrix.authoring.arithmetic import FLOAT64, FP16, FP16_BLOCKS, TF32, round_tf32
from trtmatrix.authoring.attention import addend, compute
from trtprobe.cell import load_repro

REPRO, GEMM = (load_repro(ROOT / "repros" / f"{name}.py") for name in ("sdpa_scale", "gemm_mha_v2"))
REPROS = {"sdpa_scale": REPRO, "gemm_mha_v2": GEMM}
PARAMS = {"formulation": "sdpa", "precision": "tf32", "level": 3, "identical_rows": False}


def test_tf32_keeps_ten_bits_and_rounds_to_nearest_even() -> None:
    step = 2.0**-10
    values = np.array([1 + step, 1 + step / 2, 1 + 1.5 * step, 1 + 0.51 * step, -1 - 0.49 * step])
    kept = round_tf32(values.astype(np.float32))
    assert kept.tolist() == [1 + step, 1.0, 1 + 2 * step, 1 + step, -1.0]


def test_blocks_of_fp16_round_after_each_block() -> None:
    ones = np.ones((1, 4096), dtype=np.float32)
    assert FP16.matmul(ones, ones.T).item() == 4096
    # 2048 + 1 is 2048 in float16: with blocks of one the sum stops there.
    assert replace(FP16_BLOCKS, terms=1).matmul(ones, ones.T).item() == 2048
    assert FP16_BLOCKS.matmul(ones, ones.T).item() == 4096


def test_one_lost_factor_gives_the_reported_figure() -> None:
    # NVIDIA/TensorRT#4333: sum of |explicit - sdpa| on TensorRT 10.7.0 is 1373.3945.
    params = next(case["params"] for case in REPRO.cases() if case["id"] == "sdpa-tf32")
    explicit, lost = (np.float64(REPRO.emulate(params, TF32, defect)["y"]) for defect in ("", "lost-scale"))
    assert explicit.size == 3_612_672
    twin = REPRO.FACTS["twins"][0]["reported"]["10.7.0"]
    assert np.abs(explicit - lost).sum() == pytest.approx(1373.38, abs=0.05) == twin


def test_a_float32_core_is_within_the_noise_of_fp16() -> None:
    case = next(case for case in GEMM.cases() if case["id"] == "workaround-wide-masked")
    params = {**case["params"], "batch": 1}
    size, weights, x, mask = GEMM.drawn(*GEMM.drawn_by(params), seed=0)
    added = addend(params["mask"], size, mask)
    wide = compute(x, size, weights, mask=added, arithmetic=FP16_BLOCKS, core=TF32, queries=128)
    right = GEMM.emulate(params, FLOAT64, small=True)["y"]
    assert relative(wide, right) < 1.1 * floor_of(GEMM, params, small=True)


def test_the_marked_tensor_is_in_the_graph() -> None:
    case = next(case for case in GEMM.cases() if case["params"]["outputs"])
    made = GEMM.prepare({**case["params"], "length": 9})
    assert case["params"]["outputs"] in {name for node in made["model"].graph.node for name in node.output}


class StandIn:
    """A product whose engines return a number for each graph."""

    def __init__(self, *, has_streams: bool) -> None:
        self.has_streams, self.built, self.measured = has_streams, [], {}  # type: bool, list[Any], dict[str, Any]
        self.y = np.array([1, 2, 3], np.float16)

    def build(self, model: Path, **how: Any) -> Any:
        self.built.append((model.stem, how))
        y = {"model": self.y, "explicit": np.array([1, 4, 2.5], np.float16)}[model.stem]
        return SimpleNamespace(run=lambda _inputs: {"y": y})

    def measure(self, name: str, value: float) -> None:
        self.measured[name] = value


def files(*others: str) -> Any:
    named = {name: Path(f"{name}.onnx") for name in others}
    return SimpleNamespace(model=Path("model.onnx"), inputs={}, others=named)


def test_the_explicit_form_is_built_first_in_the_same_way_and_compared_with() -> None:
    trt = StandIn(has_streams=True)
    assert REPRO.run(PARAMS, files("explicit"), trt)["y"].tolist() == [1, 2, 3]
    how = {"precision": "tf32", "level": 3}
    assert trt.built == [("explicit", how), ("model", how)], "the record's layers are those of the last"
    assert trt.measured == {"sum_abs_explicit": 2.5}


@pytest.mark.parametrize(("third", "share"), [([1, 2], 0.0), ([1, 3], 1 / 6), ([1, float("nan")], 1 / 6)])
def test_identical_rows_must_come_out_identical(third: list[float], share: float) -> None:
    trt = StandIn(has_streams=False)
    trt.y = np.array([[1, 2], [1, 2], third], np.float16)
    REPRO.run({**PARAMS, "identical_rows": True}, files(), trt)
    assert trt.measured == {"rows_differ": pytest.approx(share)}


def test_every_formulation_but_the_explicit_one_is_compared_with_it() -> None:
    for case in REPRO.cases():
        if case["id"] in {"explicit-tf32", "sdpa-tf32", "control-lost-mul-tf32", "native-mha-tf32"}:
            params = {**case["params"], "length": 8, "batch": 1}
            others = REPRO.prepare(params)["others"]
            assert set(others) == (set() if case["id"] == "explicit-tf32" else {"explicit"})
