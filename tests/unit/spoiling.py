"""Small real graphs, and a product made wrong on purpose: ONNX Runtime, where some nodes give something else.

``spoil`` does what a wrong fusion does: its defect is there only while none of the tensors inside of the
fusion is an output of the graph.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

WIDTH = 8


def blocks(count: int, seed: int = 0) -> ModelProto:
    """Residual blocks in a chain (MatMul, Add, Tanh, MatMul, Add to what came in), and a Softmax."""
    random = np.random.RandomState(seed)
    nodes, weights, before = [], [], "x"
    for n in range(count):
        for name, shape in (("v", (WIDTH, WIDTH)), ("w", (WIDTH, WIDTH)), ("b", (WIDTH,))):
            array = random.standard_normal(shape).astype(np.float32)
            weights.append(numpy_helper.from_array(array, f"{name}{n}"))
        nodes += [
            helper.make_node("MatMul", [before, f"v{n}"], [f"/{n}/up"], f"/{n}/MatMul"),
            helper.make_node("Add", [f"/{n}/up", f"b{n}"], [f"/{n}/biased"], f"/{n}/Add"),
            helper.make_node("Tanh", [f"/{n}/biased"], [f"/{n}/act"], f"/{n}/Tanh"),
            helper.make_node("MatMul", [f"/{n}/act", f"w{n}"], [f"/{n}/down"], f"/{n}/MatMul_1"),
            helper.make_node("Add", [before, f"/{n}/down"], [f"/{n}/sum"], f"/{n}/Add_1"),
        ]
        before = f"/{n}/sum"
    nodes.append(helper.make_node("Softmax", [before], ["y"], "/Softmax", axis=-1))
    return make(nodes, {"x": ["n", WIDTH]}, {"y": ["n", WIDTH]}, weights)


def make(
    nodes: Sequence[onnx.NodeProto], inputs: dict[str, list[str | int]], outputs: dict[str, list[str | int]],
    weights: Sequence[TensorProto] = (), kind: int = TensorProto.FLOAT,
) -> ModelProto:  # fmt: skip
    graph = helper.make_graph(
        list(nodes), "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in outputs.items()],
        list(weights),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def save(model: ModelProto, folder: Path, *, external: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "my.onnx"
    if external:
        onnx.save(model, str(file), save_as_external_data=True, location="my.bin", size_threshold=16)
    else:
        file.write_bytes(model.SerializeToString())
    return file


def spoil(model: ModelProto, tensor: str, inside: Collection[str] = (), factor: float = 1.02) -> ModelProto:
    """Return a copy in which a tensor is multiplied by a factor, unless one of its fusion is an output."""
    copy = ModelProto()
    copy.CopyFrom(model)
    if {info.name for info in copy.graph.output} & set(inside):
        return copy
    for place, node in enumerate(copy.graph.node):
        if tensor in node.output:
            node.output[list(node.output).index(tensor)] = f"{tensor} right"
            constant = numpy_helper.from_array(np.array(factor, np.float32), "a wrong factor")
            copy.graph.initializer.append(constant)
            wrong = helper.make_node("Mul", [f"{tensor} right", "a wrong factor"], [tensor])
            copy.graph.node.insert(place + 1, wrong)
            return copy
    return copy
