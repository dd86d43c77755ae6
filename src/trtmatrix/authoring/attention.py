"""Self-attention blocks with and without masks: graphs as torch exports them, and what they compute.

Each formulation is one way to write the same block in torch: x -> q, k, v by one linear layer without
bias -> softmax(scale · q kᵀ + mask) v -> output projection. The graphs equal those of
torch.onnx.export(opset_version=17, dynamo=False) of torch 2.13 with static shapes, node by node
(tests/torch), because defects of fusions depend on the exact pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray

from trtmatrix.authoring.arithmetic import FLOAT64, Arithmetic
from trtmatrix.authoring.core_attention import (
    INT64_MAX,
    by_boolean,
    scale_by_root,
    scale_from_shape,
    softmax_without_nan,
)
from trtmatrix.authoring.graph import Graph, element_type
from trtmatrix.authoring.randoms import TorchRandom

Array = NDArray[Any]

Formulation = Literal["explicit", "bert", "wide", "sdpa", "sdpa-default", "mha"]
"""explicit: (q · scale) kᵀ; bert: q kᵀ / √head_size; wide: explicit with q, k and v cast to float32, and the
result cast back; sdpa: F.scaled_dot_product_attention with scale= given, which puts √scale on q and on kᵀ as
constants; sdpa-default: without, √scale is computed from q's shape; mha: F.multi_head_attention_forward(x, x,
x, need_weights=False) on (length, batch, embed)."""

Mask = Literal["none", "additive", "padding", "bias", "causal"]
"""additive: 0 or -10000 by key, added, as BERT does; padding: boolean by key, True where it is padded;
bias: a finite number by head, query and key, added, as Swin and T5 do; causal: no input, a constant."""

DROPPED = -10000.0
"""What BERT adds to the score of a key that is masked; float16 has it exactly."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Extents of a block; its input and output are (batch, length, embed)."""

    batch: int
    length: int
    heads: int
    head_size: int

    @property
    def embed(self) -> int:
        """Width of the input, heads times head size."""
        return self.heads * self.head_size

    @property
    def scale(self) -> float:
        """What q kᵀ is multiplied by."""
        return float(self.head_size**-0.5)

    @property
    def x(self) -> tuple[int, int, int]:
        """Shape of input and output."""
        return (self.batch, self.length, self.embed)

    @property
    def split(self) -> list[int]:
        """Shape of q, k and v."""
        return [self.batch, self.heads, self.length, self.head_size]


@dataclass(frozen=True, kw_only=True, eq=False)
class Weights:
    """Parameters as torch keeps them: qkv (3E, E), proj (E, E), bias (E,)."""

    qkv: Array
    proj: Array
    bias: Array

    @staticmethod
    def draw(random: TorchRandom, embed: int) -> Weights:
        """nn.Linear(embed, 3·embed, bias=False), then nn.Linear(embed, embed)."""
        qkv = random.linear_weight(embed, 3 * embed)
        proj = random.linear_weight(embed, embed)
        return Weights(qkv=qkv, proj=proj, bias=random.linear_bias(embed, embed))

    def astype(self, dtype: type[Any]) -> Weights:
        """The same, rounded to another element type."""
        qkv, proj, bias = (w.astype(dtype) for w in (self.qkv, self.proj, self.bias))
        return Weights(qkv=qkv, proj=proj, bias=bias)


