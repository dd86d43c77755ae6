"""A tracker's transformer, one encoder and one decoder layer: what they compute, and as graphs.

As ToMP's FilterPredictor has them: nn.MultiheadAttention(256, 8) with positions added to query and
key, feed forward, layer norms after each; the one decoder query looks at 972 features of 3 frames.
https://github.com/visionml/pytracking/blob/master/ltr/models/transformer/transformer.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtmatrix.authoring.arithmetic import FLOAT64, Arithmetic
from trtmatrix.authoring.core_attention import scale_left
from trtmatrix.authoring.graph import Graph, Value, element_type
from trtmatrix.authoring.randoms import TorchRandom

Array = NDArray[Any]
Weights = dict[str, Array]
"""Parameters by the names of torch's state_dict."""
Inputs = dict[str, Array]
"""Tensors by their names in the graph."""

ENCODER, DECODER, NORM = "encoder.layers.0.", "decoder.layers.0.", "decoder.norm."
CROSS = f"{DECODER}multihead_attn."
EPSILON = 1e-5  # of nn.LayerNorm


@dataclass(frozen=True, kw_only=True)
class Size:
    """Extents; a sequence is (length, batch, embed), as torch has it without batch_first."""

    length: int
    batch: int
    embed: int
    heads: int
    hidden: int

    @property
    def head_size(self) -> int:
        """Width of one head."""
        return self.embed // self.heads

    @property
    def scale(self) -> float:
        """What q kᵀ is multiplied by."""
        return math.sqrt(1.0 / self.head_size)

    @property
    def sequence(self) -> tuple[int, int, int]:
        """Shape of the features."""
        return (self.length, self.batch, self.embed)

    @property
    def query(self) -> tuple[int, int, int]:
        """Shape of the decoder's one query."""
        return (1, self.batch, self.embed)


