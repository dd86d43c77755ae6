"""Rewrites a float32 graph to compute as a GPU may in less precision: rounded by ONNX's own operators.

Rounding to TF32's 10 mantissa bits is Veltkamp's splitting: with c = RN((2^13 + 1)·x), RN(c - RN(c - x)) is x
rounded to nearest (T. J. Dekker, Numer. Math. 18, 224-242, 1971).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from trtmatrix.onnxmodel.graphs import Known, Nodes, attribute_of, fresh_names, inner_graphs, put

PRODUCTS: Mapping[str, tuple[int, ...]] = {
    "MatMul": (0, 1), "Gemm": (0, 1), "Conv": (0, 1), "ConvTranspose": (0, 1), "DeformConv": (0, 1),
    "Einsum": (0, 1, 2, 3), "LSTM": (0, 1, 2), "GRU": (0, 1, 2), "RNN": (0, 1, 2),
    "Attention": (0, 1, 2),
}  # fmt: skip
"""Operators that multiply matrices → the inputs that are operands."""

AS_GIVEN: Mapping[str, tuple[int, ...]] = {
    "QuantizeLinear": (1,), "DequantizeLinear": (1,), "Resize": (1, 2), "Upsample": (1,), "Range": (0, 1, 2),
}  # fmt: skip
"""Inputs that stay as they are: scales of quantizing, sizes."""

HALF: Mapping[int, str] = {TensorProto.FLOAT16: "fp16", TensorProto.BFLOAT16: "bf16"}
GIVEN = "__given"
"""What is put behind an input's name where the graph takes it rounded."""

MOST_BLOCKS = 32
"""Blocks of one sum: more of them make a graph slow to load. Longer sums have longer blocks."""

LOWEST_NORMAL, MAGIC = 2.0**-126, 1.5 * 2.0**-113
HUGE, SHRINK = 2.0**100, 2.0**-60


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """How a member of the ensemble computes.

    ``kind``: ``"fp32"`` rounds nothing, ``"tf32"`` the operands of products, ``"fp16"`` and ``"bf16"`` every
    tensor. ``grid``: what is rounded is multiplied by it first and divided by it after, so that the errors
    are others but of the same size; what is exact without it stays exact. ``terms``: so many products are
    summed up at once, then the sum is rounded (0: all of them).
    """

    kind: str
    grid: float = 1.0
    terms: int = 0


def apply_rounding(model: ModelProto, known: Known, rounding: Rounding) -> None:
    """Rewrite a float32 model in place; ``known``: its tensors' types before they all became float32.

    What was float16 or bfloat16 before is rounded to that in every member, but for ``"fp32"``.
    """
    Rewriting(rounding, known).rewrite(model.graph)


class Rewriting:
    """Rewrites the graphs of one model."""

    def __init__(self, rounding: Rounding, known: Known) -> None:
        self.rounding, self.known = rounding, known
        self.fresh = fresh_names()

    def rewrite(self, graph: GraphProto, *, inner: bool = False) -> None:
        """Rewrite a graph and those inside of it."""
        del graph.value_info[:]
        exact: dict[str, str] = {}  # a rounded tensor → what it is the rounding of
        nodes: list[NodeProto] = []
        for tensor in graph.initializer:
            kind = self._stored(tensor.name)
            if kind and self.known.types[tensor.name] not in HALF:  # those are of few bits
                name, tensor.name = tensor.name, self.fresh(tensor.name)
                exact[name] = tensor.name
                nodes += self.round(tensor.name, name, kind)
        for info in () if inner else graph.input:
            if kind := self._stored(info.name):
                name, info.name = info.name, info.name + GIVEN
                exact[name] = info.name
                nodes += self.round(info.name, name, kind)
        for node in graph.node:
            for body in inner_graphs(node):
                self.rewrite(body, inner=True)
            nodes += self._node(node, exact)
        put(graph.node, nodes)

    def _stored(self, name: str) -> str:
        """Return how a tensor is rounded where it is stored, or nothing."""
        kind = self.rounding.kind
        if not self.known.is_float(name) or kind == "fp32":
            return ""
        return HALF.get(self.known.types[name], "") or (kind if kind in {"fp16", "bf16"} else "")

    def _node(self, node: NodeProto, exact: dict[str, str]) -> Iterator[NodeProto]:
        """Yield a node with the roundings around it."""
        for i in AS_GIVEN.get(node.op_type, ()):
            if i < len(node.input):
                node.input[i] = exact.get(node.input[i], node.input[i])
        yield from self._operands(node)
        after: list[NodeProto] = []
        for i, name in enumerate(node.output):
            if name and (kind := self._stored(name)):
                node.output[i] = exact[name] = self.fresh(name)
                after += self.round(node.output[i], name, kind)
        yield from (self._split(node) if self.rounding.terms else []) or [node]
        yield from after

    def _operands(self, node: NodeProto) -> Iterator[NodeProto]:
        """Yield what rounds the operands of a product, where those alone are rounded."""
        kind, known = self.rounding.kind, self.known
        if kind not in {"fp32", "tf32"} or (kind == "fp32" and self.rounding.grid == 1):
            return
        for i in PRODUCTS.get(node.op_type, ()) if not node.domain else ():
            name = node.input[i] if i < len(node.input) else ""
            if name and known.is_float(name) and known.types[name] not in HALF:
                node.input[i] = self.fresh(name)
                yield from self.round(name, node.input[i], kind)

    def _split(self, node: NodeProto) -> list[NodeProto]:
        """Return nodes that do what a product does, a few terms at once; none where it stays whole.

        Each partial sum is rounded.
        """
        found = _summed_axes(node, self.known)
        if found is None:
            return []
        axis_a, axis_b, length, at_once = found
        each = max(ceil(self.rounding.terms / at_once), ceil(length / MOST_BLOCKS))
        count = ceil(length / each)
        if count < 2:
            return []
        nodes, total = Nodes(self.fresh), ""
        for number in range(count):
            low, high = number * each, sys.maxsize if number == count - 1 else (number + 1) * each
            part = NodeProto()
            part.CopyFrom(node)
            for i, axis in ((0, axis_a), (1, axis_b)):
                limits = [nodes.integers(value) for value in (low, high, axis)]
                part.input[i] = nodes.add("Slice", node.input[i], *limits)
            if number:
                del part.input[2:]  # the bias is added once
            part.name, part.output[0] = "", self.fresh("part")
            nodes.nodes.append(part)
            added = nodes.add("Add", total, part.output[0]) if total else part.output[0]
            total = node.output[0] if number == count - 1 else self.fresh("total")
            nodes.nodes += self.round(added, total, "bf16" if self.rounding.kind == "bf16" else "fp16")
        return nodes.nodes

    def round(self, name: str, out: str, kind: str) -> list[NodeProto]:
        """Return nodes that round one float32 tensor into another."""
        nodes = Nodes(self.fresh)
        rounder = {"fp32": same, "tf32": tf32, "fp16": fp16, "bf16": bf16}[kind]
        if self.rounding.grid == 1:
            rounder(nodes, name, out)
            return nodes.nodes
        grid = nodes.number(self.rounding.grid)
        shifted = nodes.add("Div", rounder(nodes, nodes.add("Mul", name, grid), ""), grid)
        if kind == "fp32":
            same(nodes, shifted, out)
        else:
            plain = rounder(nodes, name, "")
            nodes.add("Where", nodes.add("Equal", plain, name), plain, shifted, out=out)
        return nodes.nodes


