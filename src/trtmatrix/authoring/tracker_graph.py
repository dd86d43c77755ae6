"""Graphs of a tracker's transformer and of its cross attention alone, as torch exports them.

They equal those of torch.onnx.export(opset_version=17, dynamo=False) of torch 2.13 with static
shapes, node by node (tests/torch/test_mha_tracker.py). nn.MultiheadAttention is called as the
tracker calls it, which leaves need_weights True: torch then takes its explicit path (bmm, with a mask
baddbmm), and not scaled_dot_product_attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from trtmatrix.authoring.graph import Attribute, Graph, element_type
from trtmatrix.authoring.tracker import CROSS, EPSILON, Size, Weights

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Form:
    """How the graph differs from the tracker's own, if it does.

    masked: whether there is a padding mask; float32_softmax: Casts around each Softmax. Other constants in
    the cross attention: cross_scale, which q is multiplied by; cross_forbidden, which the mask adds.
    """

    masked: bool = True
    float32_softmax: bool = False
    cross_scale: float | None = None
    cross_forbidden: float = -math.inf


@dataclass(frozen=True, kw_only=True)
class _Module:
    """A place in the tree of modules: what is put there has its scope and its parameters' prefix."""

    size: Size
    weights: Weights
    form: Form
    scope: str = ""
    prefix: str = ""
    graph: Graph = field(default_factory=Graph)

    @property
    def dtype(self) -> np.dtype[Any]:
        return next(iter(self.weights.values())).dtype

    def at(self, *path: str) -> _Module:
        """A module below this one."""
        scope = "/".join([self.scope, *path])
        return replace(self, scope=scope, prefix=".".join([self.prefix + path[0], *path[1:], ""]))

    def node(self, op: str, *inputs: str, out: str = "", **attributes: Attribute) -> str:
        return self.graph.node(op, *inputs, scope=self.scope, out=out, domain="", **attributes)

    def constant(self, value: Array | Sequence[int]) -> str:
        array = value if isinstance(value, np.ndarray) else np.array(value, dtype=np.int64)
        return self.node("Constant", value=numpy_helper.from_array(array))

    def scalar(self, value: float) -> str:
        return self.constant(np.array(value, dtype=self.dtype))

    def zeros(self, *shape: int) -> str:
        return self.constant(np.zeros(shape, dtype=self.dtype))

    def ones(self, rank: int) -> str:
        """An int64 vector of ones, as torch's Expand computes it."""
        return self.node(
            "ConstantOfShape", self.constant([rank]), value=numpy_helper.from_array(np.array([1]))
        )

    def weight(self, name: str) -> str:
        return self.graph.initializer(self.prefix + name, self.weights[self.prefix + name])

    def reshape(self, x: str, *shape: int, out: str = "") -> str:
        return self.node("Reshape", x, self.constant(shape), out=out, allowzero=0)

    def linear(self, x: str) -> str:
        name = f"{self.prefix}weight"
        y = self.node("MatMul", x, self.graph.initializer(name, self.weights[name].T))
        return self.node("Add", self.weight("bias"), y)

    def norm(self, x: str, out: str = "") -> str:
        names = [self.weight(name) for name in ("weight", "bias")]
        epsilon = float(np.float32(EPSILON))
        return self.node("LayerNormalization", x, *names, out=out, axis=-1, epsilon=epsilon)


def whole(size: Size, weights: Weights, form: Form) -> onnx.ModelProto:
    """The transformer: feat, query_embed, pos_embed and mask to output_embed and enc_mem."""
    root = _Module(size=size, weights=weights, form=form)
    shapes = {"feat": size.sequence, "query_embed": (1, size.embed), "pos_embed": size.sequence}
    mask = _inputs(root, shapes)
    query = root.node("Unsqueeze", "query_embed", root.constant([1]))  # unsqueeze(1).repeat(1, batch, 1)
    times = root.constant([1, size.batch, 1])
    query = root.node("Tile", root.node("Expand", query, root.ones(3)), times)
    _encoder_layer(root.at("encoder", "layers.0"), mask)
    y = _decoder_layer(root.at("decoder", "layers.0"), query, mask)
    decoder = root.at("decoder")
    y = decoder.at("norm").norm(y)
    y = decoder.node("Unsqueeze", y, decoder.constant([0]))
    root.node("Transpose", y, perm=[0, 2, 1, 3], out="output_embed")
    root.graph.output("output_embed", root.dtype, (1, size.batch, 1, size.embed))
    root.graph.output("enc_mem", root.dtype, size.sequence)
    return root.graph.model()


def alone(size: Size, weights: Weights, form: Form) -> onnx.ModelProto:
    """The decoder's cross attention: query, key, value and mask to y."""
    module = _Module(size=size, weights=weights, form=form, scope="/multihead_attn", prefix=CROSS)
    mask = _inputs(module, {"query": size.query, "key": size.sequence, "value": size.sequence})
    _cross(module, ("query", "key", "value"), mask, out="y")
    module.graph.output("y", module.dtype, size.query)
    return module.graph.model()


def _inputs(module: _Module, shapes: dict[str, tuple[int, ...]]) -> str:
    """Declare the inputs; returns the mask's name, or "" where there is none."""
    for name, shape in shapes.items():
        module.graph.input(name, module.dtype, shape)
    if not module.form.masked:
        return ""
    return module.graph.input("mask", np.bool_, (module.size.batch, module.size.length))


def _encoder_layer(layer: _Module, mask: str) -> None:
    placed = layer.node("Add", "feat", "pos_embed")
    y = _self_attention(layer.at("self_attn"), (placed, placed, "feat"), layer.size.length, mask)
    x = layer.at("norm1").norm(layer.node("Add", "feat", y))
    layer.at("norm2").norm(_feed_forward(layer, x), out="enc_mem")


