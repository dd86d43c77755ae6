"""Small graphs with an attribute or input that old ONNX parsers drop without a word, and their mathematics.

Each graph is drawn, written and computed here; ``dropped`` computes what is left of it where the parser does
not see that attribute or input: the reduction runs over all axes, the update overwrites, the filter is not
widened, the part of a shape is the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """A graph, its inputs by name (made float32), and its mathematics.

    ``write`` adds the nodes and names the outputs; ``compute`` takes the inputs in the arithmetic's type and
    whether the attribute is dropped, and returns y, or several outputs by name.
    """

    inputs: Callable[[np.random.Generator], Arrays]
    write: Callable[[Graph], object]
    compute: Callable[[Arrays, bool], Array | Arrays]
    opset: int = 18

    def draw(self, seed: int) -> dict[str, Array]:
        """Return the inputs by name."""
        drawn = self.inputs(np.random.default_rng(seed))
        return {name: np.asarray(array, np.float32) for name, array in drawn.items()}

    def outputs(self, inputs: Arrays, arithmetic: Arithmetic, *, dropped: bool = False) -> dict[str, Array]:
        """Return the outputs by name, computed in an arithmetic's working type."""
        found = self.compute({name: x.astype(arithmetic.working) for name, x in inputs.items()}, dropped)
        named = found if isinstance(found, Mapping) else {"y": found}
        return {name: arithmetic.stored(array) for name, array in named.items()}

    def model(self, inputs: Arrays, outputs: Arrays) -> onnx.ModelProto:
        """Return the graph for inputs and outputs of these shapes."""
        graph = Graph(inputs)
        self.write(graph)
        for name, array in outputs.items():
            graph.output(name, np.float32, array.shape)
        return graph.model(opset=self.opset)


def _full(value: float, rank: int = 3) -> Array:
    return np.full((1,) * rank, value, np.float32)


# ---- Reduce: from opset 18 on the axes are an input


def _rows(random: np.random.Generator) -> Arrays:
    """Rows of very different size: one mean for all of them is far off."""
    return {"x": random.normal(size=(2, 24, 64)) * np.exp(random.uniform(-1.5, 1.5, (2, 24, 1)))}


def _channels(random: np.random.Generator) -> Arrays:
    return {"x": random.normal(size=(2, 16, 14, 14)) + 3 * random.normal(size=(2, 16, 1, 1))}


@dataclass(frozen=True, kw_only=True)
class _Reduction:
    """Writes and computes one Reduce; ``as_input``: the axes are an input, not an attribute."""

    op: str = "ReduceMean"
    axes: tuple[int, ...] = (-1,)
    as_input: bool = True
    keep: bool = True

    def node(self, graph: Graph, source: str, out: str = "") -> str:
        if self.as_input:
            return graph.node(self.op, source, list(self.axes), keepdims=int(self.keep), out=out)
        return graph.node(self.op, source, axes=self.axes, keepdims=int(self.keep), out=out)

    def of(self, values: Array, dropped: bool) -> Array:
        axes = None if dropped else self.axes
        if self.op == "ReduceL2":
            return np.asarray(np.sqrt(np.sum(values * values, axis=axes, keepdims=self.keep)))
        reduce = np.max if self.op == "ReduceMax" else np.mean
        return np.asarray(reduce(values, axis=axes, keepdims=self.keep))


_MEAN, _PLANES = _Reduction(), _Reduction(axes=(2, 3))
_POOLED = _Reduction(axes=(2, 3), keep=False)


def _rms_norm(mean: _Reduction | None, computed: _Reduction = _MEAN, opset: int = 17) -> Example:
    """x / √(mean of squares); without a Reduce by ReduceSum, whose axes were read."""

    def write(graph: Graph) -> None:
        squares = graph.Mul("x", "x")
        if mean is None:
            middle = graph.Mul(graph.ReduceSum(squares, [-1], keepdims=1), _full(1 / 64))
        else:
            middle = mean.node(graph, squares)
        graph.Div("x", graph.Sqrt(graph.Add(middle, _full(EPSILON))), out="y")

    def compute(inputs: Arrays, dropped: bool) -> Array:
        x = inputs["x"]
        return np.asarray(x / np.sqrt(computed.of(x * x, dropped) + x.dtype.type(EPSILON)))

    return Example(inputs=_rows, write=write, compute=compute, opset=opset)