def same(nodes: Nodes, name: str, out: str) -> str:
    """Round nothing."""
    return nodes.add("Identity", name, out=out)


def tf32(nodes: Nodes, name: str, out: str) -> str:
    """Round to 10 mantissa bits, to nearest even; beyond float32's range it is infinite.

    Below its normal numbers what counts is their common last place, 2^-136: there a sum rounds to that. Far
    up, where the splitting would overflow, a smaller number is split.
    """
    size = nodes.add("Abs", name)
    huge = nodes.add("Greater", size, nodes.number(HUGE))
    factor = nodes.add("Where", huge, nodes.number(SHRINK), nodes.number(1.0))
    small = nodes.add("Mul", name, factor)
    c = nodes.add("Mul", small, nodes.number(8193.0))
    high = nodes.add("Sub", c, nodes.add("Sub", c, small))
    back = nodes.add("Div", high, factor)
    magic = nodes.number(MAGIC)
    tiny = nodes.add("Sub", nodes.add("Add", name, magic), magic)
    rounded = nodes.add("Where", nodes.add("Less", size, nodes.number(LOWEST_NORMAL)), tiny, back)
    finite = nodes.add("LessOrEqual", size, nodes.number(float(np.finfo(np.float32).max)))
    return nodes.add("Where", finite, rounded, name, out=out)


def fp16(nodes: Nodes, name: str, out: str) -> str:
    """Round to float16; beyond 65504 it is infinite, as on a GPU."""
    half = nodes.add("Cast", name, to=TensorProto.FLOAT16)
    return nodes.add("Cast", half, out=out, to=TensorProto.FLOAT)


def bf16(nodes: Nodes, name: str, out: str) -> str:
    """Round to bfloat16."""
    half = nodes.add("Cast", name, to=TensorProto.BFLOAT16)
    return nodes.add("Cast", half, out=out, to=TensorProto.FLOAT)


def _summed_axes(node: NodeProto, known: Known) -> tuple[int, int, int, int] | None:
    """Return the axis that is summed over in both operands, its length, and the terms of one step of it."""
    a, b = (known.shapes.get(name) for name in (*node.input, "", "")[:2])
    if node.domain or a is None or b is None or len(a) < 2 or len(b) < 2:
        return None
    axis_a, axis_b = len(a) - 1, len(b) - 2
    match node.op_type:
        case "MatMul":
            pass
        case "Gemm":
            axis_a = 0 if attribute_of(node, "transA", 0) else 1
            axis_b = 1 if attribute_of(node, "transB", 0) else 0
        case "Conv" if attribute_of(node, "group", 1) == 1:
            kernel = [size for size in b[2:] if size is not None]
            return (1, 1, b[1], max(1, prod(kernel))) if b[1] and len(kernel) == len(b) - 2 else None
        case _:
            return None
    length = b[axis_b] if b[axis_b] is not None else a[axis_a]
    return (axis_a, axis_b, length, 1) if length else None
