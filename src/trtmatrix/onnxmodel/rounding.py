"""Rewrites a float32 graph so that it computes as a GPU may in less precision: rounded by ONNX's own operators.

Rounding to TF32's 10 mantissa bits is Veltkamp's splitting: with c = RN((2^13 + 1)·x), RN(c - RN(c - x)) is x
rounded to nearest (T. J. Dekker, Numer. Math. 18, 224-242, 1971).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from trtmatrix.onnxmodel.blocks import split
from trtmatrix.onnxmodel.walk import Known, fresh_names, inner_graphs, put

PRODUCTS: Mapping[str, tuple[int, ...]] = {
    "MatMul": (0, 1), "Gemm": (0, 1), "Conv": (0, 1), "ConvTranspose": (0, 1), "DeformConv": (0, 1),
    "Einsum": (0, 1, 2, 3), "LSTM": (0, 1, 2), "GRU": (0, 1, 2), "RNN": (0, 1, 2), "Attention": (0, 1, 2),
}  # fmt: skip
"""Operators that multiply matrices → the inputs that are operands."""

AS_GIVEN: Mapping[str, tuple[int, ...]] = {
    "QuantizeLinear": (1,), "DequantizeLinear": (1,), "Resize": (1, 2), "Upsample": (1,), "Range": (0, 1, 2),
}  # fmt: skip
"""Inputs that stay as they are: scales of quantizing, sizes."""

HALF = {TensorProto.FLOAT16: "fp16", TensorProto.BFLOAT16: "bf16"}
LOWEST_NORMAL, MAGIC = 2.0**-126, 1.5 * 2.0**-113
HUGE, SHRINK = 2.0**100, 2.0**-60


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """How a member of the ensemble computes.

    ``kind``: ``"fp32"`` rounds nothing, ``"tf32"`` the operands of products, ``"fp16"`` and ``"bf16"`` every
    tensor. ``grid``: what is rounded is multiplied by it first and divided by it after, so that the errors are
    others but of the same size; what is exact without it stays exact. ``terms``: so many products are summed
    up at once, then the sum is rounded (0: all of them).
    """

    kind: str
    grid: float = 1.0
    terms: int = 0


def apply_rounding(model: ModelProto, known: Known, rounding: Rounding) -> None:
    """Rewrite a float32 model in place; ``known``: its tensors' types before they all became float32.

    What was float16 or bfloat16 before is rounded to that in every member, but for ``"fp32"``.
    """
    Rewriting(rounding).rewrite(model.graph, known)


class Rewriting:
    """Rewrites the graphs of one model."""

    def __init__(self, rounding: Rounding) -> None:
        """Take how to round."""
        self.rounding = rounding
        self.fresh = fresh_names()

    def rewrite(self, graph: GraphProto, known: Known, *, inner: bool = False) -> None:
        """Rewrite a graph and those inside of it."""
        del graph.value_info[:]
        exact: dict[str, str] = {}
        nodes = [new for new in self._initializers(graph, known, exact)]
        if not inner:
            nodes += self._inputs(graph, known, exact)
        for node in graph.node:
            for body in inner_graphs(node):
                self.rewrite(body, known, inner=True)
            nodes += self._node(node, known, exact)
        put(graph.node, nodes)

    def stored(self, name: str, known: Known) -> str:
        """Return how a tensor is rounded where it is stored, or nothing."""
        if not known.is_float(name) or self.rounding.kind == "fp32":
            return ""
        half = HALF.get(known.types[name], "")
        return half or (self.rounding.kind if self.rounding.kind in {"fp16", "bf16"} else "")

    def _initializers(self, graph: GraphProto, known: Known, exact: dict[str, str]) -> Iterator[NodeProto]:
        for tensor in graph.initializer:
            if known.types.get(tensor.name) in HALF:
                continue  # it is of few bits
            if kind := self.stored(tensor.name, known):
                name, tensor.name = tensor.name, self.fresh(tensor.name)
                exact[name] = tensor.name
                yield from self.round(tensor.name, name, kind)

    def _inputs(self, graph: GraphProto, known: Known, exact: dict[str, str]) -> Iterator[NodeProto]:
        for info in graph.input:
            if kind := self.stored(info.name, known):
                name, info.name = info.name, info.name + GIVEN
                exact[name] = info.name
                yield from self.round(info.name, name, kind)

    def _node(self, node: NodeProto, known: Known, exact: dict[str, str]) -> Iterator[NodeProto]:
        """Yield a node with the roundings around it."""
        for i in AS_GIVEN.get(node.op_type, ()):
            if i < len(node.input):
                node.input[i] = exact.get(node.input[i], node.input[i])
        yield from self._operands(node, known)
        after: list[NodeProto] = []
        for i, name in enumerate(node.output):
            if name and (kind := self.stored(name, known)):
                node.output[i] = exact[name] = self.fresh(name)
                after += self.round(node.output[i], name, kind)
        parts = split(node, known, self.rounding.terms, self.fresh, self._sum) if self.rounding.terms else []
        yield from parts or [node]
        yield from after

    def _sum(self, name: str, out: str) -> list[NodeProto]:
        return self.round(name, out, "bf16" if self.rounding.kind == "bf16" else "fp16")

    def _operands(self, node: NodeProto, known: Known) -> Iterator[NodeProto]:
        kind = self.rounding.kind
        if kind not in {"fp32", "tf32"} or (kind == "fp32" and self.rounding.grid == 1):
            return
        if node.domain:
            return
        for i in PRODUCTS.get(node.op_type, ()):
            name = node.input[i] if i < len(node.input) else ""
            if name and known.is_float(name) and known.types[name] not in HALF:
                node.input[i] = self.fresh(name)
                yield from self.round(name, node.input[i], kind)

    def round(self, name: str, out: str, kind: str) -> list[NodeProto]:
        """Return nodes that round one float32 tensor into another."""
        steps = Steps(self.fresh)
        rounder = {"fp32": same, "tf32": tf32, "fp16": fp16, "bf16": bf16}[kind]
        if self.rounding.grid == 1:
            rounder(steps, name, out)
            return steps.nodes
        grid = steps.number(self.rounding.grid)
        shifted = steps.add("Div", rounder(steps, steps.add("Mul", name, grid), ""), grid)
        if kind == "fp32":
            steps.add("Identity", shifted, out=out)
            return steps.nodes
        plain = rounder(steps, name, "")
        steps.add("Where", steps.add("Equal", plain, name), plain, shifted, out=out)
        return steps.nodes


GIVEN = "__given"
"""What is put behind an input's name where the graph takes it rounded."""


