"""ONNX graphs: walks over them, what is known of their tensors, and the files beside them that hold weights.

External data: https://onnx.ai/onnx/repo-docs/ExternalData.html.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from trtmatrix.common.errors import UsageError

FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})
"""Types that hold the graph's real numbers."""

LARGE = 1024
"""Elements from which on a tensor's data lies in a file of its own while the graph is rewritten."""

OWN = frozenset({"", "ai.onnx", "ai.onnx.ml"})
"""Domains of operators that are ONNX's own."""

CASE_NAMES = frozenset(
    {
        "model.onnx", "check.onnx", "case.json", "noise.json", "inputs", "reference", "extra", "others",
        "defects",
    }
)  # fmt: skip
"""What lies in a case's folder already."""

Fresh = Callable[[str], str]
Dims = tuple[int | None, ...]


def inner_graphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs that a node holds (the branches of If, the body of Loop)."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and then all those inside of it."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from all_graphs(inner)


def all_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Yield every node of a model, those of inner graphs and of local functions too."""
    for graph in all_graphs(model.graph):
        yield from graph.node
    for function in model.functions:
        yield from function.node
        inner = (graph for node in function.node for graph in inner_graphs(node))
        for graph in itertools.chain.from_iterable(map(all_graphs, inner)):
            yield from graph.node


def all_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every tensor whose data a model has: initialisers and attributes."""
    for graph in all_graphs(model.graph):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in all_nodes(model):
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            yield from attribute.tensors
            if attribute.type == AttributeProto.SPARSE_TENSOR:
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)


def opset_of(model: ModelProto) -> int:
    """Return the version of ONNX's own operators that a model uses; 1 where it does not say."""
    return max((item.version for item in model.opset_import if item.domain in {"", "ai.onnx"}), default=1)


def elements(tensor: TensorProto) -> int:
    """Return how many elements a tensor has."""
    return prod(tensor.dims)


def attribute_of(node: NodeProto, name: str, default: object = None) -> object:
    """Return a node's attribute as Python has it."""
    for attribute in node.attribute:
        if attribute.name == name:
            return onnx.helper.get_attribute_value(attribute)
    return default


def fresh_names() -> Fresh:
    """Return what makes names that no graph has."""
    count = itertools.count(1)
    return lambda stem: f"{stem}__trtmatrix{next(count)}"


class Nodes:
    """Nodes in the making, in the order in which they were added."""

    def __init__(self, fresh: Fresh) -> None:
        self.nodes: list[NodeProto] = []
        self.fresh = fresh

    def add(self, op: str, *inputs: str, out: str = "", **attributes: Any) -> str:  # noqa: ANN401
        """Add a node; returns the name of its output."""
        name = out or self.fresh(op)
        self.nodes.append(onnx.helper.make_node(op, inputs, [name], **attributes))
        return name

    def integers(self, *values: int) -> str:
        """Add a list of int64 numbers."""
        return self.add("Constant", value=onnx.numpy_helper.from_array(np.asarray(values, dtype=np.int64)))

    def number(self, value: float) -> str:
        """Add a float32 number."""
        return self.add("Constant", value=onnx.numpy_helper.from_array(np.asarray(value, dtype=np.float32)))


