"""Writes out in float64 what ONNX Runtime's CPU has no float64 kernel for: convolutions and global averages.

A convolution is a sum over its kernel's places: there the input, shifted and strided, is multiplied with the
weights of that place. Definition: https://onnx.ai/onnx/operators/onnx__Conv.html.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from trtmatrix.onnxmodel.walk import Known, attribute_of

MOST_PLACES = 125
"""Places of a kernel up to which a convolution is written out."""

END = sys.maxsize >> 1
Fresh = Callable[[str], str]


def expand(node: NodeProto, known: Known, opset: int, fresh: Fresh) -> list[NodeProto]:
    """Return nodes that do what a node does, with operators that have float64 kernels; none: leave it."""
    if node.domain:
        return []
    if node.op_type == "Conv":
        return _conv(node, known, fresh) if opset >= 11 else []
    if node.op_type == "GlobalAveragePool":
        return _global_average(node, known, opset, fresh)
    return []


class Builder:
    """Collects nodes and the constants that they take."""

    def __init__(self, fresh: Fresh) -> None:
        """Begin with no node."""
        self.nodes: list[NodeProto] = []
        self._fresh = fresh

    def constant(self, values: Sequence[int]) -> str:
        """Add int64 numbers."""
        tensor = numpy_helper.from_array(np.asarray(values, dtype=np.int64))
        return self.add("Constant", [], value=tensor)

    def add(self, op: str, inputs: list[str], out: str = "", **attributes: object) -> str:
        """Add a node; returns the name of its output."""
        name = out or self._fresh(op)
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name


def _global_average(node: NodeProto, known: Known, opset: int, fresh: Fresh) -> list[NodeProto]:
    shape = known.shapes.get(node.input[0])
    if shape is None:
        return []
    axes = list(range(2, len(shape)))
    build = Builder(fresh)
    if opset >= 18:
        build.add("ReduceMean", [node.input[0], build.constant(axes)], out=node.output[0], keepdims=1)
    else:
        build.add("ReduceMean", [node.input[0]], out=node.output[0], axes=axes, keepdims=1)
    return build.nodes


def _conv(node: NodeProto, known: Known, fresh: Fresh) -> list[NodeProto]:
    shape = known.shapes.get(node.input[1])
    if shape is None or any(size is None for size in shape) or len(shape) < 3:
        return []
    weights = tuple(size for size in shape if size is not None)
    kernel = weights[2:]
    ones = [1] * len(kernel)
    strides, dilations = (_numbers(node, name, ones) for name in ("strides", "dilations"))
    pads = _numbers(node, "pads", [0] * (2 * len(kernel)))
    padding = attribute_of(node, "auto_pad", b"NOTSET")
    if padding not in {b"NOTSET", b"VALID"} or prod(kernel) > MOST_PLACES:
        return []
    group = int(str(attribute_of(node, "group", 1)))
    build = Builder(fresh)
    x = node.input[0]
    if any(pads) and padding == b"NOTSET":
        half = len(kernel)
        x = build.add("Pad", [x, build.constant([0, 0, *pads[:half], 0, 0, *pads[half:]])])
    total, part = _sum_over_places(build, x, node.input[1], weights, group, strides, dilations)
    bias = node.input[2] if len(node.input) > 2 else ""
    _back(build, total, part, weights[0], len(kernel), bias, node.output[0])
    return build.nodes


def _numbers(node: NodeProto, name: str, default: list[int]) -> list[int]:
    found = attribute_of(node, name)
    return [int(value) for value in found] if isinstance(found, (list, tuple)) else default


def _sum_over_places(
    build: Builder, x: str, w: str, weights: tuple[int, ...], group: int, strides: list[int],
    dilations: list[int],
) -> tuple[str, str]:  # fmt: skip
    """Add the product of each place; returns the sum [N, group, M / group, L] and one shifted input."""
    kernel = weights[2:]
    axes = build.constant(range(2, len(weights)))
    steps = build.constant(strides)
    grouped_x = build.constant([0, group, weights[1], -1])
    grouped_w = build.constant([1, group, weights[0] // group, weights[1]])
    total = part = ""
    for place in itertools.product(*map(range, kernel)):
        starts = [i * d for i, d in zip(place, dilations, strict=True)]
        behind = [(k - 1 - i) * d for i, k, d in zip(place, kernel, dilations, strict=True)]
        ends = [-more if more else END for more in behind]
        part = build.add("Slice", [x, build.constant(starts), build.constant(ends), axes, steps])
        at = build.add(
            "Slice", [w, build.constant(place), build.constant([i + 1 for i in place]), axes]
        )
        product = build.add(
            "MatMul", [build.add("Reshape", [at, grouped_w]), build.add("Reshape", [part, grouped_x])]
        )
        total = build.add("Add", [total, product]) if total else product
    return total, part


def _back(build: Builder, total: str, part: str, channels: int, rank: int, bias: str, out: str) -> None:
    """Give the sum the output's shape, and add the bias."""
    spatial = build.add("Slice", [build.add("Shape", [part]), build.constant([2]), build.constant([END])])
    shape = build.add("Concat", [build.constant([0, channels]), spatial], axis=0)
    if not bias:
        build.add("Reshape", [total, shape], out=out)
        return
    added = build.add("Reshape", [bias, build.constant([1, channels, *[1] * rank])])
    build.add("Add", [build.add("Reshape", [total, shape]), added], out=out)
