"""Arithmetics of a matrix product: float64 for references, the others to learn noise floors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _same(values: Array) -> Array:
    return values


def round_tf32(values: Array) -> Array:
    """Round float32 to TF32's 10 mantissa bits, to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    odd = (bits >> np.uint32(13)) & np.uint32(1)
    kept: Array = (bits + np.uint32(0xFFF) + odd) & np.uint32(0xFFFFE000)
    return kept.view(np.float32)


def round_fp16(values: Array) -> Array:
    """Round to float16, kept as float32."""
    return values.astype(np.float16).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """How tensors are kept and multiplied.

    operand: rounding of what enters a matrix product; stored: rounding of every result;
    block: None to accumulate in `working`, else the sum is rounded to float16 after so many terms.
    """

    working: type[np.floating[Any]]
    operand: Callable[[Array], Array] = _same
    stored: Callable[[Array], Array] = _same
    block: int | None = None

    def matmul(self, a: Array, b: Array) -> Array:
        """a @ b for matrices."""
        a, b = (self.operand(m.astype(self.working, copy=False)) for m in (a, b))
        if self.block is None:
            return self.stored(a @ b)
        total = np.zeros((a.shape[0], b.shape[1]), dtype=self.working)
        for k in range(0, a.shape[1], self.block):
            total = round_fp16(total + a[:, k : k + self.block] @ b[k : k + self.block])
        return total

    def softmax_matmul(self, scores: Array, v: Array) -> Array:
        """softmax(scores) @ v; overwrites scores."""
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        sums = scores.sum(axis=-1, keepdims=True)
        if self.working is np.float64:  # dividing later is cheaper, and as exact in float64
            return np.asarray(self.matmul(scores, v) / sums)
        scores /= sums
        return self.matmul(self.stored(scores), v)


FLOAT64 = Arithmetic(working=np.float64)
FLOAT32 = Arithmetic(working=np.float32)
TF32 = Arithmetic(working=np.float32, operand=round_tf32)
FP16 = Arithmetic(working=np.float32, operand=round_fp16, stored=round_fp16)
FP16_BLOCKS = Arithmetic(working=np.float32, operand=round_fp16, stored=round_fp16, block=16)
