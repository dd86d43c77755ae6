"""Marks an inner tensor of an ONNX graph as an output; says which can be marked and what they come from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto

from trtmatrix.model.explain_search import Graph, Node
from trtmatrix.onnxmodel.graphs import find_external, infer, inputs_of, known_of

MEASURED = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})
"""Types whose errors can be told in every product: NumPy has no bfloat16, TensorRT no float64."""

LARGE_FILE = 1 << 24
"""Bytes of a model's own file from which on its weights are moved out of it: equal files are kept once."""

SHAPES = frozenset({"Shape", "Size"})
"""Operators that look at no value of their input: a wrong one changes nothing behind them."""


@dataclass(frozen=True, kw_only=True)
class Markable:
    """A model as the search for its first wrong tensor sees it.

    ``inner``: the tensors that can be marked. ``nodes``: the node that each of them and each output is from.
    """

    file: Path
    graph: Graph
    inner: frozenset[str]
    nodes: Mapping[str, Node]


def read_markable(file: Path) -> Markable:
    """Read a model; its external weights are left where they are.

    What depends on no input is not marked, nor what holds no float32 or float16, nor what lies in a branch or
    a loop's body: what goes wrong there is found in the next tensor that can be marked. Raises as onnx.load.
    """
    model = onnx.load(str(file), load_external_data=False)
    known, graph = known_of(infer(model).graph), model.graph
    outputs = {info.name for info in graph.output}
    moving = {info.name for info in graph.input} - {tensor.name for tensor in graph.initializer}
    sources: dict[str, tuple[str, ...]] = dict.fromkeys(moving, ())  # of those that cannot be marked too
    tensors, inputs, nodes, inner = list[str](), dict[str, tuple[str, ...]](), dict[str, Node](), set[str]()
    for place, node in enumerate(graph.node):
        used = [name for name in inputs_of(node) if name in sources]
        if not used or node.op_type in SHAPES:
            continue
        behind = tuple(dict.fromkeys(source for name in used for source in sources[name]))
        for tensor in filter(None, node.output):
            marked = known.types.get(tensor) in MEASURED and tensor in known.shapes
            if marked or tensor in outputs:
                tensors.append(tensor)
                inputs[tensor] = behind
                nodes[tensor] = Node(name=node.name or f"the {place + 1}th node", operator=node.op_type)
                if marked and tensor not in outputs:
                    inner.add(tensor)
            sources[tensor] = (tensor,) if marked else behind
    return Markable(
        file=file, graph=Graph(tensors=tuple(tensors), inputs=inputs), inner=frozenset(inner), nodes=nodes
    )


def write_marked(markable: Markable, tensor: str, folder: Path) -> Path:
    """Write the model with a further output, if one is named, to a folder on the same disk.

    Its external weights are linked, not copied. Large weights inside of it are written beside it, where the
    cache has them once. Returns the model's file, which has the name that it had. ``OSError`` where it cannot
    be written.
    """
    model = onnx.load(str(markable.file), load_external_data=False)
    model.graph.output.extend(info for info in infer(model).graph.value_info if info.name == tensor)
    folder.mkdir(parents=True, exist_ok=True)
    beside = find_external(markable.file, model)
    for name, file in beside.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(file.resolve(), folder / name)
    target = folder / markable.file.name
    if markable.file.stat().st_size >= LARGE_FILE and not beside:
        onnx.external_data_helper.convert_model_to_external_data(model, location="weights.bin")
    onnx.save(model, str(target))
    return target
