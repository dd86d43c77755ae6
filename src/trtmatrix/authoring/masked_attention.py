"""Self-attention blocks with masks, in more formulations, and with float32 inside: graphs and addends.

The block is that of trtmatrix.authoring.attention. The graphs equal torch's own exports too
(tests/torch/test_gemm_mha_v2.py).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray

from trtmatrix.authoring.attention import (
    Size,
    Weights,
    begin,
    project,
    scale_from_shape,
    unbind,
)
from trtmatrix.authoring.graph import Graph, element_type
from trtmatrix.authoring.randoms import TorchRandom

Array = NDArray[Any]

Formulation = Literal["explicit", "bert", "sdpa", "wide"]
"""explicit: (q · scale) kᵀ; bert: q kᵀ / √head_size; sdpa: F.scaled_dot_product_attention without scale=;
wide: explicit with q, k and v cast to float32, and the result cast back."""

Mask = Literal["none", "additive", "padding", "bias", "causal"]
"""additive: 0 or -10000 by key, added, as BERT does; padding: boolean by key, True where it is padded;
bias: a finite number by head, query and key, added, as Swin and T5 do; causal: no input, a constant."""

DROPPED = -10000.0
"""What BERT adds to the score of a key that is masked; float16 has it exactly."""


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
    size: Size,
    weights: Weights,
    *,
    formulation: Formulation = "explicit",
    mask: Mask = "none",
    scale: float | None = None,
) -> onnx.ModelProto:
    """The block's graph; `scale` puts another constant into the explicit formulation.

    ValueError for a mask that torch 2.13 exports with a float32 core, whatever the weights are.
    """
    core = np.dtype(np.float32) if formulation == "wide" else weights.qkv.dtype
    if formulation == "sdpa" and (mask == "causal" or (mask == "padding" and core == np.float16)):
        raise ValueError(f"torch exports sdpa in {core} with the mask {mask!r} as attention in float32")
    graph = begin(size, weights)
    _declare(graph, size, weights, mask)
    q, k, v = unbind(graph, size)
    if formulation == "sdpa":
        return project(graph, size, weights, _sdpa(graph, weights, q, k, v, mask))
    wide = formulation == "wide"
    if wide:
        q, k, v = (graph.node("Cast", tensor, to=element_type(core)) for tensor in (q, k, v))
    if formulation == "bert":
        scores = _bert_scores(graph, size, q, k, core)
    else:
        scores = _scores(graph, q, k, np.array(size.scale if scale is None else scale, core))
    scores = _masked(graph, scores, mask, core, cast=wide)
    y = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), v)
    if wide:
        y = graph.node("Cast", y, to=element_type(weights.qkv.dtype))
    return project(graph, size, weights, y)


def _declare(graph: Graph, size: Size, weights: Weights, mask: Mask) -> None:
    """The mask's input, or the constant that it is."""
    batch, heads, length = size.batch, size.heads, size.length
    if mask == "additive":
        graph.input("mask", weights.qkv.dtype, (batch, 1, 1, length))
    elif mask == "bias":
        graph.input("mask", weights.qkv.dtype, (1, heads, length, length))
    elif mask == "padding":
        graph.input("mask", np.bool_, (batch, length))
    elif mask == "causal":
        graph.initializer("causal", np.tril(np.ones((length, length), dtype=np.bool_)))


def _scores(graph: Graph, q: str, k: str, scale: Array) -> str:
    """(q · scale) kᵀ."""
    q = graph.node("Mul", q, graph.constant(scale))
    return graph.node("MatMul", q, graph.node("Transpose", k, perm=[0, 1, 3, 2]))


def _bert_scores(graph: Graph, size: Size, q: str, k: str, core: np.dtype[Any]) -> str:
    """q kᵀ / √head_size."""
    y = graph.node("MatMul", q, graph.node("Transpose", k, perm=[0, 1, 3, 2]))
    return graph.node("Div", y, graph.constant(np.array(np.sqrt(size.head_size), core)))


def _masked(graph: Graph, scores: str, mask: Mask, core: np.dtype[Any], *, cast: bool) -> str:
    """The scores with a mask as torch's Tensor methods put it on."""
    if mask == "none":
        return scores
    if mask == "padding":  # scores.masked_fill(mask[:, None, None, :], -inf)
        by_key = graph.node("Cast", _by_key(graph), to=element_type(np.bool_))
        return graph.node("Where", by_key, graph.constant(np.array(-np.inf, core)), scores)
    if mask == "causal":  # torch.where(causal, scores, torch.finfo(scores.dtype).min)
        least = np.array(np.finfo(core).min, core)
        return graph.node("Where", "causal", scores, graph.constant(least))
    added = graph.node("Cast", "mask", to=element_type(core)) if cast else "mask"
    return graph.node("Add", scores, added)


def _by_key(graph: Graph) -> str:
    """mask[:, None, None, :]."""
    y = graph.node("Unsqueeze", "mask", graph.constant([1]))
    return graph.node("Unsqueeze", y, graph.constant([2]))


def _sdpa(graph: Graph, weights: Weights, q: str, k: str, v: str, mask: Mask) -> str:
    """F.scaled_dot_product_attention(q, k, v, attn_mask=mask), a boolean one as ~mask[:, None, None, :].

    For a boolean mask torch adds a guard against rows that have no key at all.
    """
    kept = graph.node("Not", _by_key(graph)) if mask == "padding" else ""
    q, k = scale_from_shape(graph, weights, q, k)
    scores = graph.node("MatMul", q, k)
    if mask in {"additive", "bias"}:
        scores = graph.node("Add", scores, "mask")
    if not kept:
        return graph.node("MatMul", graph.node("Softmax", scores, axis=-1), v)
    zero, least = (graph.constant(np.array([value], np.float32)) for value in (0.0, -np.inf))
    scores = graph.node("Add", scores, graph.node("Where", kept, zero, least))
    y = graph.node("Softmax", scores, axis=-1)
    nothing, zero = graph.node("IsNaN", y), graph.constant(np.array([0.0], np.float32))
    return graph.node("MatMul", graph.node("Where", nothing, zero, y), v)
