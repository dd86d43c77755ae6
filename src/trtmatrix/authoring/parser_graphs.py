"""Small graphs with an attribute or input that old ONNX parsers drop without a word, and their mathematics.

Each graph is drawn, written and computed here; ``dropped`` computes what is left of it where the parser does
not see that attribute or input: the reduction runs over all axes, the update overwrites, the filter is not
widened, the part of a shape is the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtmatrix.authoring.arithmetic import Arithmetic
from trtmatrix.authoring.graph import Graph

Array = NDArray[Any]
Arrays = Mapping[str, Array]
EPSILON = 1e-5
CUBIC = -0.75
"""The cubic coefficient a of torch and ONNX."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A graph, its inputs by name (float32), and its mathematics.

    ``write`` adds the nodes and names the outputs; ``compute`` takes the inputs in the arithmetic's type and
    whether the attribute is dropped.
    """

    inputs: Callable[[np.random.Generator], Arrays]
    write: Callable[[Graph, Arrays], None]
    compute: Callable[[Arrays, bool], Arrays]
    opset: int = 18

    def draw(self, seed: int) -> dict[str, Array]:
        """Return the inputs by name."""
        drawn = self.inputs(np.random.default_rng(seed))
        return {name: np.asarray(array, np.float32) for name, array in drawn.items()}

    def outputs(self, inputs: Arrays, arithmetic: Arithmetic, *, dropped: bool = False) -> dict[str, Array]:
        """Return the outputs by name, computed in an arithmetic's working type."""
        working = {name: array.astype(arithmetic.working) for name, array in inputs.items()}
        return {name: arithmetic.stored(array) for name, array in self.compute(working, dropped).items()}

    def model(self, inputs: Arrays) -> onnx.ModelProto:
        """Return the graph for inputs of these shapes."""
        graph = Graph()
        for name, array in inputs.items():
            graph.input(name, array.dtype, array.shape)
        self.write(graph, inputs)
        for name, array in self.compute({n: a.astype(np.float64) for n, a in inputs.items()}, False).items():
            graph.output(name, np.float32, array.shape)
        return graph.model(opset=self.opset)


def _constant(graph: Graph, value: float, rank: int = 3) -> str:
    return graph.constant(np.full((1,) * rank, value, np.float32))


# ---- Reduce: from opset 18 on the axes are an input


def _rows(random: np.random.Generator) -> Arrays:
    """Rows of very different size: one mean for all of them is far off."""
    return {"x": random.normal(size=(2, 24, 64)) * np.exp(random.uniform(-1.5, 1.5, (2, 24, 1)))}


def _channels(random: np.random.Generator) -> Arrays:
    return {"x": random.normal(size=(2, 16, 14, 14)) + 3 * random.normal(size=(2, 16, 1, 1))}


@dataclass(frozen=True, kw_only=True)
class _Reduction:
    """Writes and computes one Reduce; ``as_input``: the axes are an input, not an attribute."""

    op: str
    axes: tuple[int, ...]
    as_input: bool = True
    keep: bool = True

    def node(self, graph: Graph, source: str, out: str = "") -> str:
        if self.as_input:
            axes = graph.constant(list(self.axes))
            return graph.node(self.op, source, axes, keepdims=int(self.keep), out=out)
        return graph.node(self.op, source, axes=self.axes, keepdims=int(self.keep), out=out)

    def of(self, values: Array, dropped: bool) -> Array:
        axes = None if dropped else self.axes
        if self.op == "ReduceL2":
            return np.asarray(np.sqrt(np.sum(values * values, axis=axes, keepdims=self.keep)))
        reduce = np.max if self.op == "ReduceMax" else np.mean
        return np.asarray(reduce(values, axis=axes, keepdims=self.keep))


def _rms_norm(reduction: _Reduction) -> Example:
    def write(graph: Graph, _: Arrays) -> None:
        mean = reduction.node(graph, graph.node("Mul", "x", "x"))
        deviation = graph.node("Sqrt", graph.node("Add", mean, _constant(graph, EPSILON)))
        graph.node("Div", "x", deviation, out="y")

    def compute(inputs: Arrays, dropped: bool) -> Arrays:
        x = inputs["x"]
        return {"y": x / np.sqrt(reduction.of(x * x, dropped) + x.dtype.type(EPSILON))}

    opset = 18 if reduction.as_input else 17
    return Example(inputs=_rows, write=write, compute=compute, opset=opset)


