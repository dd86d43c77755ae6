"""Cells that end in each way that matters to a cluster, and cells that take a while."""

from __future__ import annotations

import ctypes
import json
import signal
import time
from pathlib import Path
from typing import Any, Dict, Iterator

import numpy as np

FACTS = {
    "title": "cells on a cluster", "upstream": "example/example#4", "url": "https://example.com/4",
    "summary": "Cells that pass, are wrong, crash, hang, and sleep.", "expectations": [],
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
}  # fmt: skip

WAYS = ("passes", "is-wrong", "faults", "hangs")
COMMON = {"limits": {"max_abs": 0.0}, "products": ["tensorrt"]}


def cases() -> Iterator[Dict[str, Any]]:
    for way in WAYS:
        yield {
            "id": way, "params": {"does": way}, "control": "negative" if way == "is-wrong" else None,
            "seconds": 2 if way == "hangs" else 60, **COMMON,
        }  # fmt: skip
        yield {"id": "after-" + way, "params": {"does": "passes", "after": way}, **COMMON}
    for number in range(6):
        yield {"id": f"sleep-{number}", "params": {"does": "sleeps", "number": number}, **COMMON}
    yield {"id": "long-sleep", "params": {"does": "sleeps", "number": 600}, "seconds": 600, **COMMON}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from onnx.helper import set_model_props

    from trtmatrix.authoring.graph import Graph

    x = np.arange(8, dtype=np.float32) - 4
    graph = Graph({"x": x})
    graph.node("Relu", "x", out="y")
    graph.output("y", np.float32, x.shape)
    model = graph.model()
    tensor = ["float32", list(x.shape)]
    # the stand-in reads what a model ends with
    set_model_props(
        model, {"standin": "\n" + json.dumps({"inputs": {"x": tensor}, "outputs": {"y": tensor}})}
    )
    return {"model": model, "inputs": {"x": x}, "reference": {"y": np.maximum(x, 0).astype(np.float64)}}


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    outputs: Dict[str, Any] = trt.build(files.model).run(files.inputs)
    found = [int(path.name[6:]) for path in Path("/dev").glob("nvidia*") if path.name[6:].isdigit()]
    trt.measure("devices", len(found))
    trt.measure("device", found[0] if found else -1)
    if params["does"] == "faults":
        ctypes.string_at(0)
    if params["does"] == "hangs":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if params["does"] == "sleeps":
        time.sleep(1.5 if params["number"] < 600 else 600)
    return {"y": outputs["y"] + 1} if params["does"] == "is-wrong" else outputs
