"""Cells that cost next to nothing: what is left of their time is what the harness adds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

FACTS = {
    "title": "cells that cost nothing",
    "upstream": "example/example#1",
    "url": "https://example.com/1",
    "summary": "The output is the input. For the benchmark of the harness.",
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
    "expectations": [],
}
COUNT = 220


def cases() -> Iterator[dict[str, Any]]:
    for number in range(COUNT):
        yield {"id": f"n{number:03}", "params": {"number": number}, "limits": {"max_abs": 0.0}}


def prepare(params: dict[str, Any]) -> dict[str, Any]:
    from trtmatrix.authoring.graph import Graph

    x = np.arange(params["number"], params["number"] + 8, dtype=np.float32)
    graph = Graph()
    graph.input("x", np.float32, x.shape)
    graph.node("Identity", "x", out="y")
    graph.output("y", np.float32, x.shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": {"y": x.astype(np.float64)}}


def run(params: dict[str, Any], files: Any, trt: Any) -> Any:
    return trt.build(files.model).run(files.inputs)