def _rms_norm_by_sum() -> Example:
    def write(graph: Graph, inputs: Arrays) -> None:
        total = graph.node("ReduceSum", graph.node("Mul", "x", "x"), graph.constant([-1]), keepdims=1)
        size = inputs["x"].shape[-1]
        mean = graph.node("Mul", total, _constant(graph, 1 / size))
        deviation = graph.node("Sqrt", graph.node("Add", mean, _constant(graph, EPSILON)))
        graph.node("Div", "x", deviation, out="y")

    return Example(inputs=_rows, write=write, compute=_rms_norm(_MEAN).compute)


def _layer_norm() -> Example:
    def write(graph: Graph, _: Arrays) -> None:
        centred = graph.node("Sub", "x", _MEAN.node(graph, "x"))
        variance = _MEAN.node(graph, graph.node("Mul", centred, centred))
        deviation = graph.node("Sqrt", graph.node("Add", variance, _constant(graph, EPSILON)))
        graph.node("Div", centred, deviation, out="y")

    def compute(inputs: Arrays, dropped: bool) -> Arrays:
        x = inputs["x"]
        centred = x - _MEAN.of(x, dropped)
        return {"y": centred / np.sqrt(_MEAN.of(centred * centred, dropped) + x.dtype.type(EPSILON))}

    return Example(inputs=_rows, write=write, compute=compute)


def _beside(op: str, reduction: _Reduction) -> Example:
    """X minus, or divided by, what is reduced of it."""

    def write(graph: Graph, _: Arrays) -> None:
        graph.node(op, "x", reduction.node(graph, "x"), out="y")

    def compute(inputs: Arrays, dropped: bool) -> Arrays:
        x, reduced = inputs["x"], reduction.of(inputs["x"], dropped)
        return {"y": x - reduced if op == "Sub" else x / reduced}

    return Example(inputs=_rows, write=write, compute=compute)


def _gate() -> Example:
    mean = _Reduction(op="ReduceMean", axes=(2, 3))

    def write(graph: Graph, _: Arrays) -> None:
        graph.node("Mul", "x", graph.node("Sigmoid", mean.node(graph, "x")), out="y")

    def compute(inputs: Arrays, dropped: bool) -> Arrays:
        return {"y": inputs["x"] / (1 + np.exp(-mean.of(inputs["x"], dropped)))}

    return Example(inputs=_channels, write=write, compute=compute)


def _pooled() -> Example:
    mean = _Reduction(op="ReduceMean", axes=(2, 3), keep=False)

    def write(graph: Graph, _: Arrays) -> None:
        mean.node(graph, "x", out="y")

    return Example(inputs=_channels, write=write, compute=lambda inputs, dropped: {
        "y": mean.of(inputs["x"], dropped)
    })  # fmt: skip


_MEAN = _Reduction(op="ReduceMean", axes=(-1,))


# ---- Scatter: the attribute reduction


def _scatter(op: str, reduction: str, *, duplicates: bool = False, opset: int = 16) -> Example:
    rows, width, updates = 64, 32, 48
    random = np.random.default_rng(1)
    chosen = random.integers(0, 12, updates) if duplicates else random.permutation(rows)[:updates]

    def inputs(random: np.random.Generator) -> Arrays:
        return {
            "data": random.normal(size=(rows, width)),
            "updates": random.normal(size=(updates, width)) + 2,
        }

    def write(graph: Graph, _: Arrays) -> None:
        index = chosen[:, None] if op == "ScatterND" else np.repeat(chosen[:, None], width, axis=1)
        words: dict[str, Any] = {} if reduction == "none" else {"reduction": reduction}
        if op == "ScatterElements":
            words["axis"] = 0
        graph.node(op, "data", graph.constant(index.astype(np.int64)), "updates", out="y", **words)

    def compute(inputs: Arrays, dropped: bool) -> Arrays:
        y = inputs["data"].copy()
        for row, update in zip(chosen, inputs["updates"], strict=True):
            kept = {"add": y[row] + update, "max": np.maximum(y[row], update), "none": update}
            y[row] = update if dropped else kept[reduction]
        return {"y": y}

    return Example(inputs=inputs, write=write, compute=compute, opset=opset)


# ---- Resize: the attribute antialias


