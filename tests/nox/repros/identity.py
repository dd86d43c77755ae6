"""A graph that gives back its input: quick, and right everywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

FACTS = {
    "title": "identity", "upstream": "example/example#1", "url": "https://example.com/1",
    "summary": "The output is the input.",
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
    "expectations": [
        {"cases": ["expected-to-fail"], "product": "onnxruntime", "verdict": "FAIL", "basis": "assumed"}
    ],
}  # fmt: skip


def cases() -> Iterator[dict[str, Any]]:
    for name, seconds in (("plain", 0), ("expected-to-fail", 0), ("slow", 120)):
        yield {"id": name, "params": {"sleep": seconds}, "limits": {"max_abs": 0.0}}


def prepare(params: dict[str, Any]) -> dict[str, Any]:
    from trtmatrix.authoring.graph import Graph

    x = np.arange(8, dtype=np.float32)
    graph = Graph({"x": x})
    graph.node("Identity", "x", out="y")
    graph.output("y", np.float32, x.shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": {"y": x.astype(np.float64)}}


def run(params: dict[str, Any], files: Any, trt: Any) -> Any:
    time.sleep(params["sleep"])
    return trt.build(files.model).run(files.inputs)
