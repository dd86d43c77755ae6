"""A cell that tells what it sees of its container, and one that hangs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Dict, Iterator

import numpy as np

FACTS = {
    "title": "what a container shows", "upstream": "example/example#5", "url": "https://example.com/5",
    "summary": "Cells that look around, and one that hangs.", "expectations": [],
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
}  # fmt: skip


def cases() -> Iterator[Dict[str, Any]]:
    for does, seconds in (("looks", 60), ("hangs", 600)):
        products = ["tensorrt", "onnxruntime"]
        yield {
            "id": does, "params": {"does": does}, "seconds": seconds, "limits": {"max_abs": 0.0},
            "products": products,
        }  # fmt: skip


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from onnx.helper import set_model_props

    from trtmatrix.authoring.graph import Graph

    x = np.arange(8, dtype=np.float32) - 4
    graph = Graph({"x": x})
    graph.node("Relu", "x", out="y")
    graph.output("y", np.float32, x.shape)
    model, ends = graph.model(), {"inputs": {"x": ["float32", [8]]}, "outputs": {"y": ["float32", [8]]}}
    set_model_props(model, {"standin": "\n" + json.dumps(ends)})  # what the stand-in for TensorRT reads
    return {"model": model, "inputs": {"x": x}, "reference": {"y": np.maximum(x, 0).astype(np.float64)}}


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    time.sleep(600 if params["does"] == "hangs" else 0)
    says = ("SLURM", "PMI", "APPTAINER", "PYXIS")
    trt.measure("scheduler", float(sum(name.startswith(says) for name in os.environ)))
    trt.measure("gpu", float(os.environ.get("CUDA_VISIBLE_DEVICES", "-0").rpartition("-")[2]))
    trt.measure("network", float(len(list(Path("/sys/class/net").iterdir()))))
    return trt.build(files.model).run(files.inputs)