def _resize(shape: tuple[int, ...], size: tuple[int, int], mode: str, *, antialias: bool) -> Example:
    def write(graph: Graph, _: Arrays) -> None:
        sizes = graph.initializer("sizes", np.array([*shape[:2], *size], np.int64))
        graph.node(
            "Resize", "x", "", "", sizes, out="y", mode=mode, antialias=int(antialias), cubic_coeff_a=CUBIC,
            coordinate_transformation_mode="half_pixel",
        )  # fmt: skip

    def compute(inputs: Arrays, dropped: bool) -> Arrays:
        x, wide = inputs["x"], antialias and not dropped
        down, across = (  # engines compute the weights too, in the type of the values
            _weights(n, m, mode == "cubic", wide, x.dtype.type) for n, m in zip(shape[2:], size, strict=True)
        )
        return {"y": down @ x @ across.T}

    return Example(inputs=lambda random: {"x": random.random(shape)}, write=write, compute=compute)


def _resize_by_matmul(shape: tuple[int, ...], size: tuple[int, int]) -> Example:
    down, across = (_weights(n, m, False, True) for n, m in zip(shape[2:], size, strict=True))

    def write(graph: Graph, _: Arrays) -> None:
        left, right = (graph.constant(m.astype(np.float32)) for m in (down, across.T))
        graph.node("MatMul", graph.node("MatMul", left, "x"), right, out="y")

    def compute(inputs: Arrays, dropped: bool) -> Arrays:  # noqa: ARG001
        left, right = (m.astype(np.float32).astype(inputs["x"].dtype) for m in (down, across.T))
        return {"y": left @ inputs["x"] @ right}

    return Example(inputs=lambda random: {"x": random.random(shape)}, write=write, compute=compute)


def _weights(
    size: int, wanted: int, cubic: bool, antialias: bool, dtype: type[np.floating[Any]] = np.float64
) -> Array:  # fmt: skip
    """Weights (wanted, size) at half pixels; the filter is widened by the scale where it is antialiased.

    Samples beyond the border are those at the border. Source: the operator's definition,
    https://onnx.ai/onnx/operators/onnx__Resize.html.
    """
    wider = np.asarray(max(size / wanted, 1.0) if antialias else 1.0, dtype)
    samples = np.arange(-2 * size, 3 * size)
    centres = (np.arange(wanted, dtype=dtype) + dtype(0.5)) * dtype(size) / dtype(wanted)
    distance = np.abs((samples.astype(dtype) + dtype(0.5) - centres[:, None]) / wider)
    near = (CUBIC + 2) * distance**3 - (CUBIC + 3) * distance**2 + 1
    far = CUBIC * (distance**3 - 5 * distance**2 + 8 * distance - 4)
    if cubic:
        weight = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    else:
        weight = np.maximum(0, 1 - distance)
    found = np.zeros((wanted, size), dtype)
    for sample, column in zip(np.clip(samples, 0, size - 1), weight.T, strict=True):
        found[:, sample] += column
    return np.asarray(found / found.sum(axis=1, keepdims=True))


# ---- Split in uneven parts (num_outputs), Shape with start and end


def _split(*, sizes: bool = False, product: bool = False) -> Example:
    def write(graph: Graph, _: Arrays) -> None:
        names = ("a", "b", "c", "d") if product else ("y0", "y1", "y2", "y3")
        if sizes:
            parts = graph.nodes("Split", "x", graph.constant([2, 2, 2, 1]), out=names, axis=1)
        else:
            parts = graph.nodes("Split", "x", out=names, axis=1, num_outputs=4)
        if product:
            sums = [graph.node("ReduceSum", part, graph.constant([1]), keepdims=1) for part in parts]
            scaled = [graph.node("Mul", total, _constant(graph, i + 1)) for i, total in enumerate(sums)]
            graph.node("Concat", *scaled, axis=1, out="y")

    def compute(inputs: Arrays, dropped: bool) -> Arrays:
        x = inputs["x"]
        ends = [1, 2, 3, 4] if dropped else [2, 4, 6, 7]
        parts = [x[:, start:end] for start, end in zip([0, *ends], ends, strict=False)]
        if product:
            sums = [part.sum(axis=1, keepdims=True) * (i + 1) for i, part in enumerate(parts)]
            return {"y": np.concatenate(sums, axis=1)}
        return {f"y{i}": part for i, part in enumerate(parts)}

    return Example(inputs=lambda random: {"x": random.normal(size=(2, 7, 8))}, write=write, compute=compute)


