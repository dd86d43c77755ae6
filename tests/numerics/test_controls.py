"""controls: right graphs compute their reference, wrong ones are off by exactly their defect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.numerics.graphs import on_onnxruntime, relative
from trtmatrix.authoring.arithmetic import FLOAT64
from trtmatrix.suite.model import Control
from trtmatrix.suite.repro_files import parse_repro
from trtprobe.cell import load_repro

FILE = Path(__file__).parents[2] / "repros" / "controls.py"
REPRO = load_repro(FILE)
CASES = {case["id"]: case for case in REPRO.cases()}


def test_each_precision_has_a_right_and_a_wrong_graph() -> None:
    known = {"noise": REPRO.NOISE, "emulates": True}
    repro = parse_repro(FILE.read_text(), "controls.py", "controls", list(CASES.values()), **known)
    found = {(case.precision, case.control) for case in repro.cases}
    assert found == {(p, c) for p in ("tf32", "fp32", "fp16", "fp16-flag") for c in Control}


@pytest.mark.parametrize("name", CASES)
def test_right_graphs_compute_the_reference_and_wrong_ones_the_defect(name: str) -> None:
    case = CASES[name]
    prepared = REPRO.prepare(case["params"])
    expected = REPRO.emulate(case["params"], FLOAT64, case.get("defect", ""))
    outputs = on_onnxruntime(prepared["model"], prepared["inputs"])
    assert set(outputs) == set(prepared["reference"]) == set(expected)
    for output, y in outputs.items():
        assert relative(y, expected[output]) < (2e-3 if name.endswith("fp16") else 2e-6)
        if case["control"] == "negative":
            assert relative(y, prepared["reference"][output]) > 1
