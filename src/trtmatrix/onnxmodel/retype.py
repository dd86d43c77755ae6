"""Rewrites a graph so that its real numbers are of one type: float64 for references, float32 for floors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from trtmatrix.onnxmodel.convolve import expand
from trtmatrix.onnxmodel.walk import (
    FLOATS,
    LARGE,
    OWN,
    Known,
    drop_overridable,
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


class CannotRewriteError(Exception):
    """The graph has something that it cannot be rewritten with; the message says what."""


class Retyping:
    """Rewrites one model, in place, so that all real numbers have the type ``target``.

    ``known``: its tensors' types before. ``kept``: operators that stay in float32, with casts around them.
    ``in_float32`` says afterwards which did.
    """

    def __init__(self, model: ModelProto, known: Known, target: int, kept: Collection[str] = ()) -> None:
        """Take what is to be rewritten."""
        self.model, self.known, self.target = model, known, target
        self.kept = frozenset(kept) | FIXED if target == TensorProto.DOUBLE else frozenset()
        self.in_float32: set[str] = set()
        self._fresh = fresh_names()
        self._opset = opset_of(model)

    def rewrite(self) -> None:
        """Do it; :class:`CannotRewriteError` where the graph holds sequences, optionals or unknown types."""
        drop_overridable(self.model.graph)
        self._rewrite_graph(self.model.graph, self.known)

    def _rewrite_graph(self, graph: GraphProto, known: Known) -> None:
        del graph.value_info[:]  # they tell of the types before
        casts = [node for tensor in graph.initializer for node in self._initializer(tensor)]
        for info in (*graph.input, *graph.output):
            kind = info.type.WhichOneof("value")
            if kind not in {"tensor_type", None}:
                raise CannotRewriteError(f"{info.name} is no tensor but a {str(kind).removesuffix('_type')}")
            if info.type.tensor_type.elem_type in FLOATS:
                info.type.tensor_type.elem_type = self.target
        nodes = [new for node in graph.node for new in self._node(node, known)]
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
        dtype = helper.tensor_dtype_to_np_dtype(self.target)
        with np.errstate(over="ignore"):
            array = np.asarray(numpy_helper.to_array(tensor)).astype(dtype)
        return numpy_helper.from_array(array, tensor.name)

    def _node(self, node: NodeProto, known: Known) -> Iterator[NodeProto]:
        for inner in inner_graphs(node):
            self._rewrite_graph(inner, known)
        if self.target == TensorProto.DOUBLE:
            if node.op_type not in self.kept and (expanded := expand(node, known, self._opset, self._fresh)):
                yield from expanded
                return
            if node.op_type in self.kept or node.domain not in OWN:
                yield from self._keep(node, known)
                return
        for attribute in node.attribute:
            self._attribute(attribute)
        yield node

    def _attribute(self, attribute: AttributeProto) -> None:
        if attribute.name in TYPE_ATTRIBUTES and attribute.i in FLOATS:
            attribute.i = self.target
        elif attribute.type == AttributeProto.TENSOR and attribute.t.data_type in FLOATS:
            attribute.t.CopyFrom(self._converted(attribute.t))
        elif attribute.name in {"value_float", "value_floats"}:
            values = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            array = np.asarray(values, dtype=helper.tensor_dtype_to_np_dtype(self.target))
            attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(array)))

    def _keep(self, node: NodeProto, known: Known) -> Iterator[NodeProto]:
        """Yield a node that computes in float32, between casts."""
        unknown = [name for name in (*node.input, *node.output) if name and name not in known.types]
        if unknown:
            raise CannotRewriteError(f"nothing tells the type of {unknown[0]}, at a {node.op_type}")
        self.in_float32.add(node.op_type)
        after = []
        for i, name in enumerate(node.input):
            if name and known.is_float(name):
                node.input[i] = self._fresh(name)
                yield helper.make_node("Cast", [name], [node.input[i]], to=TensorProto.FLOAT)
        for i, name in enumerate(node.output):
            if name and known.is_float(name):
                node.output[i] = self._fresh(name)
                after.append(helper.make_node("Cast", [node.output[i]], [name], to=self.target))
        for attribute in node.attribute:  # half types have become float32
            if attribute.name in {*TYPE_ATTRIBUTES, "output_dtype"} and attribute.i in FLOATS:
                attribute.i = TensorProto.FLOAT
        yield node
        yield from after


Fresh = Callable[[str], str]