def _layer_norm() -> Example:
    def write(graph: Graph) -> None:
        centred = graph.Sub("x", _MEAN.node(graph, "x"))
        variance = _MEAN.node(graph, graph.Mul(centred, centred))
        graph.Div(centred, graph.Sqrt(graph.Add(variance, _full(EPSILON))), out="y")

    def compute(inputs: Arrays, dropped: bool) -> Array:
        x = inputs["x"]
        centred = x - _MEAN.of(x, dropped)
        return np.asarray(centred / np.sqrt(_MEAN.of(centred * centred, dropped) + x.dtype.type(EPSILON)))

    return Example(inputs=_rows, write=write, compute=compute)


def _beside(op: str, reduction: _Reduction) -> Example:
    """x minus, or divided by, what is reduced of it."""

    def compute(inputs: Arrays, dropped: bool) -> Array:
        x, reduced = inputs["x"], reduction.of(inputs["x"], dropped)
        return np.asarray(x - reduced if op == "Sub" else x / reduced)

    return Example(
        inputs=_rows,
        write=lambda graph: graph.node(op, "x", reduction.node(graph, "x"), out="y"),
        compute=compute,
    )


_GATE = Example(
    inputs=_channels,
    write=lambda graph: graph.Mul("x", graph.Sigmoid(_PLANES.node(graph, "x")), out="y"),
    compute=lambda inputs, dropped: inputs["x"] / (1 + np.exp(-_PLANES.of(inputs["x"], dropped))),
)
_POOL = Example(
    inputs=_channels,
    write=lambda graph: _POOLED.node(graph, "x", out="y"),
    compute=lambda inputs, dropped: _POOLED.of(inputs["x"], dropped),
)


# ---- Scatter: the attribute reduction


def _scatter(op: str, reduction: str, *, duplicates: bool = False, opset: int = 16) -> Example:
    rows, width, updates = 64, 32, 48
    random = np.random.default_rng(1)
    chosen = random.integers(0, 12, updates) if duplicates else random.permutation(rows)[:updates]

    def inputs(random: np.random.Generator) -> Arrays:
        data = random.normal(size=(rows, width))
        return {"data": data, "updates": random.normal(size=(updates, width)) + 2}

    def write(graph: Graph) -> None:
        index = chosen[:, None] if op == "ScatterND" else np.repeat(chosen[:, None], width, axis=1)
        words: dict[str, Any] = {} if reduction == "none" else {"reduction": reduction}
        words.update({"axis": 0} if op == "ScatterElements" else {})
        graph.node(op, "data", index.astype(np.int64), "updates", out="y", **words)

    def compute(inputs: Arrays, dropped: bool) -> Array:
        y = inputs["data"].copy()
        for row, update in zip(chosen, inputs["updates"], strict=True):
            kept = {"add": y[row] + update, "max": np.maximum(y[row], update), "none": update}
            y[row] = update if dropped else kept[reduction]
        return np.asarray(y)

    return Example(inputs=inputs, write=write, compute=compute, opset=opset)


# ---- Resize: the attribute antialias


def _resize(
    shape: tuple[int, ...] = (1, 3, 64, 64), size: tuple[int, int] = (32, 32), mode: str = "linear", *,
    antialias: bool = True,
) -> Example:  # fmt: skip
    def write(graph: Graph) -> None:
        sizes = graph.initializer("sizes", np.array([*shape[:2], *size], np.int64))
        graph.Resize(
            "x", "", "", sizes, out="y", mode=mode, antialias=int(antialias), cubic_coeff_a=CUBIC,
            coordinate_transformation_mode="half_pixel",
        )  # fmt: skip

    def compute(inputs: Arrays, dropped: bool) -> Array:
        x, wide = inputs["x"], antialias and not dropped
        down, across = (  # engines compute the weights too, in the type of the values
            _weights(n, m, mode, wide, x.dtype.type) for n, m in zip(shape[2:], size, strict=True)
        )
        return np.asarray(down @ x @ across.T)

    return Example(inputs=lambda random: {"x": random.random(shape)}, write=write, compute=compute)


def _resize_by_matmul() -> Example:
    weights = _weights(64, 32, "linear", True)
    down, across = weights.astype(np.float32), weights.T.astype(np.float32)

    def write(graph: Graph) -> None:
        left, right = graph.constant(down), graph.constant(across)
        graph.MatMul(graph.MatMul(left, "x"), right, out="y")

    def compute(inputs: Arrays, _: bool) -> Array:
        left, right = (m.astype(inputs["x"].dtype) for m in (down, across))
        return np.asarray(left @ inputs["x"] @ right)

    return Example(inputs=lambda random: {"x": random.random((1, 3, 64, 64))}, write=write, compute=compute)


