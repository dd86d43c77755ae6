"""Multi-scale deformable attention, NVIDIA's plugin for it: graphs that call it, and what it computes.

Each query looks at a few points of each of some feature maps: y = Σ over levels and points of
weight · bilinear sample. A location (x, y) in 0 to 1 lies at pixel (x · width − 0.5, y · height − 0.5), and
a map is zero outside. Operator, inputs and arithmetic:
https://github.com/NVIDIA/TensorRT/tree/main/plugin/multiscaleDeformableAttnPlugin. The graphs equal those of
torch.onnx.export(opset_version=17, dynamo=False) of torch 2.13 (tests/torch/test_deformable_plugin.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtmatrix.authoring.arithmetic import FLOAT64, Arithmetic
from trtmatrix.authoring.graph import Graph, element_type

Array = NDArray[Any]

PLUGIN = "MultiscaleDeformableAttnPlugin_TRT"
DOMAIN = "nvidia"
"""As NVIDIA's own exports have it; TensorRT finds a plugin by its name, ONNX's checker needs a domain."""

ARGUMENTS = ("value", "spatial_shapes", "level_start_index", "sampling_locations", "attention_weights")
"""The plugin's inputs in their order."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Extents; `levels` are the feature maps' (height, width)."""

    batch: int
    heads: int
    channels: int
    queries: int
    points: int
    levels: tuple[tuple[int, int], ...]

    @property
    def shapes(self) -> Array:
        """The levels as the plugin takes them, int64 (levels, 2)."""
        return np.array(self.levels, dtype=np.int64)

    @property
    def starts(self) -> Array:
        """Where each level starts among the value's rows, int64 (levels,)."""
        rows = self.shapes.prod(axis=1)
        return np.asarray(np.cumsum(rows) - rows)

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the graph's inputs."""
        rows, asked = int(self.shapes.prod(axis=1).sum()), (self.batch, self.queries, self.heads)
        return {
            "value": (self.batch, rows, self.heads, self.channels),
            "sampling_locations": (*asked, len(self.levels), self.points, 2),
            "attention_weights": (*asked, len(self.levels), self.points),
        }

    @property
    def y(self) -> tuple[int, int, int, int]:
        """Shape of the output."""
        return (self.batch, self.queries, self.heads, self.channels)

    def told(self, defect: str = "") -> tuple[Array, Array]:
        """Shapes and starts as the plugin is told them.

        "wrong-start": the second level starts at the first one's last row; "exchanged": widths for heights.
        """
        shapes, starts = self.shapes, self.starts
        if defect == "wrong-start":
            starts[1] -= shapes[0, 1]
        return (shapes[:, ::-1] if defect == "exchanged" else shapes), starts


def draw(size: Size, dtype: type[Any], beyond: float = 0.0, seed: int = 0) -> dict[str, Array]:
    """Inputs: normal values, locations uniform in −beyond to 1 + beyond, weights a softmax."""
    random, shapes = np.random.default_rng(seed), size.inputs
    logits = random.standard_normal((*size.y[:3], len(size.levels) * size.points))
    weights = np.exp(logits)
    weights /= weights.sum(axis=-1, keepdims=True)
    drawn = {
        "value": random.standard_normal(shapes["value"]),
        "sampling_locations": random.uniform(-beyond, 1 + beyond, shapes["sampling_locations"]),
        "attention_weights": weights.reshape(shapes["attention_weights"]),
    }
    return {name: array.astype(dtype) for name, array in drawn.items()}


def build(
    size: Size, dtype: type[Any], shapes: Array, starts: Array, *, cast: bool = False,
    written_out: bool = False,
) -> onnx.ModelProto:  # fmt: skip
    """The plugin's node with `shapes` and `starts` as initializers, of the integer type that they have.

    cast: they are cast to int32 by nodes; written_out: the model brings the plugin along as a function of
    ONNX operators, for those who have no plugin.
    """
    graph = Graph()
    for name, shape in size.inputs.items():
        graph.input(name, dtype, shape)
    pairs = zip(ARGUMENTS[1:3], (shapes, starts), strict=True)
    constants = [graph.initializer(name, array) for name, array in pairs]
    if cast:
        constants = [graph.Cast(name, to=element_type(np.int32)) for name in constants]
    graph.node(PLUGIN, "value", *constants, *ARGUMENTS[3:], domain=DOMAIN, out="y")
    graph.output("y", dtype, size.y)
    return graph.model(functions=[_function(size)] if written_out else [])


