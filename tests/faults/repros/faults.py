"""Cells that the host disturbs, each between a right and a wrong one; some wait until it has."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, Iterator

import numpy as np

FACTS = {
    "title": "trouble of the host",
    "upstream": "example/example#1",
    "url": "https://example.com/1",
    "summary": "Cells whose files the host loses or changes.",
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
    "expectations": [],
}

CHANGES = ("flipped", "half", "gone", "empty", "link", "pipe", "folder")
FILES = {
    "model": "model.onnx", "inputs": "inputs/x.npy", "reference": "reference/y.npy", "case": "case.json",
}  # fmt: skip
BETWEEN = (
    *(f"{change}-{file}" for change in (*CHANGES, "more") for file in FILES),
    "edited-params", "edited-content", "edited-files", "altered-reference", "case-gone",
)  # fmt: skip
"""What happens to a prepared case between two runs."""

MEANWHILE = (
    *(f"while-{change}-{file}" for change in ("flipped", "half", "gone", "pipe") for file in FILES),
    "while-case-gone", "while-quota",
)  # fmt: skip
"""What happens to a prepared case, or to the host, while the cell runs."""

RECORDS = ("record-half", "record-gone", "record-empty", "record-link", "record-pipe", "record-folder",
           "record-nan", "record-deep")  # fmt: skip
"""What happens to a cell's records between two runs."""

RUN = "run"
"""What is beside the cells whose whole run is disturbed."""

FAULTS = (*BETWEEN, *MEANWHILE, *RECORDS, RUN)
ROLES = ("right-beside-%s", "%s", "wrong-beside-%s")


def cases() -> Iterator[Dict[str, Any]]:
    for number, fault in enumerate(FAULTS):
        for role, name in enumerate(ROLES):
            wrong = role == ROLES.index("wrong-beside-%s")
            yield {
                "id": name % fault, "params": {"start": len(ROLES) * number + role, "wrong": wrong,
                                               "waits": fault in (*MEANWHILE, RUN) and name == "%s"},
                "limits": {"max_abs": 0.0}, "products": ["onnxruntime"], "seconds": 30,
                "control": "negative" if wrong else None,
            }  # fmt: skip


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    """Return a graph, inputs and a reference of which no other case has one."""
    from trtmatrix.authoring.graph import Graph

    start = np.float32(params["start"])
    x = np.arange(8, dtype=np.float32) + start
    graph = Graph()
    graph.input("x", np.float32, x.shape)
    graph.node("Add", "x", graph.constant(np.full(1, 2 * start + params["wrong"], np.float32)), out="y")
    graph.output("y", np.float32, x.shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": {"y": (x + 2 * start).astype(float)}}


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    outputs = trt.build(files.model).run(files.inputs)
    mark = Path("/opt/trtmatrix/cases/.done-{start}".format(**params))
    while params["waits"] and not mark.exists():
        time.sleep(0.01)
    if params["waits"] and mark.read_text():
        raise OSError(mark.read_text())
    return outputs
