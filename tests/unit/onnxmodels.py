"""Small ONNX models for tests of a user's own model, and what runs a graph on the CPU."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from trtmatrix.onnxmodel.sessions import Session

Array = NDArray[Any]
FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64

Shape = Sequence[int | str | None]


def make_model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Shape]],
    outputs: Mapping[str, tuple[int, Shape | None]],
    weights: Mapping[str, Array] | None = None,
    *,
    opset: int = 17,
    domains: Sequence[str] = (),
) -> ModelProto:
    """A model; inputs and outputs are by name their type and shape."""
    graph = helper.make_graph(
        list(nodes), "g",
        [helper.make_tensor_value_info(name, *what) for name, what in inputs.items()],
        [helper.make_tensor_value_info(name, *what) for name, what in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def node(op: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    """A node; several inputs or outputs are words of one text."""
    return helper.make_node(op, inputs.split(), output.split(), **attributes)


def mlp(width: int = 64, dtype: type[Any] = np.float32, layers: int = 2) -> ModelProto:
    """y = tanh(x W) W' ..., with a batch of any size."""
    random = np.random.RandomState(1)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes, weights, last = [], {}, "x"
    for i in range(layers):
        weights[f"w{i}"] = (random.standard_normal((width, width)) / width**0.5).astype(dtype)
        nodes += [node("MatMul", f"{last} w{i}", f"m{i}"), node("Tanh", f"m{i}", f"h{i}")]
        last = f"h{i}"
    nodes[-1].output[0] = "y"
    return make_model(nodes, {"x": (kind, ["batch", width])}, {"y": (kind, ["batch", width])}, weights)


def saved(model: ModelProto, path: Path) -> Path:
    """Write a model; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def saved_outside(model: ModelProto, path: Path, location: str = "weights.bin") -> Path:
    """Write a model with all of its weights in a file beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    copy = ModelProto()
    copy.CopyFrom(model)
    onnx.save_model(copy, path, save_as_external_data=True, location=location, size_threshold=0)
    return path


def run(model: ModelProto, path: Path, **feeds: Array) -> dict[str, Array]:
    """Run a model by ONNX Runtime, graph optimisation off."""
    return Session(saved(model, path)).run(feeds)


def normal(*shape: int, seed: int = 0) -> Array:
    """Numbers of a standard normal distribution, float32."""
    return np.asarray(np.random.RandomState(seed).standard_normal(shape), dtype=np.float32)
