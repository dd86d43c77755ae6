"""ONNX files that the stand-in takes too: it reads the JSON text at their end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def relu_then(
    operator: str = "Relu", *, opset: int = 17, domain: str = "", standin: Mapping[str, Any] | None = None,
    shape: Sequence[int | str] = (2, 3),
) -> onnx.ModelProto:  # fmt: skip
    """Return a graph of two nodes, /net/first and /net/second, the second being of some operator."""
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], name="/net/first"),
        helper.make_node(operator, ["h"], ["y"], name="/net/second", domain=domain),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    return _model(graph, opset, domain, standin)


def add_weights(folder: Path, *, standin: Mapping[str, Any] | None = None, seed: int = 0) -> Path:
    """Write ``model.onnx``, x + w, and its ``weights.bin`` beside it."""
    w = np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32)
    tensor = numpy_helper.from_array(w, "w")
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3)) for name in "xy"]
    node = helper.make_node("Add", ["x", "w"], ["y"], name="/add")
    model = _model(helper.make_graph([node], "g", infos[:1], infos[1:], [tensor]), 17, "", standin)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    onnx.external_data_helper.convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, path)
    return path


def _model(
    graph: onnx.GraphProto, opset: int, domain: str, standin: Mapping[str, Any] | None
) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    if standin is not None:  # metadata are a file's last field
        helper.set_model_props(model, {"standin": "\n" + json.dumps(standin)})
    return model
