"""A model of three layers, of which the second is an attention whose scale an image with a defect loses."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto
from onnxmodels import FLOAT, make_model, node, saved

HEADS, LENGTH, SIZE = 4, 12, 32
WIDTH = HEADS * SIZE  # heads of 32: tests.models.images.DEFECT takes 1/sqrt(32) for 1


def write_deep(folder: Path, samples: int = 2) -> Path:
    """Write ``model.onnx`` and ``inputs/*.npz`` beside it: Tanh(x w0), attention, Relu and two more products.

    The batch is any; what heads are split into is computed from the shape, as exporters write it.
    """
    random = np.random.RandomState(0)
    weights = {f"w{i}": random.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5 for i in range(7)}
    arrays = {name: array.astype(np.float32) for name, array in weights.items()}
    arrays |= {
        "heads": np.array([LENGTH, HEADS, SIZE]), "whole": np.array([LENGTH, WIDTH]), "first": np.array([0]),
        "scale": np.float32(SIZE**-0.5),
    }  # fmt: skip
    nodes = [
        _node("MatMul", "x w0", "m0"), _node("Tanh", "m0", "h0"), _node("Shape", "h0", "sizes"),
        _node("Gather", "sizes first", "batch"), _node("Concat", "batch heads", "split", axis=0),
        _node("Concat", "batch whole", "merged", axis=0),
    ]  # fmt: skip
    for i, part in enumerate("qkv", 1):
        nodes += [_node("MatMul", f"h0 w{i}", f"{part}0"), _node("Reshape", f"{part}0 split", f"{part}1")]
        order = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
        nodes.append(_node("Transpose", f"{part}1", part, perm=order))
    nodes += [
        _node("MatMul", "q k", "raw"), _node("Mul", "raw scale", "scores"),
        _node("Softmax", "scores", "p", axis=-1), _node("MatMul", "p v", "o"),
        _node("Transpose", "o", "back", perm=[0, 2, 1, 3]), _node("Reshape", "back merged", "flat"),
        _node("MatMul", "flat w4", "m4"), _node("Add", "m4 h0", "h4"), _node("MatMul", "h4 w5", "m5"),
        _node("Relu", "m5", "h5"), _node("MatMul", "h5 w6", "y"),
    ]  # fmt: skip
    (folder / "inputs").mkdir(parents=True)
    for number in range(samples):
        x = 3 * random.standard_normal((number + 1, LENGTH, WIDTH))
        np.savez(folder / "inputs" / f"{number}.npz", x=x.astype(np.float32))
    what: Any = (FLOAT, ["n", LENGTH, WIDTH])
    return saved(make_model(nodes, {"x": what}, {"y": what}, arrays), folder / "model.onnx")


def _node(operator: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return node(operator, inputs, output, name=f"/{output}", **attributes)