def draw(size: Size, dtype: type[Any], *, masked: bool, seed: int = 0) -> tuple[Weights, Inputs]:
    """Weights and inputs of the whole, rounded to `dtype`: references are of the rounded values.

    Features, the query and positions are uniform and of the usual size. The key padding mask (batch, length):
    in the second row the second frame of three is none.
    """
    random = TorchRandom(seed)
    inputs = {
        "feat": _uniform(random, math.sqrt(3), *size.sequence),
        "query_embed": _uniform(random, math.sqrt(3), 1, size.embed),
        "pos_embed": _uniform(random, 1.0, *size.sequence),
    }
    inputs = {name: x.astype(dtype) for name, x in inputs.items()}
    weights = {name: w.astype(dtype) for name, w in draw_weights(random, size).items()}
    if masked:
        inputs["mask"] = np.zeros((size.batch, size.length), dtype=np.bool_)
        inputs["mask"][1, size.length // 3 : 2 * size.length // 3] = True
    return weights, inputs


def looked_at(size: Size, dtype: type[Any], weights: Weights, inputs: Inputs) -> Inputs:
    """The inputs of the cross attention alone: what it gets in the whole, in float64, then rounded."""
    found = Transformer(size=size, weights=weights).compute(**inputs)
    looked = {name: found[name].astype(dtype) for name in ("query", "key", "value")}
    return {**looked, **{name: mask for name, mask in inputs.items() if name == "mask"}}


def emulate(
    module: str, size: Size, weights: Weights, inputs: Inputs, arithmetic: Arithmetic, defect: str = ""
) -> dict[str, Array]:
    """What the "whole" or the cross attention "alone" gives, the latter with or without a defect.

    Defects: "lost-scale" and "scale*F" (of the cross attention's softmax), "lost-mask" (of its keys).
    """
    there = Transformer(
        size=size, weights=weights, arithmetic=arithmetic,
        cross_scale=scale_left(defect, size.scale), cross_mask=defect != "lost-mask",
    )  # fmt: skip
    if module == "alone":
        return {"y": there.cross(**inputs)[0]}
    found = there.compute(**inputs)
    return {name: found[name] for name in ("output_embed", "enc_mem", "scores")}


def last_row(size: Size, inputs: Inputs) -> tuple[Size, Inputs]:
    """The batch's last row alone, which is masked where any is."""
    by_axis = {0: ("mask",), 1: ("feat", "pos_embed", "query", "key", "value")}
    axes = {name: axis for axis, names in by_axis.items() for name in names}
    picked = {
        name: x.take([size.batch - 1], axis=axes[name]) if name in axes else x for name, x in inputs.items()
    }
    return replace(size, batch=1), picked


def draw_weights(random: TorchRandom, size: Size) -> Weights:
    """Weights of xavier's size, biases and norms off their initial values.

    What makes q and k is 2.5 times larger: sharp attention, as training leaves it, so that the one
    query's answer depends on where it looks.
    """
    weights: Weights = {}
    for prefix in (f"{ENCODER}self_attn.", f"{DECODER}self_attn.", CROSS):
        weights |= _draw_linear(random, prefix + "in_proj_", size.embed, 3 * size.embed)
        weights[prefix + "in_proj_weight"][: 2 * size.embed] *= np.float32(2.5)
        weights |= _draw_linear(random, prefix + "out_proj.", size.embed, size.embed)
    for prefix in (ENCODER, DECODER):
        weights |= _draw_linear(random, prefix + "linear1.", size.embed, size.hidden)
        weights |= _draw_linear(random, prefix + "linear2.", size.hidden, size.embed)
    layers = [ENCODER + "norm1.", ENCODER + "norm2."] + [f"{DECODER}norm{i}." for i in (1, 2, 3)]
    for prefix in [*layers, NORM]:
        weights[prefix + "weight"] = 1 + _uniform(random, 0.1, size.embed)
        weights[prefix + "bias"] = _uniform(random, 0.1, size.embed)
    return weights


def part(weights: Weights, prefix: str) -> Weights:
    """The parameters of one submodule, by the names that it has for them."""
    return {name[len(prefix) :]: w for name, w in weights.items() if name.startswith(prefix)}


def parameters(module: str, weights: Weights) -> Weights:
    """The state_dict of the torch module that is "whole", or holds the cross attention "alone"."""
    if module == "whole":
        return weights
    return {f"multihead_attn.{name}": w for name, w in part(weights, CROSS).items()}


def _uniform(random: TorchRandom, bound: float, *shape: int) -> Array:
    return np.asarray((2 * random.rand(*shape) - 1) * np.float32(bound))


def _draw_linear(random: TorchRandom, prefix: str, inputs: int, outputs: int) -> Weights:
    weight = _uniform(random, math.sqrt(6.0 / (inputs + outputs)), outputs, inputs)
    return {prefix + "weight": weight, prefix + "bias": _uniform(random, 0.1, outputs)}


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """The module's mathematics in some arithmetic; in float64 the reference.

    cross_scale: what q kᵀ of the cross attention is multiplied by; cross_mask: whether it heeds the mask.
    """

    size: Size
    weights: Weights
    arithmetic: Arithmetic = FLOAT64
    cross_scale: float | None = None
    cross_mask: bool = True

    def compute(
        self, feat: Array, query_embed: Array, pos_embed: Array, mask: Array | None = None
    ) -> dict[str, Array]:
        """The outputs output_embed (1, batch, 1, embed) and enc_mem (length, batch, embed).

        And of the cross attention: its inputs query, key and value, its result y, and its scores q kᵀ
        before the mask, (batch · heads, 1, length).
        """
        a, dtype = self.arithmetic, self.arithmetic.working
        x, position = feat.astype(dtype), pos_embed.astype(dtype)
        query = np.broadcast_to(query_embed.astype(dtype), self.size.query)
        placed = a.stored(x + position)
        y, _ = self.attend(f"{ENCODER}self_attn.", placed, placed, x, mask)
        memory = self._feed_forward(ENCODER, self._norm(f"{ENCODER}norm1.", x + y), "norm2.")
        y, _ = self.attend(f"{DECODER}self_attn.", query, query, np.zeros_like(query), None)
        target = self._norm(f"{DECODER}norm1.", y)
        looked = {"query": a.stored(target + query), "key": a.stored(memory + position), "value": memory}
        y, scores = self.cross(**looked, mask=mask)
        z = self._feed_forward(DECODER, self._norm(f"{DECODER}norm2.", target + y), "norm3.")
        z = self._norm(NORM, z)
        output = z.reshape(1, self.size.batch, 1, self.size.embed)
        return {"output_embed": output, "enc_mem": memory, **looked, "y": y, "scores": scores}

    def cross(self, query: Array, key: Array, value: Array, mask: Array | None = None) -> tuple[Array, Array]:
        """The cross attention alone: its result (1, batch, embed) and its scores."""
        mask = mask if self.cross_mask else None
        return self.attend(CROSS, query, key, value, mask, self.cross_scale)

    def attend(
        self, prefix: str, query: Array, key: Array, value: Array, mask: Array | None,
        scale: float | None = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        """nn.MultiheadAttention: its result, and the scores of the first query before the mask.

        Works on one head of one row at a time, as all scores at once would take 120 MB.
        """
        a, size = self.arithmetic, self.size
        w = part(self.weights, prefix)
        rows = np.split(w["in_proj_weight"], 3), np.split(w["in_proj_bias"], 3)
        q, k, v = (self._linear(*p) for p in zip((query, key, value), *rows, strict=True))
        q = a.stored(q * a.stored(np.asarray(size.scale if scale is None else scale, a.working)))
        heads = np.empty_like(q)
        first = np.empty((size.batch * size.heads, 1, key.shape[0]), dtype=a.working)
        for batch, head in np.ndindex(size.batch, size.heads):
            at = (slice(None), batch, slice(head * size.head_size, (head + 1) * size.head_size))
            scores = a.matmul(q[at], k[at].T)
            first[batch * size.heads + head] = scores[:1]
            if mask is not None:
                scores[:, mask[batch]] = -np.inf
            heads[at] = a.softmax_matmul(scores, v[at])
        return self._linear(heads, w["out_proj.weight"], w["out_proj.bias"]), first

    def _linear(self, x: Array, weight: Array, bias: Array) -> Array:
        a = self.arithmetic
        y = a.matmul(x.reshape(-1, x.shape[-1]), weight.T)
        return a.stored(y + bias.astype(a.working)).reshape(*x.shape[:-1], -1)

    def _feed_forward(self, prefix: str, x: Array, norm: str) -> Array:
        w = part(self.weights, prefix)
        hidden = np.maximum(self._linear(x, w["linear1.weight"], w["linear1.bias"]), 0)
        return self._norm(prefix + norm, x + self._linear(hidden, w["linear2.weight"], w["linear2.bias"]))

    def _norm(self, prefix: str, x: Array) -> Array:
        a = self.arithmetic
        w = {name: value.astype(a.working) for name, value in part(self.weights, prefix).items()}
        x = a.stored(x)
        x = x - x.mean(axis=-1, keepdims=True)
        variance = np.square(x).mean(axis=-1, keepdims=True)
        return a.stored(x / np.sqrt(variance + a.working(EPSILON)) * w["weight"] + w["bias"])


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
    prefix: str = ""
    graph: Graph = field(default_factory=Graph)

    @property
    def dtype(self) -> np.dtype[Any]:
        return next(iter(self.weights.values())).dtype

    def at(self, *path: str) -> _Module:
        """A module below this one."""
        graph = self.graph.at("/".join([self.graph.scope, *path]))
        return replace(self, graph=graph, prefix=".".join([self.prefix + path[0], *path[1:], ""]))

    def filled(self, value: float, *shape: int) -> Array:
        """A constant of the graph's type."""
        return np.full(shape, value, dtype=self.dtype)

    def ones(self, rank: int) -> str:
        """An int64 vector of ones, as torch's Expand computes it."""
        value = onnx.numpy_helper.from_array(np.array([1]))
        return self.graph.ConstantOfShape([rank], value=value)

    def weight(self, name: str, value: Array | None = None) -> str:
        name = self.prefix + name
        return self.graph.initializer(name, self.weights[name] if value is None else value)

    def reshape(self, x: str, *shape: int, out: str = "") -> str:
        return self.graph.Reshape(x, list(shape), out=out, allowzero=0)

    def linear(self, x: str) -> str:
        y = self.graph.MatMul(x, self.weight("weight", self.weights[self.prefix + "weight"].T))
        return self.graph.Add(self.weight("bias"), y)

    def norm(self, x: str, out: str = "") -> str:
        names = [self.weight(name) for name in ("weight", "bias")]
        return self.graph.LayerNormalization(x, *names, out=out, axis=-1, epsilon=float(np.float32(EPSILON)))


def whole(size: Size, weights: Weights, form: Form) -> onnx.ModelProto:
    """The transformer as a graph: feat, query_embed, pos_embed and mask to output_embed and enc_mem.

    It equals that of torch.onnx.export(opset_version=17, dynamo=False) of torch 2.13 with static shapes, node
    by node (tests/torch/test_mha_tracker.py), as does :func:`alone`. nn.MultiheadAttention is called as the
    tracker calls it, which leaves need_weights True: torch then takes its explicit path (bmm, with a mask
    baddbmm), and not scaled_dot_product_attention.
    """
    root = _Module(size=size, weights=weights, form=form)
    graph = root.graph
    shapes = {"feat": size.sequence, "query_embed": (1, size.embed), "pos_embed": size.sequence}
    mask = _declare(root, shapes)
    query = graph.Unsqueeze("query_embed", [1])  # unsqueeze(1).repeat(1, batch, 1)
    times = graph.constant([1, size.batch, 1])
    query = graph.Tile(graph.Expand(query, root.ones(3)), times)
    _encoder_layer(root.at("encoder", "layers.0"), mask)
    decoder = root.at("decoder")
    y = _decoder_layer(decoder.at("layers.0"), query, mask)
    y = decoder.graph.Unsqueeze(decoder.at("norm").norm(y), [0])
    graph.Transpose(y, perm=[0, 2, 1, 3], out="output_embed")
    graph.output("output_embed", root.dtype, (1, size.batch, 1, size.embed))
    graph.output("enc_mem", root.dtype, size.sequence)
    return graph.model()


def alone(size: Size, weights: Weights, form: Form) -> onnx.ModelProto:
    """The decoder's cross attention as a graph: query, key, value and mask to y."""
    graph = Graph().at("/multihead_attn")
    module = _Module(size=size, weights=weights, form=form, prefix=CROSS, graph=graph)
    mask = _declare(module, {"query": size.query, "key": size.sequence, "value": size.sequence})
    _cross(module, ("query", "key", "value"), mask, out="y")
    graph.output("y", module.dtype, size.query)
    return graph.model()


def _declare(module: _Module, shapes: dict[str, tuple[int, ...]]) -> str:
    """Declare the inputs; returns the mask's name, or "" where there is none."""
    for name, shape in shapes.items():
        module.graph.input(name, module.dtype, shape)
    if not module.form.masked:
        return ""
    return module.graph.input("mask", np.bool_, (module.size.batch, module.size.length))


def _encoder_layer(layer: _Module, mask: str) -> None:
    placed = layer.graph.Add("feat", "pos_embed")
    y = _self_attention(layer.at("self_attn"), (placed, placed, "feat"), layer.size.length, mask)
    x = layer.at("norm1").norm(layer.graph.Add("feat", y))
    layer.at("norm2").norm(_feed_forward(layer, x), out="enc_mem")


def _decoder_layer(layer: _Module, query: str, mask: str) -> str:
    """The target comes in as zeros, which torch writes as a constant wherever it is used."""
    graph, zeros = layer.graph, layer.filled(0, *layer.size.query)
    placed = graph.Add(zeros, query)
    y = _self_attention(layer.at("self_attn"), (placed, placed, zeros), 1)
    x = layer.at("norm1").norm(graph.Add(zeros, y))
    placed = graph.Add(x, query)
    y = _cross(layer.at("multihead_attn"), (placed, graph.Add("enc_mem", "pos_embed"), "enc_mem"), mask)
    x = layer.at("norm2").norm(graph.Add(x, y))
    return layer.at("norm3").norm(_feed_forward(layer, x))


def _feed_forward(layer: _Module, x: str) -> str:
    """x + linear2(relu(linear1(x)))."""
    y = layer.graph.Relu(layer.at("linear1").linear(x))
    return layer.graph.Add(x, layer.at("linear2").linear(y))


def _self_attention(module: _Module, inputs: tuple[Value, Value, Value], rows: int, mask: str = "") -> str:
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
    mask = module.graph.Cast(mask, to=element_type(np.bool_))
    size = module.size
    return module.graph.Where(mask, module.filled(forbidden), module.filled(0, size.batch, size.length))


def _heads(module: _Module, inputs: tuple[Value, Value, Value], rows: int, seen: int) -> tuple[str, str, str]:
    """q and v as (batch · heads, rows, head size), k before it is transposed."""
    size, projected = module.size, []
    weights = np.split(module.weights[f"{module.prefix}in_proj_weight"], 3)
    biases = np.split(module.weights[f"{module.prefix}in_proj_bias"], 3)
    for part, x, weight, bias in zip("qkv", inputs, weights, biases, strict=True):
        y = module.graph.MatMul(x, module.weight(f"in_proj_weight.{part}", weight.T))
        projected.append(module.graph.Add(module.weight(f"in_proj_bias.{part}", bias), y))
    pairs, (q, k, v) = size.batch * size.heads, projected
    q = module.graph.Transpose(module.reshape(q, rows, pairs, size.head_size), perm=[1, 0, 2])
    k = module.reshape(k, seen, pairs, size.head_size)
    v = module.graph.Transpose(module.reshape(v, seen, pairs, size.head_size), perm=[1, 0, 2])
    return q, k, v


def _attend(
    module: _Module, q: str, k: str, v: str, rows: int, bias: str,
    scale: float | None = None, scores: str = "", out: str = "",
) -> str:  # fmt: skip
    """softmax(scale · q kᵀ + bias) v and the output projection."""
    size, graph = module.size, module.graph
    if bias:
        bias = _bias_of_heads(module, bias)
    q = graph.Mul(q, module.filled(size.scale if scale is None else scale))
    s = graph.MatMul(q, graph.Transpose(k, perm=[1, 2, 0]), out=scores)
    if bias:  # baddbmm: 1 · q kᵀ + 1 · bias
        s = graph.Mul(s, module.filled(1.0))
        s = graph.Add(s, graph.Mul(bias, module.filled(1.0)))
    if module.form.float32_softmax:
        y = graph.Softmax(graph.Cast(s, to=element_type(np.float32)), axis=-1)
        y = graph.Cast(y, to=element_type(module.dtype))
    else:
        y = graph.Softmax(s, axis=-1)
    y = graph.Transpose(graph.MatMul(y, v), perm=[1, 0, 2])
    y = module.reshape(y, rows * size.batch, size.embed)
    names = [module.at("out_proj").weight(name) for name in ("weight", "bias")]
    y = graph.Gemm(y, *names, alpha=1.0, beta=1.0, transB=1)
    return module.reshape(y, rows, size.batch, size.embed, out=out)


def _bias_of_heads(module: _Module, bias: str) -> str:
    """bias.view(batch, 1, 1, length).expand(-1, heads, -1, -1).reshape(batch · heads, 1, length)."""
    size, graph = module.size, module.graph
    bias = module.reshape(bias, size.batch, 1, 1, size.length)
    ones = module.ones(4)
    kept = graph.Mul(ones, np.array(-1))
    wanted = [-1, size.heads, -1, -1]
    same = graph.Equal(wanted, kept)
    bias = graph.Expand(bias, graph.Where(same, ones, wanted))
    return module.reshape(bias, size.batch * size.heads, 1, size.length)
