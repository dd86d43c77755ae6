"""ONNX graphs: walks over them, what is known of their tensors, and the files beside them that hold weights.

External data: https://onnx.ai/onnx/repo-docs/ExternalData.html.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path, PurePosixPath

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from trtmatrix.common.errors import UsageError

FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})
"""Types that hold the graph's real numbers."""

LARGE = 1024
"""Elements from which on a tensor's data is left out where only types and shapes are looked at."""

OWN = frozenset({"", "ai.onnx", "ai.onnx.ml"})
"""Domains of operators that are ONNX's own."""

CASE_NAMES = frozenset(
    ("model.onnx", "check.onnx", "case.json", "noise.json", "inputs", "reference", "extra", "others",
     "defects")
)  # fmt: skip
"""What lies in a case's folder already."""

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
    bodies = [GraphProto(node=function.node) for function in model.functions]
    for graph in itertools.chain.from_iterable(map(all_graphs, [model.graph, *bodies])):
        yield from graph.node


def inputs_of(node: NodeProto) -> Iterator[str]:
    """Yield what a node is computed from, also what the graphs inside of it take from around them."""
    yield from filter(None, node.input)
    for graph in inner_graphs(node):
        yield from _taken(graph)


def _taken(graph: GraphProto) -> Iterator[str]:
    own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        yield from (name for name in inputs_of(node) if name not in own)
        own.update(node.output)
    yield from (info.name for info in graph.output if info.name not in own)


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


def attribute_of(node: NodeProto, name: str, default: object = None) -> object:
    """Return a node's attribute as Python has it."""
    for attribute in node.attribute:
        if attribute.name == name:
            return onnx.helper.get_attribute_value(attribute)
    return default


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
    found: dict[str, tuple[int, Dims | None]] = {}
    unclear: set[str] = set()
    for each in all_graphs(graph):
        own: dict[str, tuple[int, Dims | None]] = {}
        for info in itertools.chain(each.value_info, each.input, each.output):
            tensor = info.type.tensor_type
            if tensor.elem_type:
                sizes = tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim)
                own[info.name] = tensor.elem_type, sizes if tensor.HasField("shape") else None
        own |= {weights.name: (weights.data_type, tuple(weights.dims)) for weights in each.initializer}
        unclear |= {name for name, told in own.items() if found.get(name, told) != told}
        found |= own
    sure = {name: told for name, told in found.items() if name not in unclear}
    return Known(
        types={name: kind for name, (kind, _) in sure.items()},
        shapes={name: shape for name, (_, shape) in sure.items() if shape is not None},
    )


def infer(model: ModelProto, shapes: Mapping[str, tuple[int, ...]] | None = None) -> ModelProto:
    """Return a copy of a model that says more of its tensors' types and shapes, for these shapes of inputs.

    The copy lacks the data of large tensors. What cannot be inferred is left out.
    """
    small = _without_data(model)
    if shapes:
        for graph in all_graphs(small.graph):  # what they say holds for other shapes
            del graph.value_info[:]
        for info in (*small.graph.input, *small.graph.output):
            if info.type.HasField("tensor_type"):
                info.type.tensor_type.ClearField("shape")
            for size in shapes.get(info.name, ()):
                info.type.tensor_type.shape.dim.add().dim_value = size
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
        if prod(tensor.dims) <= LARGE:
            graph.initializer.append(tensor)
            continue
        bare = graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        bare.data_location = TensorProto.EXTERNAL
        bare.external_data.add(key="location", value="nowhere")
    opsets, functions = model.opset_import, model.functions
    return ModelProto(ir_version=model.ir_version, opset_import=opsets, functions=functions, graph=graph)


def load_whole(file: Path) -> ModelProto:
    """Load a model with its external data, which onnx itself refuses where a file has several names."""
    find_external(file)
    model = onnx.load(str(file), load_external_data=False)
    for tensor in all_tensors(model):
        tensor.CopyFrom(whole_tensor(tensor, file.parent))
    return model


def whole_tensor(tensor: TensorProto, folder: Path) -> TensorProto:
    """Return a tensor with its data, read from beside the model where it is external."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return tensor
    entries = {entry.key: entry.value for entry in tensor.external_data}
    whole = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    with (folder / entries["location"]).open("rb") as stream:
        stream.seek(int(entries.get("offset", 0)))
        whole.raw_data = stream.read(int(entries["length"]) if "length" in entries else -1)
    return whole


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