def _function(size: Size) -> onnx.FunctionProto:
    """The plugin by GridSample, level by level; in float32, as float16 would round its grid of −1 to 1."""
    graph, pairs = Graph(), size.batch * size.heads
    value, locations, weights = (
        graph.Cast(name, to=element_type(np.float32)) for name in (ARGUMENTS[0], *ARGUMENTS[3:])
    )
    shapes, starts = (graph.Cast(name, to=element_type(np.int64)) for name in ARGUMENTS[1:3])
    value = graph.Transpose(value, perm=[0, 2, 3, 1])
    locations = graph.Transpose(locations, perm=[0, 2, 1, 3, 4, 5])
    weights = graph.Transpose(weights, perm=[0, 2, 1, 3, 4])
    two, one = (graph.constant(np.array(number, np.float32)) for number in (2.0, 1.0))
    grid = graph.Sub(graph.Mul(locations, two), one)  # GridSample's −1 to 1
    sums = []
    for level in range(len(size.levels)):  # rows from its start on as maps: (pairs, channels, height, width)
        extent = graph.Gather(shapes, np.array(level), axis=0)
        start = graph.Gather(starts, [level], axis=0)
        rows = graph.Slice(value, start, graph.Add(start, graph.ReduceProd(extent, keepdims=1)), [3])
        maps = graph.Reshape(rows, graph.Concat([pairs, size.channels], extent, axis=0))
        places = graph.Gather(grid, np.array(level), axis=3)
        places = graph.Reshape(places, [pairs, size.queries, size.points, 2])
        sampled = graph.GridSample(maps, places, mode="bilinear", padding_mode="zeros", align_corners=0)
        weight = graph.Gather(weights, np.array(level), axis=3)
        weight = graph.Reshape(weight, [pairs, 1, size.queries, size.points])
        sums.append(graph.ReduceSum(graph.Mul(sampled, weight), [3], keepdims=0))
    y = graph.Reshape(graph.Sum(*sums), [size.batch, size.heads, size.channels, size.queries])
    graph.CastLike(graph.Transpose(y, perm=[0, 3, 1, 2]), ARGUMENTS[0], out="y")
    return graph.function(DOMAIN, PLUGIN, list(ARGUMENTS), ["y"])


def compute(
    inputs: dict[str, Array], shapes: Array, starts: Array, arithmetic: Arithmetic = FLOAT64,
    defect: str = "",
) -> Array:  # fmt: skip
    """The output (batch, queries, heads, channels) with the plugin's five inputs; in float64 the reference.

    Each product and sum is rounded by itself, in the order of the plugin's kernels; defects: see `_place`.
    """
    a = arithmetic
    names = (ARGUMENTS[0], *ARGUMENTS[3:])
    value, locations, weights = (a.stored(inputs[name].astype(a.working)) for name in names)
    y = np.zeros((*locations.shape[:3], value.shape[-1]), dtype=a.working)
    for level, ((height, width), start) in enumerate(zip(shapes, starts, strict=True)):
        maps = value[:, start : start + height * width]
        maps = maps.reshape(-1, height, width, *value.shape[2:])
        for point in range(locations.shape[4]):
            column, row = (
                _place(locations[:, :, :, level, point, axis], extent, a, defect)
                for axis, extent in enumerate((width, height))
            )
            weight = weights[:, :, :, level, point, None]
            y = a.stored(y + a.stored(_bilinear(maps, row, column, a) * weight))
    return y


def _place(location: Array, extent: int, a: Arithmetic, defect: str) -> Array:
    """The pixel that a location is at; with a defect another one.

    "shifted": half a pixel further; "align-corners": 0 and 1 are the middles of the outermost pixels;
    "border": places outside are moved to the nearest pixel, where the map is zero by right.
    """
    if defect == "align-corners":
        return a.stored(location * a.working(extent - 1))
    place = a.stored(location * a.working(extent))
    if defect != "shifted":
        place = a.stored(place - a.working(0.5))
    return place.clip(0, extent - 1) if defect == "border" else place


def _bilinear(maps: Array, row: Array, column: Array, a: Arithmetic) -> Array:
    """Samples (batch, queries, heads, channels) of maps (batch, height, width, heads, channels)."""
    top, left = np.floor(row), np.floor(column)
    below, right = a.stored(row - top), a.stored(column - left)
    above, beside = a.stored(1 - below), a.stored(1 - right)
    pairs = []
    for y, down in ((top, above), (top + 1, below)):
        one, other = (
            a.stored(a.stored(down * across)[..., None] * _pixels(maps, y, x))
            for x, across in ((left, beside), (left + 1, right))
        )
        pairs.append(a.stored(one + other))
    return a.stored(pairs[0] + pairs[1])


def _pixels(maps: Array, row: Array, column: Array) -> Array:
    """The pixels at whole positions, zero outside."""
    batch, height, width, heads, _ = maps.shape
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    y, x = (np.where(inside, position, 0).astype(np.intp) for position in (row, column))
    which = np.arange(batch)[:, None, None], y, x, np.arange(heads)[None, None, :]
    return np.where(inside[..., None], maps[which], maps.dtype.type(0))