class Steps:
    """Nodes in the making."""

    def __init__(self, fresh: Callable[[str], str]) -> None:
        """Begin with none."""
        self.nodes: list[NodeProto] = []
        self._fresh = fresh

    def add(self, op: str, *inputs: str, out: str = "", **attributes: object) -> str:
        """Add a node; returns the name of its output."""
        name = out or self._fresh(op)
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def number(self, value: float) -> str:
        """Add a float32 number."""
        return self.add("Constant", value=numpy_helper.from_array(np.asarray(value, dtype=np.float32)))


Rounder = Callable[[Steps, str, str], str]


def same(steps: Steps, name: str, out: str) -> str:
    """Round nothing."""
    return steps.add("Identity", name, out=out)


def tf32(steps: Steps, name: str, out: str) -> str:
    """Round to 10 mantissa bits, to nearest even; beyond float32's range it is infinite.

    Below its normal numbers what counts is their common last place, 2^-136: there a sum rounds to that. Far
    up, where the splitting would overflow, a smaller number is split.
    """
    size = steps.add("Abs", name)
    huge = steps.add("Greater", size, steps.number(HUGE))
    factor = steps.add("Where", huge, steps.number(SHRINK), steps.number(1.0))
    small = steps.add("Mul", name, factor)
    c = steps.add("Mul", small, steps.number(8193.0))
    high = steps.add("Sub", c, steps.add("Sub", c, small))
    back = steps.add("Div", high, factor)
    magic = steps.number(MAGIC)
    tiny = steps.add("Sub", steps.add("Add", name, magic), magic)
    rounded = steps.add("Where", steps.add("Less", size, steps.number(LOWEST_NORMAL)), tiny, back)
    finite = steps.add("LessOrEqual", size, steps.number(float(np.finfo(np.float32).max)))
    return steps.add("Where", finite, rounded, name, out=out)


def fp16(steps: Steps, name: str, out: str) -> str:
    """Round to float16; beyond 65504 it is infinite, as on a GPU."""
    half = steps.add("Cast", name, to=TensorProto.FLOAT16)
    return steps.add("Cast", half, out=out, to=TensorProto.FLOAT)


def bf16(steps: Steps, name: str, out: str) -> str:
    """Round to bfloat16."""
    half = steps.add("Cast", name, to=TensorProto.BFLOAT16)
    return steps.add("Cast", half, out=out, to=TensorProto.FLOAT)
