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
    "title": "cells on a cluster",
    "upstream": "example/example#4",
    "url": "https://example.com/4",
    "summary": "Cells that pass, are wrong, crash, hang, and sleep.",
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
    "expectations": [],
}

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
    graph = Graph()
    graph.input("x", np.float32, x.shape)
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
    outputs = trt.build(files.model).run(files.inputs)
    found = [int(path.name[6:]) for path in Path("/dev").glob("nvidia*") if path.name[6:].isdigit()]
    trt.measure("devices", len(found))
    trt.measure("device", found[0] if found else -1)
    return globals()[params["does"].replace("-", "_")](outputs, params) or outputs


def passes(outputs: Any, params: Dict[str, Any]) -> None:
    pass


def is_wrong(outputs: Any, params: Dict[str, Any]) -> Any:
    return {"y": outputs["y"] + 1}


def faults(outputs: Any, params: Dict[str, Any]) -> None:
    ctypes.string_at(0)


def hangs(outputs: Any, params: Dict[str, Any]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def sleeps(outputs: Any, params: Dict[str, Any]) -> None:
    time.sleep(1.5 if params["number"] < 600 else 600)