def _weights(
    size: int, wanted: int, mode: str, antialias: bool, dtype: type[np.floating[Any]] = np.float64
) -> Array:
    """Weights (wanted, size) at half pixels; the filter is widened by the scale where it is antialiased.

    Samples beyond the border are those at the border. Source: the operator's definition,
    https://onnx.ai/onnx/operators/onnx__Resize.html.
    """
    wider = np.asarray(max(size / wanted, 1.0) if antialias else 1.0, dtype)
    samples = np.arange(-2 * size, 3 * size)
    centres = (np.arange(wanted, dtype=dtype) + dtype(0.5)) * dtype(size) / dtype(wanted)
    weight = _kernel(np.abs((samples.astype(dtype) + dtype(0.5) - centres[:, None]) / wider), mode)
    found = np.zeros((wanted, size), dtype)
    for sample, column in zip(np.clip(samples, 0, size - 1), weight.T, strict=True):
        found[:, sample] += column
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def _kernel(distance: Array, mode: str) -> Array:
    """The weight of a sample at a distance."""
    if mode == "linear":
        return np.asarray(np.maximum(0, 1 - distance))
    near = (CUBIC + 2) * distance**3 - (CUBIC + 3) * distance**2 + 1
    far = CUBIC * (distance**3 - 5 * distance**2 + 8 * distance - 4)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


# ---- Split in uneven parts (num_outputs), Shape with start and end


def _split(*, sizes: bool = False, product: bool = False) -> Example:
    def write(graph: Graph) -> None:
        names = ("a", "b", "c", "d") if product else ("y0", "y1", "y2", "y3")
        if sizes:
            parts = graph.nodes("Split", "x", [2, 2, 2, 1], out=names, axis=1)
        else:
            parts = graph.nodes("Split", "x", out=names, axis=1, num_outputs=4)
        if product:
            sums = [graph.ReduceSum(part, [1], keepdims=1) for part in parts]
            graph.Concat(*[graph.Mul(total, _full(i + 1)) for i, total in enumerate(sums)], axis=1, out="y")

    def compute(inputs: Arrays, dropped: bool) -> Array | Arrays:
        x = inputs["x"]
        ends = [1, 2, 3, 4] if dropped else [2, 4, 6, 7]
        parts = [x[:, start:end] for start, end in zip([0, *ends], ends, strict=False)]
        if product:
            sums = [part.sum(axis=1, keepdims=True) * (i + 1) for i, part in enumerate(parts)]
            return np.concatenate(sums, axis=1)
        return {f"y{i}": part for i, part in enumerate(parts)}

    return Example(inputs=lambda random: {"x": random.normal(size=(2, 7, 8))}, write=write, compute=compute)


def _shape_part(form: str) -> Example:
    def write(graph: Graph) -> None:
        if form == "scale":
            last = graph.Cast(graph.Shape("x", start=2, end=3), to=onnx.TensorProto.FLOAT)
            graph.Mul("x", graph.ReduceProd(last, keepdims=0), out="y")
            return
        whole = form == "gather"
        first = graph.Gather(graph.Shape("x"), [0], axis=0) if whole else graph.Shape("x", start=0, end=1)
        graph.Reshape("x", graph.Concat(first, [-1], axis=0), out="y")

    def compute(inputs: Arrays, dropped: bool) -> Array:
        x = inputs["x"]
        if form == "scale":
            return np.asarray(x * x.dtype.type(x.size if dropped else x.shape[2]))
        return x.reshape(*x.shape, 1) if dropped else x.reshape(2, -1)

    return Example(inputs=lambda random: {"x": random.normal(size=(2, 3, 4))}, write=write, compute=compute)


# ---- GridSample: modes were renamed in opset 20


