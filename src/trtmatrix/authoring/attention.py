"""Self-attention blocks: graphs as torch exports them, and what they compute.

Each formulation is one way to write the same block in torch: x -> q, k, v by one linear layer
without bias -> softmax(scale · q kᵀ) v -> output projection. The graphs equal those of
torch.onnx.export(opset_version=17, dynamo=False) of torch 2.13 with static shapes, node by node
(tests/torch/test_exports.py), because defects of fusions depend on the exact pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtmatrix.authoring.arithmetic import FLOAT64, Arithmetic
from trtmatrix.authoring.graph import Graph, element_type
from trtmatrix.authoring.randoms import TorchRandom

Array = NDArray[Any]
INT64_MAX = np.iinfo(np.int64).max


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
    def split(self) -> tuple[int, int, int, int]:
        """Shape of q, k and v."""
        return (self.batch, self.heads, self.length, self.head_size)


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


def explicit(size: Size, weights: Weights, *, scale: float | None = None) -> onnx.ModelProto:
    """(q · scale) @ k.transpose(-2, -1), softmax, @ v."""
    graph = begin(size, weights)
    q, k, v = unbind(graph, size)
    q = graph.node("Mul", q, _scalar(graph, weights, size.scale if scale is None else scale))
    k = graph.node("Transpose", k, perm=[0, 1, 3, 2])
    return project(graph, size, weights, _attend(graph, q, k, v))


def sdpa(
    size: Size,
    weights: Weights,
    *,
    q_factor: float | None = None,
    k_factor: float | None = None,
) -> onnx.ModelProto:
    """F.scaled_dot_product_attention with scale= given: √scale on q and on kᵀ, as constants.

    The arguments put other constants in their place.
    """
    graph = begin(size, weights)
    q, k, v = unbind(graph, size)
    root = float(np.sqrt(size.scale))
    k = graph.node("Transpose", k, perm=[0, 1, 3, 2])
    q = graph.node("Mul", q, _scalar(graph, weights, root if q_factor is None else q_factor))
    k = graph.node("Mul", k, _scalar(graph, weights, root if k_factor is None else k_factor))
    return project(graph, size, weights, _attend(graph, q, k, v))


def sdpa_default(size: Size, weights: Weights) -> onnx.ModelProto:
    """F.scaled_dot_product_attention without scale=: √scale computed from q's shape."""
    graph = begin(size, weights)
    q, k, v = unbind(graph, size)
    q, k = scale_from_shape(graph, weights, q, k)
    return project(graph, size, weights, _attend(graph, q, k, v))


def mha(size: Size, weights: Weights) -> onnx.ModelProto:
    """F.multi_head_attention_forward(x, x, x, need_weights=False) on (length, batch, embed)."""
    graph = begin(size, weights)
    q, k, v = _packed_projection(graph, size)
    q, k = scale_from_shape(graph, weights, q, k)
    y = graph.node("Transpose", _attend(graph, q, k, v), perm=[2, 0, 1, 3])
    y = _reshape(graph, y, [size.length * size.batch, size.embed])
    proj = graph.initializer("proj.weight", weights.proj)
    y = graph.node("Gemm", y, proj, "proj.bias", alpha=1.0, beta=1.0, transB=1)
    y = _reshape(graph, y, [size.length, size.batch, size.embed])
    graph.node("Transpose", y, perm=[1, 0, 2], out="y")
    return graph.model()


def begin(size: Size, weights: Weights) -> Graph:
    """A graph with its input x, its output y and the weights that stand first."""
    graph = Graph()
    graph.input("x", weights.qkv.dtype, size.x)
    graph.output("y", weights.qkv.dtype, size.x)
    graph.initializer("proj.bias", weights.bias)
    graph.initializer("qkv.weight", weights.qkv.T)
    return graph


def _scalar(graph: Graph, weights: Weights, value: float) -> str:
    return graph.constant(np.array(value, dtype=weights.qkv.dtype))


def _reshape(graph: Graph, tensor: str, shape: list[int]) -> str:
    return graph.node("Reshape", tensor, graph.constant(shape), allowzero=0)


def unbind(graph: Graph, size: Size) -> tuple[str, str, str]:
    """linear(x).reshape(B, S, 3, H, -1).permute(2, 0, 3, 1, 4).unbind(0)."""
    y = graph.node("MatMul", "x", "qkv.weight")
    y = _reshape(graph, y, [size.batch, size.length, 3, size.heads, -1])
    y = graph.node("Transpose", y, perm=[2, 0, 3, 1, 4])
    parts = graph.nodes("Split", y, graph.constant([1, 1, 1]), out=("", "", ""), axis=0)
    q, k, v = (graph.node("Squeeze", part, graph.constant([0])) for part in parts)
    return q, k, v


def scale_from_shape(graph: Graph, weights: Weights, q: str, k: str) -> tuple[str, str]:
    """q · √scale and kᵀ · √scale, where scale is 1/√(last extent of q), computed in the graph."""
    dtype = weights.qkv.dtype
    last = graph.node("Shape", q)
    last = graph.node("Slice", last, graph.constant([-1]), graph.constant([INT64_MAX]))
    root = graph.node("Sqrt", graph.node("Cast", last, to=element_type(dtype)))
    one = graph.constant(np.array([1.0], dtype=np.float32))
    if dtype == np.float16:
        root = graph.node("Cast", root, to=element_type(np.float32))
    scale = graph.node("Cast", graph.node("Div", one, root), to=element_type(dtype))
    k = graph.node("Transpose", k, perm=[0, 1, 3, 2])
    q = graph.node("Mul", q, graph.node("Sqrt", scale))
    return q, graph.node("Mul", k, graph.node("Sqrt", scale))


