"""Core attention softmax(scale · q kᵀ + mask) v of given q, k, v: graphs as torch exports them, and results.

The graphs equal those of torch.onnx.export(opset_version=17, dynamo=False) of torch 2.13 with static shapes,
node by node (tests/torch/test_flash_attention.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray

from trtmatrix.authoring.arithmetic import FLOAT64, Arithmetic
from trtmatrix.authoring.graph import Graph, element_type

Array = NDArray[Any]
INT64_MAX = np.iinfo(np.int64).max

Form = Literal["sdpa", "explicit", "causal", "additive", "boolean"]
"""explicit: ((q · scale) @ k.transpose(-2, -1)).softmax(-1) @ v; the others: F.scaled_dot_product_attention,
causal with is_causal=True, additive and boolean with the graph's input "mask" as attn_mask."""

Mask = Literal["none", "causal", "ahead", "window", "padding", "nothing"]
"""causal: query i sees the keys up to i; ahead: one more; window: falls by 4 over a quarter of the keys to
either side, -inf beyond; padding: the last keys · i / (2 · batch) of batch row i are not seen; nothing: 0."""

LEFT: dict[str, Mask] = {"lost-mask": "none", "causal-ahead": "ahead"}
"""Defect → the mask that it leaves."""

PROBABILITIES = "/Softmax_output_0"
"""The tensor softmax(…) in each of the graphs."""

ROWS = 256
"""Queries worked on together: their scores in float64 (8 MB at 4096 keys) stay in a core's cache, about."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Extents of q, k, v and the output, whose shapes are (batch, heads, queries or keys, head_size)."""

    batch: int
    heads: int
    queries: int
    keys: int
    head_size: int

    @property
    def scale(self) -> float:
        """What q kᵀ is multiplied by."""
        return float(self.head_size**-0.5)

    @property
    def q(self) -> tuple[int, int, int, int]:
        """Shape of q and of the output."""
        return (self.batch, self.heads, self.queries, self.head_size)

    @property
    def k(self) -> tuple[int, int, int, int]:
        """Shape of k and of v."""
        return (self.batch, self.heads, self.keys, self.head_size)


def draw(size: Size, dtype: type[Any], seed: int = 0) -> dict[str, Array]:
    """q, k and v of a normal distribution, rounded to `dtype`: the scores' deviation is 1, too."""
    random = np.random.default_rng(seed)
    shapes = {"q": size.q, "k": size.k, "v": size.k}
    return {
        name: random.standard_normal(shape, dtype=np.float32).astype(dtype) for name, shape in shapes.items()
    }


def draw_mask(name: Mask, size: Size, dtype: type[Any]) -> Array | None:
    """Boolean, True where a key is seen, or to be added; broadcasts to (batch, heads, queries, keys)."""
    ahead = np.arange(size.keys) - np.arange(size.queries)[:, None]
    match name:
        case "none":
            return None
        case "causal" | "ahead":
            return (ahead <= (name == "ahead"))[None, None]
        case "window":
            width = size.keys // 4
            return np.where(abs(ahead) < width, -4.0 * abs(ahead) / width, -np.inf).astype(dtype)[None, None]
        case "padding":
            seen = size.keys - size.keys * np.arange(size.batch) // (2 * size.batch)
            return (np.arange(size.keys) < seen[:, None])[:, None, None]
        case "nothing":
            return np.zeros((1, 1, size.queries, size.keys), dtype)


def addend(mask: Array) -> Array:
    """What a mask adds to the scores, in float64: a boolean one -inf where it is False."""
    return np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else mask.astype(np.float64)


def build(form: Form, size: Size, dtype: type[Any], mask: Array | None = None) -> onnx.ModelProto:
    """The graph of one form in float32 or float16; `mask` gives the input "mask" its shape and type.

    torch's half export of `causal` and `boolean` adds the mask in float32: softmax, the second product and
    the output are float32 there.
    """
    graph = Graph()
    for name, shape in {"q": size.q, "k": size.k, "v": size.k}.items():
        graph.input(name, dtype, shape)
    if mask is not None:
        graph.input("mask", mask.dtype, mask.shape)
    widened = dtype == np.float16 and form in {"causal", "boolean"}
    graph.output("y", np.float32 if widened else dtype, size.q)
    if form == "explicit":
        q = graph.Mul("q", np.array(size.scale, dtype))
        scores = graph.MatMul(q, graph.Transpose("k", perm=[0, 1, 3, 2]))
    else:
        scale, bias = scale_from_shape(graph, "q", dtype), "mask"
        if form == "causal":
            bias = by_boolean(graph, _above_diagonal(graph), -np.inf, 0.0)
        scores = graph.MatMul(*scale_by_root(graph, "q", "k", scale))
        if form == "boolean":
            bias = by_boolean(graph, "mask")
        if form != "sdpa":
            scores = graph.Add(_float32(graph, scores) if widened else scores, bias)
    y = softmax_without_nan(graph, scores) if form == "boolean" else graph.Softmax(scores, axis=-1)
    graph.MatMul(y, _float32(graph, "v") if widened else "v", out="y")
    return graph.model()