def _decoder_layer(layer: _Module, query: str, mask: str) -> str:
    """The target comes in as zeros, which torch writes as a constant wherever it is used."""
    placed = layer.node("Add", layer.zeros(*layer.size.query), query)
    y = _self_attention(layer.at("self_attn"), (placed, placed, ""), 1)
    x = layer.at("norm1").norm(layer.node("Add", layer.zeros(*layer.size.query), y))
    placed = layer.node("Add", x, query)
    key = layer.node("Add", "enc_mem", "pos_embed")
    y = _cross(layer.at("multihead_attn"), (placed, key, "enc_mem"), mask)
    x = layer.at("norm2").norm(layer.node("Add", x, y))
    return layer.at("norm3").norm(_feed_forward(layer, x))


def _feed_forward(layer: _Module, x: str) -> str:
    """x + linear2(relu(linear1(x)))."""
    y = layer.node("Relu", layer.at("linear1").linear(x))
    return layer.node("Add", x, layer.at("linear2").linear(y))


def _self_attention(module: _Module, inputs: tuple[str, str, str], rows: int, mask: str = "") -> str:
    bias = _bias(module, mask, -math.inf)
    q, k, v = _heads(module, inputs, rows, rows)
    return _attend(module, q, k, v, rows, bias)


def _cross(module: _Module, inputs: tuple[str, str, str], mask: str, out: str = "") -> str:
    """The decoder's one query looks at all features; its scores q kᵀ are called "scores"."""
    form = module.form
    bias = _bias(module, mask, form.cross_forbidden)
    q, k, v = _heads(module, inputs, 1, module.size.length)
    return _attend(module, q, k, v, 1, bias, form.cross_scale, "scores", out)


def _bias(module: _Module, mask: str, forbidden: float) -> str:
    """What the mask adds to the scores, (batch, length); "" without a mask."""
    if not mask:
        return ""
    mask = module.node("Cast", mask, to=element_type(np.bool_))
    value = module.scalar(forbidden)
    return module.node("Where", mask, value, module.zeros(module.size.batch, module.size.length))


def _heads(module: _Module, inputs: tuple[str, str, str], rows: int, seen: int) -> tuple[str, str, str]:
    """q and v as (batch · heads, rows, head size), k before it is transposed.

    An empty value is zero: the target that the decoder starts from.
    """
    size, projected = module.size, []
    weights = np.split(module.weights[f"{module.prefix}in_proj_weight"], 3)
    biases = np.split(module.weights[f"{module.prefix}in_proj_bias"], 3)
    for part, x, weight, bias in zip("qkv", inputs, weights, biases, strict=True):
        w, b = (f"{module.prefix}in_proj_{kind}.{part}" for kind in ("weight", "bias"))
        y = module.node("MatMul", x or module.zeros(*size.query), module.graph.initializer(w, weight.T))
        projected.append(module.node("Add", module.graph.initializer(b, bias), y))
    pairs, (q, k, v) = size.batch * size.heads, projected
    q = module.node("Transpose", module.reshape(q, rows, pairs, size.head_size), perm=[1, 0, 2])
    k = module.reshape(k, seen, pairs, size.head_size)
    v = module.node("Transpose", module.reshape(v, seen, pairs, size.head_size), perm=[1, 0, 2])
    return q, k, v


def _attend(
    module: _Module, q: str, k: str, v: str, rows: int, bias: str,
    scale: float | None = None, scores: str = "", out: str = "",
) -> str:  # fmt: skip
    """softmax(scale · q kᵀ + bias) v and the output projection."""
    size = module.size
    if bias:
        bias = _bias_of_heads(module, bias)
    q = module.node("Mul", q, module.scalar(size.scale if scale is None else scale))
    k = module.node("Transpose", k, perm=[1, 2, 0])
    s = module.node("MatMul", q, k, out=scores)
    if bias:  # baddbmm: 1 · q kᵀ + 1 · bias
        s = module.node("Mul", s, module.scalar(1.0))
        s = module.node("Add", s, module.node("Mul", bias, module.scalar(1.0)))
    y = module.node("MatMul", _softmax(module, s), v)
    y = module.reshape(module.node("Transpose", y, perm=[1, 0, 2]), rows * size.batch, size.embed)
    names = [module.at("out_proj").weight(name) for name in ("weight", "bias")]
    y = module.node("Gemm", y, *names, alpha=1.0, beta=1.0, transB=1)
    return module.reshape(y, rows, size.batch, size.embed, out=out)


def _bias_of_heads(module: _Module, bias: str) -> str:
    """bias.view(batch, 1, 1, length).expand(-1, heads, -1, -1).reshape(batch · heads, 1, length)."""
    size = module.size
    bias = module.reshape(bias, size.batch, 1, 1, size.length)
    ones = module.ones(4)
    kept = module.node("Mul", ones, module.constant(np.array(-1)))
    wanted = [-1, size.heads, -1, -1]
    same = module.node("Equal", module.constant(wanted), kept)
    shape = module.node("Where", same, ones, module.constant(wanted))
    bias = module.node("Expand", bias, shape)
    return module.reshape(bias, size.batch * size.heads, 1, size.length)


def _softmax(module: _Module, scores: str) -> str:
    if not module.form.float32_softmax:
        return module.node("Softmax", scores, axis=-1)
    scores = module.node("Cast", scores, to=element_type(np.float32))
    y = module.node("Softmax", scores, axis=-1)
    return module.node("Cast", y, to=element_type(module.dtype))
