"""ONNX files that the stand-in takes too: it reads the JSON text at their end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnxmodels import FLOAT, make_model, node, saved_outside

Text = Mapping[str, Any] | None  # what the stand-in reads


def relu_then(
    operator: str = "Relu", *, opset: int = 17, domain: str = "", standin: Text = None,
    shape: Sequence[int | str] = (2, 3),
) -> onnx.ModelProto:  # fmt: skip
    """Return a graph of two nodes, /net/first and /net/second, the second being of some operator."""
    nodes = [
        node("Relu", "x", "h", name="/net/first"),
        node(operator, "h", "y", name="/net/second", domain=domain),
    ]
    ends = {"x": (FLOAT, shape)}, {"y": (FLOAT, shape)}
    return _told(make_model(nodes, *ends, opset=opset, domains=[domain] if domain else []), standin)


def add_weights(folder: Path, *, standin: Text = None, seed: int = 0) -> Path:
    """Write ``model.onnx``, x + w, and its ``weights.bin`` beside it."""
    weights = {"w": np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32)}
    ends = {"x": (FLOAT, (2, 3))}, {"y": (FLOAT, (2, 3))}
    model = make_model([node("Add", "x w", "y", name="/add")], *ends, weights)
    return saved_outside(_told(model, standin), folder / "model.onnx")


def _told(model: onnx.ModelProto, standin: Text) -> onnx.ModelProto:
    if standin is not None:  # metadata are a file's last field
        helper.set_model_props(model, {"standin": "\n" + json.dumps(standin)})
    return model
