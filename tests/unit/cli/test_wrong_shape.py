"""A graph whose output has another shape than its reference, run for real by ONNX Runtime."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnxruntime
import pytest

from trtmatrix.cli import entry as cli

REPRO = """
import numpy as np

FACTS = {
    "title": "t", "upstream": "u#1", "url": "https://github.com/u", "summary": "s", "expectations": [],
    "figure": {"measure": "floors", "label": "floors"}, "workarounds": [],
}
NOISE = ("axes", "precision")


def cases():
    for name in ("last", "all"):
        yield {"id": name, "params": {"axes": name, "precision": "fp32"}}


def emulate(params, arithmetic, defect="", seed=0, small=False):
    return {"y": draw().astype(arithmetic.working).mean(axis=-1, keepdims=True)}


def draw():
    return np.random.default_rng(0).normal(size=(2, 24, 8)).astype(np.float32)


def prepare(params):
    from trtmatrix.authoring.arithmetic import FLOAT64
    from trtmatrix.authoring.graph import Graph

    graph, axes = Graph(), [2] if params["axes"] == "last" else [0, 1, 2]
    graph.input("x", np.float32, (2, 24, 8))
    graph.node("ReduceMean", "x", axes=axes, keepdims=1, out="y")
    graph.output("y", np.float32, (2, 24, 1) if params["axes"] == "last" else (1, 1, 1))
    return {"model": graph.model(), "inputs": {"x": draw()}, "reference": emulate(params, FLOAT64)}


def run(params, files, trt):
    return trt.build(files.model, precision=params["precision"]).run(files.inputs)
"""

MATRIX = """\
schema: 1
sources:
  here: {{title: "This test"}}
versions:
  - version: "onnxruntime-{library}"
    product: onnxruntime
    origin: {{interpreter: "{python}"}}
    library: {{value: "{library}", known: measured, source: here}}
"""


def test_another_shape_is_a_failure_in_the_run_its_table_and_its_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRTMATRIX_CACHE", str(tmp_path / "cache"))
    Path("repros").mkdir()
    Path("repros/means.py").write_text(REPRO)
    Path("matrix.yaml").write_text(MATRIX.format(library=onnxruntime.__version__, python=sys.executable))
    assert cli.run(["run", "--full", "--no-confirm"]) == 1
    said = "wrong shape: (1, 1, 1) instead of (2, 24, 1)"
    assert said in " ".join(capsys.readouterr().out.split())
    assert cli.run(["table", "--json"]) == 1
    cells = {cell["case"]: cell for cell in json.loads(capsys.readouterr().out)["cells"]}
    assert (cells["all"]["verdict"], cells["all"]["reason"]) == ("FAIL", said)
    assert cells["last"]["verdict"] == "PASS"