def put(repeated: Any, items: Sequence[Any]) -> None:  # noqa: ANN401 - protobuf gives its lists no type
    """Replace what a repeated field holds."""
    del repeated[:]
    repeated.extend(items)


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a model's tensors: ONNX's number of their type, their dims (None: not known)."""

    types: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, Dims] = field(default_factory=dict)

    def is_float(self, name: str) -> bool:
        """Whether a tensor holds real numbers; not where its type is unknown."""
        return self.types.get(name) in FLOATS


def known_of(graph: GraphProto) -> Known:
    """Return what a graph and those inside of it say of their tensors.

    Of a name that two of them give to different tensors nothing is known.
    """
    types: dict[str, int] = {}
    shapes: dict[str, Dims] = {}
    unclear: set[str] = set()
    for each in all_graphs(graph):
        own_types: dict[str, int] = {}
        own_shapes: dict[str, Dims] = {}
        for info in itertools.chain(each.value_info, each.input, each.output):
            tensor = info.type.tensor_type
            if info.type.HasField("tensor_type") and tensor.elem_type:
                own_types[info.name] = tensor.elem_type
                if tensor.HasField("shape"):
                    sizes = (dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
                    own_shapes[info.name] = tuple(sizes)
        for weights in each.initializer:
            own_types[weights.name], own_shapes[weights.name] = weights.data_type, tuple(weights.dims)
        unclear |= {name for name, kind in own_types.items() if types.get(name, kind) != kind}
        unclear |= {name for name, shape in own_shapes.items() if shapes.get(name, shape) != shape}
        types.update(own_types)
        shapes.update(own_shapes)
    return Known(
        types={name: kind for name, kind in types.items() if name not in unclear},
        shapes={name: shape for name, shape in shapes.items() if name not in unclear},
    )


def infer(model: ModelProto, shapes: Mapping[str, tuple[int, ...]] | None = None) -> ModelProto:
    """Return a copy of a model that says more of its tensors' types and shapes, for these shapes of inputs.

    The copy lacks the data of large tensors. What cannot be inferred is left out.
    """
    small = _without_data(model)
    for info in small.graph.input:
        if shapes and info.name in shapes and info.type.HasField("tensor_type"):
            del info.type.tensor_type.shape.dim[:]
            for size in shapes[info.name]:
                info.type.tensor_type.shape.dim.add().dim_value = size
    if shapes:
        for graph in all_graphs(small.graph):  # what they say holds for other shapes
            del graph.value_info[:]
        for info in small.graph.output:
            if info.type.HasField("tensor_type"):
                info.type.tensor_type.ClearField("shape")
    try:
        return onnx.shape_inference.infer_shapes(small, data_prop=True)
    except Exception:  # noqa: BLE001 - a graph that is odd in one place is known in the others
        return small


def _without_data(model: ModelProto) -> ModelProto:
    """Return a copy of a model whose large tensors have no data: they say that it lies elsewhere."""
    graph = GraphProto(name=model.graph.name)
    for name in ("input", "output", "value_info", "node", "sparse_initializer"):
        getattr(graph, name).extend(getattr(model.graph, name))
    for tensor in model.graph.initializer:
        if elements(tensor) <= LARGE:
            graph.initializer.append(tensor)
            continue
        bare = graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        bare.data_location = TensorProto.EXTERNAL
        bare.external_data.add(key="location", value="nowhere")
    return ModelProto(
        ir_version=model.ir_version, producer_name=model.producer_name, domain=model.domain,
        model_version=model.model_version, opset_import=model.opset_import, functions=model.functions,
        graph=graph,
    )  # fmt: skip


def find_external(model: Path, loaded: ModelProto | None = None) -> dict[str, Path]:
    """Return the files with a model's external data: their relative name → where they are.

    :class:`UsageError` tells of all that are missing, too short, or outside of the model's folder.
    """
    loaded = loaded or onnx.load(str(model), load_external_data=False)
    needed: dict[str, int] = {}
    for tensor in all_tensors(loaded):
        if tensor.data_location == TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            name, numbers = entries.get("location", ""), (entries.get("offset"), entries.get("length"))
            end = sum(int(text) for text in numbers if text and text.isdecimal())
            needed[name] = max(needed.get(name, 0), end)
    refused = {name: _refused(model, name, size) for name, size in needed.items()}
    if problems := [f"{model}: its weights lie in {n!r}, {why}" for n, why in refused.items() if why]:
        raise UsageError("\n".join(problems))
    return {name: model.parent / name for name in needed}


def _refused(model: Path, name: str, size: int) -> str:
    """Return why a file cannot be taken, or nothing."""
    pure, file = PurePosixPath(name.replace("\\", "/")), model.parent / name
    if not pure.parts or pure.is_absolute() or ".." in pure.parts or ":" in name.partition("/")[0]:
        return "which is not inside of the model's folder: save it again with all data in one file beside it"
    if pure.parts[0] in CASE_NAMES:
        return "a name that a case's folder has for its own: save it again under another name"
    if not file.is_file():
        return "which is not there: copy it beside the model, or name the model where it is"
    if not file.resolve().is_relative_to(model.resolve().parent):
        return "a link out of the model's folder: copy the file there"
    if file.stat().st_size < size:
        return f"which has {file.stat().st_size} bytes of at least {size}: it is truncated, copy it again"
    return ""
