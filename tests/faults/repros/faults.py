"""Cells that the host disturbs, each before one that is right and wrong; some wait until it has."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, Iterator

import numpy as np

FACTS = {
    "title": "trouble of the host", "upstream": "example/example#1", "url": "https://example.com/1",
    "summary": "Cells whose files the host loses or changes.", "expectations": [],
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
}  # fmt: skip

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

RUN = "run"  # the cell that waits in the middle of a run that is disturbed as a whole
FAULTS = (*BETWEEN, *MEANWHILE, *RECORDS)
CASES = ("before-run", *(case for fault in (RUN, *FAULTS) for case in (fault, "after-" + fault)))


def cases() -> Iterator[Dict[str, Any]]:
    for start, case in enumerate(CASES):
        is_after = case.startswith("after-")
        yield {
            "id": case, "params": {"start": start, "after": is_after, "waits": case in (*MEANWHILE, RUN)},
            "limits": {"max_abs": 0.0}, "products": ["onnxruntime"], "seconds": 30,
            "control": "negative" if is_after else None,
        }  # fmt: skip


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    """Return a graph, inputs and a reference of which no other case has one."""
    from trtmatrix.authoring.graph import Graph

    start = np.float32(params["start"])
    x = np.arange(8, dtype=np.float32) + start
    graph = Graph({"x": x})
    outputs = {"y": 0, "wrong": 1} if params["after"] else {"y": 0}
    for name, more in outputs.items():
        graph.node("Add", "x", graph.constant(np.full(1, 2 * start + more, np.float32)), out=name)
        graph.output(name, np.float32, x.shape)
    reference = {name: (x + 2 * start).astype(float) for name in outputs}
    return {"model": graph.model(), "inputs": {"x": x}, "reference": reference}


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    outputs = trt.build(files.model).run(files.inputs)
    mark = Path("/opt/trtmatrix/cases/.done-{start}".format(**params))
    while params["waits"] and not mark.exists():
        time.sleep(0.01)
    if params["waits"] and mark.read_text():
        raise OSError(mark.read_text())
    return outputs
