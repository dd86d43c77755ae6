"""Rewrites a graph so that its real numbers are of one type: float64 for references, float32 for floors.

What ONNX Runtime's CPU has no float64 kernel for stays in float32, or is written out: a convolution is a sum
over its kernel's places, where the input, shifted and strided, is multiplied with the weights of that place.
Definition: https://onnx.ai/onnx/operators/onnx__Conv.html.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterator
from math import prod

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from trtmatrix.onnxmodel.graphs import (
    FLOATS,
    LARGE,
    OWN,
    Fresh,
    Known,
    Nodes,
    attribute_of,
    elements,
    fresh_names,
    inner_graphs,
    opset_of,
    put,
)

FIXED = frozenset(
    {
        "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul",
        "MatMulInteger", "ConvInteger", "Resize", "Upsample", "NonMaxSuppression", "RoiAlign",
        "MaxRoiPool", "MelWeightMatrix",
    }
)  # fmt: skip
"""Operators that take float32 in some place, whatever the graph's type is."""

TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_datatype"})
"""Attributes that hold the number of a type."""

MOST_PLACES = 125
"""Places of a kernel up to which a convolution is written out."""

END = sys.maxsize >> 1


class CannotRewriteError(Exception):
    """The graph has something that it cannot be rewritten with; the message says what."""


class Retyping:
    """Rewrites one model, in place, so that all real numbers have the type ``target``.

    ``known``: its tensors' types before. ``kept``: operators that stay in float32, with casts around them.
    ``in_float32`` says afterwards which did.
    """

    def __init__(self, model: ModelProto, known: Known, target: int, kept: Collection[str] = ()) -> None:
        self.model, self.known, self.target = model, known, target
        self.kept = frozenset(kept) | FIXED if target == TensorProto.DOUBLE else frozenset()
        self.in_float32: set[str] = set()
        self._fresh = fresh_names()
        self._opset = opset_of(model)

    def rewrite(self) -> None:
        """Do it; :class:`CannotRewriteError` where the graph holds sequences, optionals or unknown types."""
        graph = self.model.graph
        constants = {tensor.name for tensor in graph.initializer}  # old files list them as inputs too
        put(graph.input, [info for info in graph.input if info.name not in constants])
        self._rewrite_graph(graph)

    def _rewrite_graph(self, graph: GraphProto) -> None:
        del graph.value_info[:]  # they tell of the types before
        casts = [node for tensor in graph.initializer for node in self._initializer(tensor)]
        for info in (*graph.input, *graph.output):
            kind = info.type.WhichOneof("value")
            if kind not in {"tensor_type", None}:
                raise CannotRewriteError(f"{info.name} is no tensor but a {str(kind).removesuffix('_type')}")
            if info.type.tensor_type.elem_type in FLOATS:
                info.type.tensor_type.elem_type = self.target
        nodes = [new for node in graph.node for new in self._node(node)]
        put(graph.node, [*casts, *nodes])

    def _initializer(self, tensor: TensorProto) -> Iterator[NodeProto]:
        """Convert a small tensor where it stands; a large one by a Cast, so that its file stays as it is."""
        if tensor.data_type not in FLOATS or tensor.data_type == self.target:
            return
        if elements(tensor) <= LARGE and tensor.data_location != TensorProto.EXTERNAL:
            tensor.CopyFrom(self._converted(tensor))
            return
        name = tensor.name
        tensor.name = self._fresh(name)
        yield helper.make_node("Cast", [tensor.name], [name], to=self.target)

    def _converted(self, tensor: TensorProto) -> TensorProto:
        with np.errstate(over="ignore"):
            array = np.asarray(numpy_helper.to_array(tensor)).astype(self._dtype)
        return numpy_helper.from_array(array, tensor.name)

    @property
    def _dtype(self) -> np.dtype[np.generic]:
        return helper.tensor_dtype_to_np_dtype(self.target)

    def _node(self, node: NodeProto) -> Iterator[NodeProto]:
        for inner in inner_graphs(node):
            self._rewrite_graph(inner)
        if self.target == TensorProto.DOUBLE:
            if node.op_type not in self.kept and (
                written := write_out(node, self.known, self._opset, self._fresh)
            ):
                yield from written
                return
            if node.op_type in self.kept or node.domain not in OWN:
                yield from self._keep(node)
                return
        for attribute in node.attribute:
            if attribute.name in TYPE_ATTRIBUTES and attribute.i in FLOATS:
                attribute.i = self.target
            elif attribute.type == AttributeProto.TENSOR and attribute.t.data_type in FLOATS:
                attribute.t.CopyFrom(self._converted(attribute.t))
            elif attribute.name in {"value_float", "value_floats"}:
                values = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                tensor = numpy_helper.from_array(np.asarray(values, dtype=self._dtype))
                attribute.CopyFrom(helper.make_attribute("value", tensor))
        yield node

    def _keep(self, node: NodeProto) -> Iterator[NodeProto]:
        """Yield a node that computes in float32, between casts."""
        unknown = [name for name in (*node.input, *node.output) if name and name not in self.known.types]
        if unknown:
            raise CannotRewriteError(f"nothing tells the type of {unknown[0]}, at a {node.op_type}")
        self.in_float32.add(node.op_type)
        after = []
        for i, name in enumerate(node.input):
            if name and self.known.is_float(name):
                node.input[i] = self._fresh(name)
                yield helper.make_node("Cast", [name], [node.input[i]], to=TensorProto.FLOAT)
        for i, name in enumerate(node.output):
            if name and self.known.is_float(name):
                node.output[i] = self._fresh(name)
                after.append(helper.make_node("Cast", [node.output[i]], [name], to=self.target))
        for attribute in node.attribute:  # half types have become float32
            if attribute.name in {*TYPE_ATTRIBUTES, "output_dtype"} and attribute.i in FLOATS:
                attribute.i = TensorProto.FLOAT
        yield node
        yield from after


