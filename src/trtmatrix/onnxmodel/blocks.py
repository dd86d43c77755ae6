"""Splits products of matrices along the sum: block by block, with each partial sum rounded."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from trtmatrix.onnxmodel.walk import Known, attribute_of

MOST_BLOCKS = 32
"""Blocks of one sum: more of them make a graph slow to load. Longer sums have longer blocks."""

END = np.iinfo(np.int64).max
Fresh = Callable[[str], str]
Rounds = Callable[[str, str], list[NodeProto]]


def split(node: NodeProto, known: Known, terms: int, fresh: Fresh, rounds: Rounds) -> list[NodeProto]:
    """Return nodes that do what a product does, summing up ``terms`` at once; none where it stays whole.

    ``rounds`` gives nodes that round one tensor into another.
    """
    found = _axes(node, known)
    if found is None:
        return []
    axis_a, axis_b, length, at_once = found
    each = max(ceil(terms / at_once), ceil(length / MOST_BLOCKS))
    count = ceil(length / each)
    if count < 2:
        return []
    nodes: list[NodeProto] = []
    total = ""
    for number in range(count):
        low, high = number * each, END if number == count - 1 else (number + 1) * each
        part = NodeProto()
        part.CopyFrom(node)
        for i, axis in ((0, axis_a), (1, axis_b)):
            part.input[i] = _slice(nodes, node.input[i], axis, low, high, fresh)
        if number:
            del part.input[2:]  # the bias is added once
        part.name, part.output[0] = "", fresh("part")
        nodes.append(part)
        added = part.output[0]
        if total:
            added = fresh("sum")
            nodes.append(helper.make_node("Add", [total, part.output[0]], [added]))
        total = node.output[0] if number == count - 1 else fresh("total")
        nodes += rounds(added, total)
    return nodes


def _slice(nodes: list[NodeProto], name: str, axis: int, low: int, high: int, fresh: Fresh) -> str:
    numbers = []
    for value in (low, high, axis):
        numbers.append(fresh("number"))
        tensor = numpy_helper.from_array(np.asarray([value], dtype=np.int64))
        nodes.append(helper.make_node("Constant", [], [numbers[-1]], value=tensor))
    out = fresh("slice")
    nodes.append(helper.make_node("Slice", [name, *numbers], [out]))
    return out


def _axes(node: NodeProto, known: Known) -> tuple[int, int, int, int] | None:
    """Return the axis that is summed over in both operands, its length, and the terms of one step of it."""
    a, b = (known.shapes.get(name) for name in (*node.input, "", "")[:2])
    if node.domain or a is None or b is None or len(a) < 2 or len(b) < 2:
        return None
    if node.op_type == "MatMul":
        length = b[-2] if b[-2] is not None else a[-1]
        return (len(a) - 1, len(b) - 2, length, 1) if length else None
    if node.op_type == "Gemm":
        axis_a = 0 if attribute_of(node, "transA", 0) else 1
        axis_b = 1 if attribute_of(node, "transB", 0) else 0
        length = b[axis_b] if b[axis_b] is not None else a[axis_a]
        return (axis_a, axis_b, length, 1) if length else None
    if node.op_type == "Conv" and attribute_of(node, "group", 1) == 1:
        kernel = [size for size in b[2:] if size is not None]
        return (1, 1, b[1], max(1, prod(kernel))) if b[1] and len(kernel) == len(b) - 2 else None
    return None