def _grid_sample(mode: str, *, border: bool = False, align: bool = False, opset: int = 20) -> Example:
    plain = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)

    def inputs(random: np.random.Generator) -> Arrays:
        return {"x": random.normal(size=(2, 8, 32, 40)), "grid": random.uniform(-1.1, 1.1, (2, 20, 24, 2))}

    def compute(inputs: Arrays, dropped: bool) -> Array:
        return _sampled(inputs["x"], inputs["grid"], "nearest" if dropped else plain, border, align)

    padding = "border" if border else "zeros"
    how: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": int(align)}
    return Example(
        inputs=inputs, write=lambda graph: graph.GridSample("x", "grid", out="y", **how), compute=compute,
        opset=opset,
    )  # fmt: skip


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
    offsets = (0, 1) if mode == "linear" else (-1, 0, 1, 2)
    total = np.zeros((*grid.shape[:3], x.shape[1]), x.dtype)
    for down in offsets:
        for across in offsets:
            weight = _kernel(np.abs(rest[..., 0] - across), mode) * _kernel(np.abs(rest[..., 1] - down), mode)
            total += at(first[..., 0] + across, first[..., 1] + down) * weight[..., None]
    return np.asarray(total.transpose(0, 3, 1, 2))


# ---- GroupNormalization with one group


def _group_norm(groups: int, shape: tuple[int, ...] = (2, 16, 12, 14), *, by_reduce: bool = False) -> Example:
    def inputs(random: np.random.Generator) -> Arrays:
        apart = (*shape[:2], *(1 for _ in shape[2:]))
        scaled = random.normal(size=shape) * np.exp(random.uniform(-1, 1, apart))
        return {"x": scaled + 2 * random.normal(size=apart)}

    def write(graph: Graph) -> None:
        if not by_reduce:
            scale, bias = (np.full(shape[1], value, np.float32) for value in (1.25, 0.5))
            graph.GroupNormalization("x", scale, bias, out="y", num_groups=groups, epsilon=EPSILON)
            return
        rows = graph.Reshape("x", [shape[0], -1])
        centred = graph.Sub(rows, graph.ReduceMean(rows, axes=[1], keepdims=1))
        variance = graph.ReduceMean(graph.Mul(centred, centred), axes=[1], keepdims=1)
        normed = graph.Div(centred, graph.Sqrt(graph.Add(variance, _full(EPSILON, rank=2))))
        moved = graph.Add(graph.Mul(normed, _full(1.25, rank=2)), _full(0.5, rank=2))
        graph.Reshape(moved, list(shape), out="y")

    def compute(inputs: Arrays, dropped: bool) -> Array:
        x = inputs["x"]
        grouped = x.reshape(shape[0], shape[1] if dropped else groups, -1)
        centred = grouped - grouped.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        normed = (centred / np.sqrt(variance + x.dtype.type(EPSILON))).reshape(shape)
        return np.asarray(normed * x.dtype.type(1.25) + x.dtype.type(0.5))

    return Example(inputs=inputs, write=write, compute=compute, opset=17 if by_reduce else 21)


EXAMPLES: Mapping[str, Example] = {
    "reduce-rmsnorm": _rms_norm(_MEAN, opset=18),
    "reduce-layernorm": _layer_norm(),
    "reduce-max": _beside("Sub", _Reduction(op="ReduceMax", axes=(1,))),
    "reduce-l2": _beside("Div", _Reduction(op="ReduceL2")),
    "reduce-channel-gate": _GATE,
    "reduce-pooled": _POOL,
    "reduce-attribute": _rms_norm(_Reduction(as_input=False)),
    "reduce-by-sum": _rms_norm(None, opset=18),
    # wrong on purpose: over all axes, as an attribute, what the parser makes of it where it drops the axes
    "reduce-everywhere": _rms_norm(_Reduction(axes=(0, 1, 2), as_input=False)),
    "scatter-elements-add": _scatter("ScatterElements", "add"),
    "scatter-elements-add-duplicates": _scatter("ScatterElements", "add", duplicates=True),
    "scatter-elements-max": _scatter("ScatterElements", "max", opset=18),
    "scatter-nd-add": _scatter("ScatterND", "add"),
    "scatter-nd-add-duplicates": _scatter("ScatterND", "add", duplicates=True),
    "scatter-elements-plain": _scatter("ScatterElements", "none"),
    "scatter-nd-plain": _scatter("ScatterND", "none"),
    "resize-linear": _resize(),
    "resize-preprocess": _resize((1, 3, 240, 320), (96, 112)),
    "resize-cubic": _resize((1, 16, 37, 37), (16, 16), "cubic"),
    "resize-plain": _resize(antialias=False),
    "resize-by-matmul": _resize_by_matmul(),
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
    "groupnorm-one": _group_norm(1),
    "groupnorm-one-1d": _group_norm(1, (2, 16, 40)),
    "groupnorm-four": _group_norm(4),
    "groupnorm-by-reduce": _group_norm(1, by_reduce=True),
}
