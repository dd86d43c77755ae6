"""Walks over ONNX graphs, those inside of nodes too, and says what type and shape tensors have."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})
"""Types that hold the graph's real numbers."""

LARGE = 1024
"""Elements from which on a tensor's data lies in a file of its own while the graph is rewritten."""

OWN = frozenset({"", "ai.onnx", "ai.onnx.ml"})
"""Domains of operators that are ONNX's own."""


def inner_graphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs that a node holds (the branches of If, the body of Loop)."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and all those inside of it."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from all_graphs(inner)


def all_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Yield every node of a model, those of inner graphs and of local functions too."""
    for graph in all_graphs(model.graph):
        yield from graph.node
    for function in model.functions:
        for node in function.node:
            yield node
            for inner in inner_graphs(node):
                for graph in all_graphs(inner):
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
    count = 1
    for dim in tensor.dims:
        count *= dim
    return count


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a model's tensors: ONNX's number of their type, their dims (None: not known)."""

    types: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)

    def is_float(self, name: str) -> bool:
        """Whether a tensor holds real numbers; not where its type is unknown."""
        return self.types.get(name) in FLOATS


def known_of(graph: GraphProto) -> Known:
    """Return what a graph and those inside of it say of their tensors.

    Of a name that two of them give to different tensors nothing is known.
    """
    types: dict[str, int] = {}
    shapes: dict[str, tuple[int | None, ...]] = {}
    unclear: set[str] = set()
    for each in all_graphs(graph):
        own: tuple[dict[str, int], dict[str, tuple[int | None, ...]]] = ({}, {})
        for info in itertools.chain(each.value_info, each.input, each.output):
            _note(info, *own)
        for tensor in each.initializer:
            own[0][tensor.name], own[1][tensor.name] = tensor.data_type, tuple(tensor.dims)
        unclear |= {name for name, kind in own[0].items() if types.get(name, kind) != kind}
        unclear |= {name for name, shape in own[1].items() if shapes.get(name, shape) != shape}
        types.update(own[0])
        shapes.update(own[1])
    return Known(
        types={name: kind for name, kind in types.items() if name not in unclear},
        shapes={name: shape for name, shape in shapes.items() if name not in unclear},
    )


def _note(
    info: ValueInfoProto, types: dict[str, int], shapes: dict[str, tuple[int | None, ...]]
) -> None:
    if not info.type.HasField("tensor_type") or not info.type.tensor_type.elem_type:
        return
    tensor = info.type.tensor_type
    types[info.name] = tensor.elem_type
    if tensor.HasField("shape"):
        dims = tensor.shape.dim
        shapes[info.name] = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims)


def infer(model: ModelProto, shapes: Mapping[str, tuple[int, ...]] | None = None) -> ModelProto:
    """Return a copy of a model that says more of its tensors' types and shapes, for these shapes of inputs.

    The copy lacks the data of large tensors. What cannot be inferred is left out.
    """
    small = without_data(model)
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


def without_data(model: ModelProto) -> ModelProto:
    """Return a copy of a model whose large tensors have no data: they say that it lies elsewhere."""
    copy = ModelProto()
    for name in ("ir_version", "producer_name", "model_version", "domain"):
        setattr(copy, name, getattr(model, name))
    copy.opset_import.extend(model.opset_import)
    copy.functions.extend(model.functions)
    graph, own = copy.graph, model.graph
    graph.name = own.name
    graph.input.extend(own.input)
    graph.output.extend(own.output)
    graph.value_info.extend(own.value_info)
    graph.node.extend(own.node)
    graph.sparse_initializer.extend(own.sparse_initializer)
    for tensor in own.initializer:
        graph.initializer.append(tensor if elements(tensor) <= LARGE else _empty(tensor))
    return copy


def _empty(tensor: TensorProto) -> TensorProto:
    bare = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    bare.data_location = TensorProto.EXTERNAL
    bare.external_data.add(key="location", value="nowhere")
    return bare


def fresh_names() -> Callable[[str], str]:
    """Return what makes names that no graph has."""
    count = itertools.count(1)
    return lambda stem: f"{stem}__trtmatrix{next(count)}"


def attribute_of(node: NodeProto, name: str, default: object = None) -> object:
    """Return a node's attribute as Python has it."""
    for attribute in node.attribute:
        if attribute.name == name:
            return onnx.helper.get_attribute_value(attribute)
    return default


def drop_overridable(graph: GraphProto) -> None:
    """Leave out inputs that are initialisers too: old files list them, and nobody feeds them."""
    constants = {tensor.name for tensor in graph.initializer}
    put(graph.input, [info for info in graph.input if info.name not in constants])


def put(repeated: Any, items: Sequence[Any]) -> None:  # noqa: ANN401 - protobuf gives its lists no type
    """Replace what a repeated field holds."""
    del repeated[:]
    repeated.extend(items)