def _shape_part(form: str) -> Example:
    def write(graph: Graph, _: Arrays) -> None:
        if form == "scale":
            last = graph.node("Cast", graph.node("Shape", "x", start=2, end=3), to=onnx.TensorProto.FLOAT)
            graph.node("Mul", "x", graph.node("ReduceProd", last, keepdims=0), out="y")
            return
        if form == "gather":
            first = graph.node("Gather", graph.node("Shape", "x"), graph.constant([0]), axis=0)
        else:
            first = graph.node("Shape", "x", start=0, end=1)
        graph.node("Reshape", "x", graph.node("Concat", first, graph.constant([-1]), axis=0), out="y")

    def compute(inputs: Arrays, dropped: bool) -> Arrays:
        x = inputs["x"]
        if form == "scale":
            return {"y": x * x.dtype.type(x.size if dropped else x.shape[2])}
        return {"y": x.reshape(*x.shape, 1) if dropped else x.reshape(2, -1)}

    return Example(inputs=lambda random: {"x": random.normal(size=(2, 3, 4))}, write=write, compute=compute)


# ---- GridSample: modes were renamed in opset 20


def _grid_sample(mode: str, *, border: bool = False, align: bool = False, opset: int = 20) -> Example:
    plain = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)

    def inputs(random: np.random.Generator) -> Arrays:
        return {"x": random.normal(size=(2, 8, 32, 40)), "grid": random.uniform(-1.1, 1.1, (2, 20, 24, 2))}

    def write(graph: Graph, _: Arrays) -> None:
        padding = "border" if border else "zeros"
        graph.node(
            "GridSample", "x", "grid", out="y", mode=mode, padding_mode=padding, align_corners=int(align)
        )

    def compute(inputs: Arrays, dropped: bool) -> Arrays:
        return {"y": _sampled(inputs["x"], inputs["grid"], "nearest" if dropped else plain, border, align)}

    return Example(inputs=inputs, write=write, compute=compute, opset=opset)


def _sampled(x: Array, grid: Array, mode: str, border: bool, align: bool) -> Array:
    """Sample x (n, c, h, w) at grid (n, p, q, 2). Source: https://onnx.ai/onnx/operators/onnx__GridSample.html."""
    number, _, height, width = x.shape
    size = np.array([width, height], x.dtype)
    place = (grid + 1) / 2 * (size - 1) if align else ((grid + 1) * size - 1) / 2
    if border:
        place = np.clip(place, 0, size - 1)

    def at(across: Array, down: Array) -> Array:
        inside = (across >= 0) & (across < width) & (down >= 0) & (down < height)
        images = np.arange(number)[:, None, None]
        values = x[images, :, np.clip(down, 0, height - 1), np.clip(across, 0, width - 1)]
        return np.asarray(values * (np.ones_like(inside) if border else inside)[..., None])

    if mode == "nearest":
        nearest = np.rint(place).astype(int)
        return np.asarray(at(nearest[..., 0], nearest[..., 1]).transpose(0, 3, 1, 2))
    lower = np.floor(place)
    rest, first = place - lower, lower.astype(int)
    offsets: Sequence[int] = (0, 1) if mode == "linear" else (-1, 0, 1, 2)
    total = np.zeros((*grid.shape[:3], x.shape[1]), x.dtype)
    for down in offsets:
        for across in offsets:
            weight = _tap(rest[..., 0], across, mode) * _tap(rest[..., 1], down, mode)
            total += at(first[..., 0] + across, first[..., 1] + down) * weight[..., None]
    return np.asarray(total.transpose(0, 3, 1, 2))


def _tap(rest: Array, offset: int, mode: str) -> Array:
    distance = np.abs(rest - offset)
    if mode == "linear":
        return np.asarray(1 - distance)
    near = (CUBIC + 2) * distance**3 - (CUBIC + 3) * distance**2 + 1
    far = CUBIC * (distance**3 - 5 * distance**2 + 8 * distance - 4)
    return np.asarray(np.where(distance <= 1, near, far))


# ---- GroupNormalization with one group


def _group_norm(groups: int, shape: tuple[int, ...]) -> Example:
    def inputs(random: np.random.Generator) -> Arrays:
        apart = (*shape[:2], *(1 for _ in shape[2:]))
        return {
            "x": random.normal(size=shape) * np.exp(random.uniform(-1, 1, apart))
            + 2 * random.normal(size=apart)
        }

    def write(graph: Graph, _: Arrays) -> None:
        scale, bias = (graph.constant(np.full(shape[1], value, np.float32)) for value in (1.25, 0.5))
        graph.node("GroupNormalization", "x", scale, bias, out="y", num_groups=groups, epsilon=EPSILON)

    def compute(inputs: Arrays, dropped: bool) -> Arrays:
        x = inputs["x"]
        grouped = x.reshape(shape[0], shape[1] if dropped else groups, -1)
        centred = grouped - grouped.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        normed = (centred / np.sqrt(variance + x.dtype.type(EPSILON))).reshape(shape)
        return {"y": normed * x.dtype.type(1.25) + x.dtype.type(0.5)}

    return Example(inputs=inputs, write=write, compute=compute, opset=21)