def _attend(graph: Graph, q: str, k: str, v: str) -> str:
    """softmax(q kᵀ) v, where k comes transposed."""
    scores = graph.node("Softmax", graph.node("MatMul", q, k), axis=-1)
    return graph.node("MatMul", scores, v)


def project(graph: Graph, size: Size, weights: Weights, y: str) -> onnx.ModelProto:
    """proj(y.transpose(1, 2).reshape(B, S, -1)), the output."""
    y = graph.node("Transpose", y, perm=[0, 2, 1, 3])
    y = _reshape(graph, y, [size.batch, size.length, -1])
    y = graph.node("MatMul", y, graph.initializer("proj.weight", weights.proj.T), scope="/proj")
    graph.node("Add", "proj.bias", y, scope="/proj", out="y")
    return graph.model()


def _packed_projection(graph: Graph, size: Size) -> tuple[str, str, str]:
    """How multi_head_attention_forward gets q, k and v out of one packed projection."""
    picks = [graph.constant(np.array(i)) for i in (0, 1)]
    y = graph.node("Transpose", "x", perm=[1, 0, 2])
    picks.append(graph.constant(np.array(2)))
    y = _unflatten(graph, graph.node("MatMul", y, "qkv.weight"), 3, size.embed)
    y = graph.node("Unsqueeze", y, graph.constant([0]))
    y = graph.node("Transpose", y, perm=[3, 1, 2, 0, 4])
    y = graph.node("Squeeze", y, graph.constant([3]))
    parts = [graph.node("Gather", y, pick, axis=0) for pick in picks]
    rows = [size.length, size.batch * size.heads, size.head_size]
    q, k, v = (graph.node("Transpose", _reshape(graph, part, rows), perm=[1, 0, 2]) for part in parts)
    q = _reshape(graph, q, list(size.split))
    shapes = [graph.constant(list(size.split)) for _ in range(2)]
    k, v = (graph.node("Reshape", t, s, allowzero=0) for t, s in zip((k, v), shapes, strict=True))
    return q, k, v


def _unflatten(graph: Graph, y: str, parts: int, width: int) -> str:
    """y.unflatten(-1, (parts, width)) of a tensor of rank 3."""
    sizes = graph.constant([parts, width])
    axis = graph.node("Mod", graph.constant([2]), graph.constant([3]))
    shape = graph.node("Shape", y)
    zero, one = graph.constant([0]), graph.constant([1])
    before = graph.node("Slice", shape, zero, graph.node("Reshape", axis, one))
    behind = graph.node("Add", axis, graph.constant([1]))
    behind = graph.node("Reshape", behind, graph.constant([1]))
    after = graph.node("Slice", shape, behind, graph.constant([INT64_MAX]))
    shape = graph.node("Concat", before, sizes, after, axis=0)
    return graph.node("Reshape", y, shape, allowzero=0)


def compute(
    x: Array,
    size: Size,
    weights: Weights,
    *,
    q_factor: float | None = None,
    k_factor: float = 1.0,
    mask: Array | None = None,
    arithmetic: Arithmetic = FLOAT64,
    core: Arithmetic | None = None,
    rows: int | None = None,
    queries: int | None = None,
) -> Array:
    """The block's output (batch, length, embed) in some arithmetic; in float64 the reference.

    `mask` is added to the scores, as whose (batch, heads, length, length) it broadcasts. `core` is
    the arithmetic between q, k, v and the output projection, if it is another one. `rows` and `queries`
    ask for a part: the first batch rows, and about so many queries spread over the length; every sum stays
    as long as it is in the whole. Works on one head of one batch row at a time: the scores of all would
    not fit into memory.
    """
    a, c = arithmetic, core or arithmetic
    x = x[:rows]
    picked = slice(None, None, 1 if queries is None else max(1, size.length // queries))
    q_factor = size.scale if q_factor is None else q_factor
    factors = [c.stored(np.array(factor, dtype=c.working)) for factor in (q_factor, k_factor)]
    all_q, all_k, all_v = _project_in(x, size, weights, picked, a)
    heads = np.empty(all_q.shape, dtype=all_q.dtype)
    if mask is not None:
        shape = (size.batch, size.heads, size.length, size.length)
        mask = np.broadcast_to(mask.astype(c.working, copy=False), shape)[:, :, picked]

    for batch, head in np.ndindex(len(x), size.heads):
        q, k, v = (t[batch, :, head] for t in (all_q, all_k, all_v))
        scores = c.matmul(c.stored(q * factors[0]), c.stored(k * factors[1]).T)
        if mask is not None:
            scores = c.stored(scores + mask[batch, head])
        heads[batch, :, head] = a.stored(c.softmax_matmul(scores, v))
    y = a.matmul(heads.reshape(-1, size.embed), weights.proj.T)
    return a.stored(y + weights.bias).reshape(len(x), -1, size.embed)


def _project_in(
    x: Array, size: Size, weights: Weights, picked: slice, arithmetic: Arithmetic
) -> tuple[Array, Array, Array]:
    """q of the picked positions, k and v of all: (batch, positions, heads, head size)."""
    embed, split = size.embed, (size.heads, size.head_size)
    q = arithmetic.matmul(x[:, picked].reshape(-1, embed), weights.qkv[:embed].T)
    kv = arithmetic.matmul(x.reshape(-1, embed), weights.qkv[embed:].T).reshape(*x.shape[:2], 2, *split)
    return q.reshape(len(x), -1, *split), kv[:, :, 0], kv[:, :, 1]
