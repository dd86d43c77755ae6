"""sdpa-scale's run over a stand-in for the product: the figure of the report beside ours."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trtprobe.cell import load_repro

REPRO = load_repro(Path(__file__).parents[2] / "repros" / "sdpa_scale.py")
PARAMS = {"formulation": "sdpa", "precision": "tf32", "level": 3, "identical_rows": False}


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
