"""A tracker's transformer: one encoder and one decoder layer, and what they compute.

As ToMP's FilterPredictor has them: nn.MultiheadAttention(256, 8) with positions added to query and
key, feed forward, layer norms after each; the one decoder query looks at 972 features of 3 frames.
https://github.com/visionml/pytracking/blob/master/ltr/models/transformer/transformer.py
The graphs are in tracker_graph.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtmatrix.authoring.arithmetic import FLOAT64, Arithmetic
from trtmatrix.authoring.core_attention import scale_left
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
    """Weights and inputs of the whole, rounded to `dtype`: references are of the rounded values."""
    random = TorchRandom(seed)
    inputs = {name: x.astype(dtype) for name, x in draw_inputs(random, size).items()}
    weights = {name: w.astype(dtype) for name, w in draw_weights(random, size).items()}
    return weights, {**inputs, "mask": padding(size)} if masked else inputs


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


def draw_inputs(random: TorchRandom, size: Size) -> Inputs:
    """Features, the query and positions of the usual size, uniform."""
    return {
        "feat": _uniform(random, math.sqrt(3), *size.sequence),
        "query_embed": _uniform(random, math.sqrt(3), 1, size.embed),
        "pos_embed": _uniform(random, 1.0, *size.sequence),
    }


def padding(size: Size) -> Array:
    """The key padding mask (batch, length): in the second row the second frame of three is none."""
    mask = np.zeros((size.batch, size.length), dtype=np.bool_)
    mask[1, size.length // 3 : 2 * size.length // 3] = True
    return mask


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