def draw_mask(kind: Mask, size: Size, random: TorchRandom, dtype: type[Any]) -> Array | None:
    """The graph's input "mask", or None where it has none.

    Of batch row i the last (i + 1)/(batch + 2) keys are masked, at least one is left.
    """
    if kind == "bias":
        drawn = 4 * random.rand(1, size.heads, size.length, size.length) - 2
        return np.asarray(drawn.astype(dtype))
    if kind not in {"additive", "padding"}:
        return None
    kept = [max(1, size.length - size.length * (i + 1) // (size.batch + 2)) for i in range(size.batch)]
    padded = np.arange(size.length) >= np.array(kept)[:, None]
    if kind == "padding":
        return padded
    return np.where(padded, DROPPED, 0.0).astype(dtype)[:, None, None, :]


def addend(kind: Mask, size: Size, mask: Array | None) -> Array | None:
    """What the mask adds to the scores, in float64; broadcasts to (batch, heads, length, length)."""
    if kind == "causal":
        return np.triu(np.full((size.length, size.length), -np.inf), k=1)
    if mask is None:
        return None
    if kind == "padding":
        return np.where(mask, -np.inf, 0.0)[:, None, None, :]
    return mask.astype(np.float64)


def build(
    size: Size, weights: Weights, formulation: Formulation = "explicit", mask: Mask = "none", *,
    scale: float | None = None, factors: tuple[float, float] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    """The block's graph.

    `scale` puts another constant into the explicit formulation, `factors` others than √scale on q and kᵀ
    into "sdpa". ValueError for a mask that torch 2.13 exports with a float32 core, whatever the weights are.
    """
    dtype = weights.qkv.dtype
    if formulation.startswith("sdpa") and (mask == "causal" or (mask == "padding" and dtype == np.float16)):
        raise ValueError(f"torch exports sdpa in {dtype} with the mask {mask!r} as attention in float32")
    graph = Graph()
    graph.input("x", dtype, size.x)
    graph.output("y", dtype, size.x)
    graph.initializer("proj.bias", weights.bias)
    graph.initializer("qkv.weight", weights.qkv.T)
    if formulation == "mha":
        return _mha(graph, size, weights)
    _declare(graph, size, dtype, mask)
    y = graph.MatMul("x", "qkv.weight")  # linear(x).reshape(B, S, 3, H, -1).permute(2, 0, 3, 1, 4).unbind(0)
    y = graph.Reshape(y, [size.batch, size.length, 3, size.heads, -1], allowzero=0)
    y = graph.Transpose(y, perm=[2, 0, 3, 1, 4])
    parts = graph.nodes("Split", y, [1, 1, 1], out=("", "", ""), axis=0)
    q, k, v = (graph.Squeeze(part, [0]) for part in parts)
    if formulation == "sdpa":
        y = _attend(graph, *_scaled_by(graph, q, k, factors or (float(np.sqrt(size.scale)),) * 2, dtype), v)
    elif formulation == "sdpa-default":
        y = _sdpa(graph, q, k, v, dtype, mask)
    else:
        y = _written_out(graph, size, (q, k, v), dtype, formulation, mask, scale)
    y = graph.Transpose(y, perm=[0, 2, 1, 3])  # proj(y.transpose(1, 2).reshape(B, S, -1)), the output
    y = graph.Reshape(y, [size.batch, size.length, -1], allowzero=0)
    graph = graph.at("/proj")
    y = graph.MatMul(y, graph.initializer("proj.weight", weights.proj.T))
    graph.Add("proj.bias", y, out="y")
    return graph.model()


def _declare(graph: Graph, size: Size, dtype: np.dtype[Any], mask: Mask) -> None:
    """The mask's input, or the constant that it is."""
    batch, heads, length = size.batch, size.heads, size.length
    match mask:
        case "additive":
            graph.input("mask", dtype, (batch, 1, 1, length))
        case "bias":
            graph.input("mask", dtype, (1, heads, length, length))
        case "padding":
            graph.input("mask", np.bool_, (batch, length))
        case "causal":
            graph.initializer("causal", np.tril(np.ones((length, length), dtype=np.bool_)))


def _written_out(
    graph: Graph, size: Size, parts: tuple[str, str, str], dtype: np.dtype[Any], formulation: Formulation,
    mask: Mask, scale: float | None,
) -> str:  # fmt: skip
    """Attention by Tensor methods; "wide": in float32."""
    wide = formulation == "wide"
    core = np.dtype(np.float32) if wide else dtype
    q, k, v = (graph.Cast(part, to=element_type(core)) for part in parts) if wide else parts
    if formulation == "bert":
        scores = graph.MatMul(q, graph.Transpose(k, perm=[0, 1, 3, 2]))
        scores = graph.Div(scores, np.array(np.sqrt(size.head_size), core))
    else:
        q = graph.Mul(q, np.array(size.scale if scale is None else scale, core))
        scores = graph.MatMul(q, graph.Transpose(k, perm=[0, 1, 3, 2]))
    if mask == "padding":  # scores.masked_fill(mask[:, None, None, :], -inf)
        by_key = graph.Cast(_by_key(graph), to=element_type(np.bool_))
        scores = graph.Where(by_key, graph.constant(np.array(-np.inf, core)), scores)
    elif mask == "causal":  # torch.where(causal, scores, torch.finfo(scores.dtype).min)
        scores = graph.Where("causal", scores, np.array(np.finfo(core).min, core))
    elif mask != "none":
        scores = graph.Add(scores, graph.Cast("mask", to=element_type(core)) if wide else "mask")
    y = graph.MatMul(graph.Softmax(scores, axis=-1), v)
    return graph.Cast(y, to=element_type(dtype)) if wide else y


def _by_key(graph: Graph) -> str:
    """mask[:, None, None, :]."""
    return graph.Unsqueeze(graph.Unsqueeze("mask", [1]), [2])


def _scaled_by(
    graph: Graph, q: str, k: str, factors: tuple[float, ...], dtype: np.dtype[Any]
) -> tuple[str, str]:
    """q and kᵀ, each times a constant."""
    k = graph.Transpose(k, perm=[0, 1, 3, 2])
    q = graph.Mul(q, np.array(factors[0], dtype=dtype))
    return q, graph.Mul(k, np.array(factors[1], dtype=dtype))


def _sdpa(graph: Graph, q: str, k: str, v: str, dtype: np.dtype[Any], mask: Mask) -> str:
    """F.scaled_dot_product_attention(q, k, v, attn_mask=mask), a boolean one as ~mask[:, None, None, :]."""
    kept = graph.Not(_by_key(graph)) if mask == "padding" else ""
    scores = graph.MatMul(*scale_by_root(graph, q, k, scale_from_shape(graph, q, dtype)))
    if mask in {"additive", "bias"}:
        scores = graph.Add(scores, "mask")
    if not kept:
        return graph.MatMul(graph.Softmax(scores, axis=-1), v)
    return graph.MatMul(softmax_without_nan(graph, graph.Add(scores, by_boolean(graph, kept))), v)


def _attend(graph: Graph, q: str, k: str, v: str) -> str:
    """softmax(q kᵀ) v, where k comes transposed."""
    return graph.MatMul(graph.Softmax(graph.MatMul(q, k), axis=-1), v)


def _mha(graph: Graph, size: Size, weights: Weights) -> onnx.ModelProto:
    """The block by F.multi_head_attention_forward, which gets q, k and v out of one packed projection."""
    picks = [graph.constant(np.array(i)) for i in (0, 1)]
    y = graph.Transpose("x", perm=[1, 0, 2])
    picks.append(graph.constant(np.array(2)))
    y = _unflatten(graph, graph.MatMul(y, "qkv.weight"), 3, size.embed)
    y = graph.Transpose(graph.Unsqueeze(y, [0]), perm=[3, 1, 2, 0, 4])
    y = graph.Squeeze(y, [3])
    parts = [graph.Gather(y, pick, axis=0) for pick in picks]
    rows = [size.length, size.batch * size.heads, size.head_size]
    q, k, v = (graph.Transpose(graph.Reshape(part, rows, allowzero=0), perm=[1, 0, 2]) for part in parts)
    q = graph.Reshape(q, size.split, allowzero=0)
    shapes = [graph.constant(size.split) for _ in range(2)]
    k, v = (graph.Reshape(t, s, allowzero=0) for t, s in zip((k, v), shapes, strict=True))
    scale = scale_from_shape(graph, q, weights.qkv.dtype)
    y = graph.Transpose(_attend(graph, *scale_by_root(graph, q, k, scale), v), perm=[2, 0, 1, 3])
    y = graph.Reshape(y, [size.length * size.batch, size.embed], allowzero=0)
    proj = graph.initializer("proj.weight", weights.proj)
    y = graph.Gemm(y, proj, "proj.bias", alpha=1.0, beta=1.0, transB=1)
    y = graph.Reshape(y, [size.length, size.batch, size.embed], allowzero=0)
    graph.Transpose(y, perm=[1, 0, 2], out="y")
    return graph.model()


def _unflatten(graph: Graph, y: str, parts: int, width: int) -> str:
    """y.unflatten(-1, (parts, width)) of a tensor of rank 3."""
    sizes = graph.constant([parts, width])
    axis = graph.Mod([2], [3])
    shape = graph.Shape(y)
    zero, one = graph.constant([0]), graph.constant([1])
    before = graph.Slice(shape, zero, graph.Reshape(axis, one))
    behind = graph.Reshape(graph.Add(axis, [1]), [1])
    after = graph.Slice(shape, behind, [INT64_MAX])
    return graph.Reshape(y, graph.Concat(before, sizes, after, axis=0), allowzero=0)


def compute(
    x: Array, size: Size, weights: Weights, *, q_factor: float | None = None, k_factor: float = 1.0,
    mask: Array | None = None, arithmetic: Arithmetic = FLOAT64, core: Arithmetic | None = None,
    rows: int | None = None, queries: int | None = None,
) -> Array:  # fmt: skip
    """The block's output (batch, length, embed) in some arithmetic; in float64 the reference.

    `mask` is added to the scores, as whose (batch, heads, length, length) it broadcasts. `core` is
    the arithmetic between q, k, v and the output projection, if it is another one. `rows` and `queries`
    ask for a part: the first batch rows, and about so many queries spread over the length; every sum stays
    as long as it is in the whole. Works on one head of one batch row at a time: the scores of all would
    not fit into memory.
    """
    a, c, embed, split = arithmetic, core or arithmetic, size.embed, (size.heads, size.head_size)
    x = x[:rows]
    picked = slice(None, None, 1 if queries is None else max(1, size.length // queries))
    q_factor = size.scale if q_factor is None else q_factor
    factors = [c.stored(np.array(factor, dtype=c.working)) for factor in (q_factor, k_factor)]
    all_q = a.matmul(x[:, picked].reshape(-1, embed), weights.qkv[:embed].T).reshape(len(x), -1, *split)
    kv = a.matmul(x.reshape(-1, embed), weights.qkv[embed:].T).reshape(*x.shape[:2], 2, *split)
    heads = np.empty(all_q.shape, dtype=all_q.dtype)
    if mask is not None:
        shape = (size.batch, size.heads, size.length, size.length)
        mask = np.broadcast_to(mask.astype(c.working, copy=False), shape)[:, :, picked]
    for batch, head in np.ndindex(len(x), size.heads):
        q, k, v = (t[batch, :, head] for t in (all_q, kv[:, :, 0], kv[:, :, 1]))
        scores = c.matmul(c.stored(q * factors[0]), c.stored(k * factors[1]).T)
        if mask is not None:
            scores = c.stored(scores + mask[batch, head])
        heads[batch, :, head] = a.stored(c.softmax_matmul(scores, v))
    y = a.matmul(heads.reshape(-1, embed), weights.proj.T)
    return a.stored(y + weights.bias).reshape(len(x), -1, embed)