def _group_norm_by_reduce(shape: tuple[int, ...]) -> Example:
    plain = _group_norm(1, shape)

    def write(graph: Graph, _: Arrays) -> None:
        rows = graph.node("Reshape", "x", graph.constant([shape[0], -1]))
        centred = graph.node("Sub", rows, graph.node("ReduceMean", rows, axes=[1], keepdims=1))
        variance = graph.node("ReduceMean", graph.node("Mul", centred, centred), axes=[1], keepdims=1)
        deviation = graph.node("Sqrt", graph.node("Add", variance, _constant(graph, EPSILON, rank=2)))
        normed = graph.node("Div", centred, deviation)
        scaled = graph.node("Mul", normed, _constant(graph, 1.25, rank=2))
        moved = graph.node("Add", scaled, _constant(graph, 0.5, rank=2))
        graph.node("Reshape", moved, graph.constant(list(shape)), out="y")

    return Example(inputs=plain.inputs, write=write, compute=plain.compute, opset=17)


def _wrong_on_purpose() -> Example:
    """RMSNorm over all axes, as an attribute: what the parser makes of it where it drops the axes."""
    everywhere = _Reduction(op="ReduceMean", axes=(0, 1, 2), as_input=False)
    return Example(
        inputs=_rows, write=_rms_norm(everywhere).write, compute=_rms_norm(_MEAN).compute, opset=17
    )


_SMALL, _HALF = (1, 3, 64, 64), (32, 32)

EXAMPLES: Mapping[str, Example] = {
    "reduce-rmsnorm": _rms_norm(_MEAN),
    "reduce-layernorm": _layer_norm(),
    "reduce-max": _beside("Sub", _Reduction(op="ReduceMax", axes=(1,))),
    "reduce-l2": _beside("Div", _Reduction(op="ReduceL2", axes=(-1,))),
    "reduce-channel-gate": _gate(),
    "reduce-pooled": _pooled(),
    "reduce-attribute": _rms_norm(_Reduction(op="ReduceMean", axes=(-1,), as_input=False)),
    "reduce-by-sum": _rms_norm_by_sum(),
    "reduce-everywhere": _wrong_on_purpose(),
    "scatter-elements-add": _scatter("ScatterElements", "add"),
    "scatter-elements-add-duplicates": _scatter("ScatterElements", "add", duplicates=True),
    "scatter-elements-max": _scatter("ScatterElements", "max", opset=18),
    "scatter-nd-add": _scatter("ScatterND", "add"),
    "scatter-nd-add-duplicates": _scatter("ScatterND", "add", duplicates=True),
    "scatter-elements-plain": _scatter("ScatterElements", "none"),
    "scatter-nd-plain": _scatter("ScatterND", "none"),
    "resize-linear": _resize(_SMALL, _HALF, "linear", antialias=True),
    "resize-preprocess": _resize((1, 3, 240, 320), (96, 112), "linear", antialias=True),
    "resize-cubic": _resize((1, 16, 37, 37), (16, 16), "cubic", antialias=True),
    "resize-plain": _resize(_SMALL, _HALF, "linear", antialias=False),
    "resize-by-matmul": _resize_by_matmul(_SMALL, _HALF),
    "split-uneven": _split(),
    "split-uneven-product": _split(product=True),
    "split-by-sizes": _split(sizes=True),
    "shape-reshape": _shape_part("reshape"),
    "shape-scale": _shape_part("scale"),
    "shape-by-gather": _shape_part("gather"),
    "gridsample-linear": _grid_sample("linear"),
    "gridsample-linear-border": _grid_sample("linear", border=True),
    "gridsample-linear-align": _grid_sample("linear", align=True),
    "gridsample-cubic": _grid_sample("cubic"),
    "gridsample-nearest": _grid_sample("nearest"),
    "gridsample-bilinear-opset16": _grid_sample("bilinear", opset=16),
    "gridsample-bicubic-opset16": _grid_sample("bicubic", opset=16),
    "groupnorm-one": _group_norm(1, (2, 16, 12, 14)),
    "groupnorm-one-1d": _group_norm(1, (2, 16, 40)),
    "groupnorm-four": _group_norm(4, (2, 16, 12, 14)),
    "groupnorm-by-reduce": _group_norm_by_reduce((2, 16, 12, 14)),
}
