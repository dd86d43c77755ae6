"""Cells that take a while, to be stopped in the middle; and one that stops what watches over it."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Dict, Iterator

import numpy as np

FACTS = {
    "title": "slow cells", "upstream": "example/example#3", "url": "https://example.com/3",
    "summary": "Cells that sleep.", "expectations": [],
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
}  # fmt: skip


def cases() -> Iterator[Dict[str, Any]]:
    common = {"limits": {"max_abs": 0.0}, "products": ["onnxruntime"]}
    yield {"id": "sleep-0", "params": {"sleep": 1.5, "stop": False}, **common}
    yield {"id": "long-sleep", "params": {"sleep": 600, "stop": False}, "seconds": 600, **common}
    for number in (1, 2):
        yield {"id": f"sleep-{number}", "params": {"sleep": 1.5, "stop": False}, **common}
    yield {"id": "halt-the-supervisor", "params": {"sleep": 600, "stop": True}, "seconds": 2, **common}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring.graph import Graph

    x = np.arange(8, dtype=np.float32)
    graph = Graph({"x": x})
    graph.node("Identity", "x", out="y")
    graph.output("y", np.float32, x.shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": {"y": x.astype(np.float64)}}


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    if params["stop"]:
        os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(params["sleep"])
    return trt.build(files.model).run(files.inputs)
