"""A small attention block whose scale is a constant of the graph, which an image with a defect loses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEADS, LENGTH, HEAD_SIZE = 2, 24, 32
"""Heads of 32: tests.models.images.DEFECT takes 1/sqrt(32) for 1."""


def write_attention(folder: Path) -> Path:
    """Write ``model.onnx``, softmax((x w_q)(x w_k)ᵀ/√32)(x w_v), and ``inputs.npz`` beside it."""
    random = np.random.default_rng(0)
    shape = (1, HEADS, LENGTH, HEAD_SIZE)
    weights = {f"w_{part}": random.standard_normal((HEAD_SIZE, HEAD_SIZE)) * 0.2 for part in "qkv"}
    tensors = [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()]
    tensors.append(numpy_helper.from_array(np.array(HEAD_SIZE**-0.5, np.float32), "scale"))
    nodes = [helper.make_node("MatMul", ["x", f"w_{part}"], [part], name=f"/{part}") for part in "qkv"]
    nodes += [
        helper.make_node("Transpose", ["k"], ["kt"], name="/kt", perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["raw"], name="/raw"),
        helper.make_node("Mul", ["raw", "scale"], ["scores"], name="/scale"),
        helper.make_node("Softmax", ["scores"], ["weights"], name="/softmax", axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"], name="/y"),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph(nodes, "attention", infos[:1], infos[1:], tensors)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        folder / "model.onnx",
    )
    np.savez(folder / "inputs.npz", x=(3 * random.standard_normal(shape)).astype(np.float32))
    return folder / "model.onnx"
