"""A graph that gives back its input: what is packed must come to the same verdict on the other side."""

from __future__ import annotations

from typing import Any, Dict, Iterator

import numpy as np

FACTS = {
    "title": "the same",
    "upstream": "example/example#1",
    "url": "https://example.com/1",
    "summary": "The output is the input.",
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
    "expectations": [],
}


def cases() -> Iterator[Dict[str, Any]]:
    yield {"id": "plain", "params": {"size": 8}, "limits": {"max_abs": 0.0}, "products": ["onnxruntime"]}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring.graph import Graph

    x = np.arange(params["size"], dtype=np.float32)
    graph = Graph()
    graph.input("x", np.float32, x.shape)
    graph.node("Identity", "x", out="y")
    graph.output("y", np.float32, x.shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": {"y": x.astype(np.float64)}}


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    return trt.build(files.model).run(files.inputs)