def write_out(node: NodeProto, known: Known, opset: int, fresh: Fresh) -> list[NodeProto]:
    """Return nodes that do what a node does, with operators that have float64 kernels; none: leave it."""
    nodes = Nodes(fresh)
    if node.op_type == "Conv" and not node.domain and opset >= 11:
        _write_convolution(nodes, node, known)
    shape = known.shapes.get(node.input[0]) if node.input else None
    if node.op_type == "GlobalAveragePool" and not node.domain and shape is not None:
        axes = range(2, len(shape))
        if opset >= 18:
            nodes.add("ReduceMean", node.input[0], nodes.integers(*axes), out=node.output[0], keepdims=1)
        else:
            nodes.add("ReduceMean", node.input[0], out=node.output[0], axes=list(axes), keepdims=1)
    return nodes.nodes


def _write_convolution(nodes: Nodes, node: NodeProto, known: Known) -> None:
    """Add the product of each of the kernel's places, their sum in the output's shape, and the bias."""
    weights = tuple(size for size in known.shapes.get(node.input[1], ()) if size is not None)
    kernel, rank = weights[2:], len(weights) - 2
    padding = attribute_of(node, "auto_pad", b"NOTSET")
    if rank < 1 or len(weights) < len(known.shapes[node.input[1]]) or prod(kernel) > MOST_PLACES:
        return
    if padding not in {b"NOTSET", b"VALID"}:
        return
    strides, dilations, pads = (
        list(attribute_of(node, name) or default)  # type: ignore[call-overload] # ONNX's type is a list
        for name, default in (("strides", [1] * rank), ("dilations", [1] * rank), ("pads", [0] * 2 * rank))
    )
    group, x = int(str(attribute_of(node, "group", 1))), node.input[0]
    if any(pads) and padding == b"NOTSET":
        x = nodes.add("Pad", x, nodes.integers(0, 0, *pads[:rank], 0, 0, *pads[rank:]))
    axes, steps = nodes.integers(*range(2, 2 + rank)), nodes.integers(*strides)
    grouped_x = nodes.integers(0, group, weights[1], -1)
    grouped_w = nodes.integers(1, group, weights[0] // group, weights[1])
    total = part = ""  # the sum is [N, group, M / group, L]
    for place in itertools.product(*map(range, kernel)):
        starts = [i * d for i, d in zip(place, dilations, strict=True)]
        behind = [(k - 1 - i) * d for i, k, d in zip(place, kernel, dilations, strict=True)]
        ends = [-more if more else END for more in behind]
        part = nodes.add("Slice", x, nodes.integers(*starts), nodes.integers(*ends), axes, steps)
        after = nodes.integers(*(i + 1 for i in place))
        at = nodes.add("Slice", node.input[1], nodes.integers(*place), after, axes)
        product = nodes.add(
            "MatMul", nodes.add("Reshape", at, grouped_w), nodes.add("Reshape", part, grouped_x)
        )
        total = nodes.add("Add", total, product) if total else product
    spatial = nodes.add("Slice", nodes.add("Shape", part), nodes.integers(2), nodes.integers(END))
    shape = nodes.add("Concat", nodes.integers(0, weights[0]), spatial, axis=0)
    if len(node.input) < 3 or not node.input[2]:
        nodes.add("Reshape", total, shape, out=node.output[0])
        return
    bias = nodes.add("Reshape", node.input[2], nodes.integers(1, weights[0], *[1] * rank))
    nodes.add("Add", nodes.add("Reshape", total, shape), bias, out=node.output[0])