def scale_from_shape(graph: Graph, q: str, dtype: np.dtype[Any] | type[Any]) -> str:
    """1/√(last extent of q), computed in the graph."""
    last = graph.Slice(graph.Shape(q), [-1], [INT64_MAX])
    root = graph.Sqrt(graph.Cast(last, to=element_type(dtype)))
    one = graph.constant(np.array([1.0], dtype=np.float32))
    if dtype == np.float16:
        root = _float32(graph, root)
    return graph.Cast(graph.Div(one, root), to=element_type(dtype))


def scale_by_root(graph: Graph, q: str, k: str, scale: str) -> tuple[str, str]:
    """q · √scale and kᵀ · √scale."""
    k = graph.Transpose(k, perm=[0, 1, 3, 2])
    q = graph.Mul(q, graph.Sqrt(scale))
    return q, graph.Mul(k, graph.Sqrt(scale))


def by_boolean(graph: Graph, where: str, true: float = 0.0, false: float = -np.inf) -> str:
    """One number where it is True, another where it is not, in float32."""
    return graph.Where(where, *(np.array([value], np.float32) for value in (true, false)))


def softmax_without_nan(graph: Graph, scores: str) -> str:
    """Softmax, 0 in rows that see no key: what torch puts around a boolean mask."""
    y = graph.Softmax(scores, axis=-1)
    return graph.Where(graph.IsNaN(y), np.array([0.0], np.float32), y)


def _above_diagonal(graph: Graph) -> str:
    """Boolean (queries, keys), from the shapes of q and k: True where a key is later than the query."""
    shapes = [graph.Shape(name) for name in ("q", "k")]
    last, before = graph.constant([-1]), graph.constant([-2])
    extent = graph.Concat(*[graph.Slice(shape, before, last) for shape in shapes], axis=0)
    ones = graph.Expand(np.array([1.0], np.float32), extent)
    return graph.Equal(graph.Trilu(ones, upper=0), np.array([0.0], np.float32))


def _float32(graph: Graph, tensor: str) -> str:
    return graph.Cast(tensor, to=element_type(np.float32))


def compute(
    q: Array, k: Array, v: Array, mask: Array | None = None, *, scale: float | None = None,
    arithmetic: Arithmetic = FLOAT64,
) -> Array:  # fmt: skip
    """softmax(scale · q kᵀ + mask) v in some arithmetic; in float64 the reference.

    `mask` is added, or says which keys are seen if it is boolean, as whose (batch, heads, queries, keys) it
    broadcasts; `scale` is 1/√head_size unless given. Works on ROWS queries of one head at a time.
    """
    a, working = arithmetic, arithmetic.working
    root = a.stored(np.asarray(np.sqrt(q.shape[-1] ** -0.5 if scale is None else scale), working))
    added = None if mask is None else np.broadcast_to(addend(mask), (*q.shape[:3], k.shape[2]))
    y = np.empty(q.shape, dtype=working)
    for batch, head in np.ndindex(q.shape[:2]):
        queries, keys, values = (a.stored(t[batch, head].astype(working)) for t in (q, k, v))
        keys = a.stored(keys * root).T
        for start in range(0, len(queries), ROWS):
            rows = slice(start, start + ROWS)
            scores = a.matmul(a.stored(queries[rows] * root), keys)
            if added is not None:
                scores = a.stored(scores + added[batch, head, rows].astype(working))
            y[batch, head, rows] = a.softmax_matmul(scores, values)
    return y


def emulate(
    size: Size, mask: Mask, dtype: type[Any], arithmetic: Arithmetic = FLOAT64, *, defect: str = "",
    seed: int = 0, small: bool = False,
) -> Array:  # fmt: skip
    """What attention of drawn inputs gives in some arithmetic, with or without a defect.

    small: of the middle batch row (its padding is the average) one head of at most ROWS queries, or as many
    heads as have so many; all keys.
    """
    q, k, v, seen = _drawn(size, LEFT.get(defect, mask), np.dtype(dtype), seed, small)
    return compute(q, k, v, seen, scale=scale_left(defect, size.scale), arithmetic=arithmetic)


def scale_left(defect: str, scale: float) -> float:
    """The scale of softmax that a defect leaves: √scale for "lost-scale", half of it for "scale*0.5"."""
    if defect.startswith("scale*"):
        return scale * float(defect.removeprefix("scale*"))
    return math.sqrt(scale) if defect == "lost-scale" else scale


@lru_cache(maxsize=4)
def _drawn(
    size: Size, name: Mask, dtype: np.dtype[Any], seed: int, small: bool
) -> tuple[Array, Array, Array, Array | None]:
    """q, k, v and the mask, or of each the small part: queries from the first to the last, at equal steps."""
    drawn, mask = draw(size, dtype.type, seed), draw_mask(name, size, dtype.type)
    if small:
        row, heads = slice(size.batch // 2, size.batch // 2 + 1), slice(max(1, ROWS // size.queries))
        queries = slice(None, None, -(-size.queries // ROWS))
        drawn = {name: x[row, heads].copy() for name, x in drawn.items()}
        drawn["q"] = drawn["q"][:, :, queries].copy()
        if mask is not None:
            mask = np.broadcast_to(mask, (size.batch, 1, size.queries, size.keys))[row, :, queries].copy()
    return drawn["q"], drawn["k"], drawn["v"], mask
