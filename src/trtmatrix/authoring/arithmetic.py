"""Arithmetics of a matrix product: float64 for references, the others to learn noise floors.

:data:`ENSEMBLE` names the ways in which a right engine may compute in each precision; the worst of them is
the noise floor. What the names stand for:

- ``late``: softmax's division after the product with v, as fused attention does it;
- ``blocks``: sums added up block by block, as a tile of a kernel does;
- ``exp2``: exp(x) as 2^(x·log₂e) with the product rounded to float32, as ``__expf`` does;
- ``truncated``: operands cut to TF32 instead of rounded. Possible on paper, seen on no GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _same(values: Array) -> Array:
    return values


def round_tf32(values: Array) -> Array:
    """Round float32 to TF32's 10 mantissa bits, to nearest even."""
    return _round_bits(values, 13)


def truncate_tf32(values: Array) -> Array:
    """Cut float32 to TF32's 10 mantissa bits."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    kept: Array = bits & np.uint32(0xFFFFE000)
    return kept.view(np.float32)


def round_bf16(values: Array) -> Array:
    """Round float32 to bfloat16's 7 mantissa bits, to nearest even, kept as float32."""
    return _round_bits(values, 16)


def _round_bits(values: Array, dropped: int) -> Array:
    """Round away the lowest bits of float32, to nearest even; finite values and infinities only."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    odd = (bits >> np.uint32(dropped)) & np.uint32(1)
    half = np.uint32((1 << (dropped - 1)) - 1)
    kept: Array = (bits + half + odd) & ~np.uint32((1 << dropped) - 1)
    return kept.view(np.float32)


def round_fp16(values: Array) -> Array:
    """Round to float16, kept as float32."""
    with np.errstate(over="ignore"):  # beyond 65504 it is infinity, as on a GPU
        return values.astype(np.float16).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """How tensors are kept and multiplied.

    operand: rounding of what enters a matrix product; stored: rounding of every result; terms: None to
    sum up as the host's library does, else so many terms at a time, and after each `accumulated` rounds
    the sum; late: softmax is divided after its product with v; exp2: how the exponential is taken.
    """

    working: type[np.floating[Any]]
    operand: Callable[[Array], Array] = _same
    stored: Callable[[Array], Array] = _same
    terms: int | None = None
    accumulated: Callable[[Array], Array] = _same
    late: bool = False
    exp2: bool = False

    def matmul(self, a: Array, b: Array) -> Array:
        """a @ b for matrices."""
        return self.stored(self._product(a, b))

    def _product(self, a: Array, b: Array) -> Array:
        a, b = (self.operand(m.astype(self.working, copy=False)) for m in (a, b))
        if self.terms is None:
            return np.asarray(a @ b)
        total = np.zeros((a.shape[0], b.shape[1]), dtype=self.working)
        for k in range(0, a.shape[1], self.terms):
            total = self.accumulated(total + a[:, k : k + self.terms] @ b[k : k + self.terms])
        return total

    def softmax_matmul(self, scores: Array, v: Array) -> Array:
        """softmax(scores) @ v; overwrites scores."""
        scores -= scores.max(axis=-1, keepdims=True)
        if self.exp2:
            scores *= self.working(np.log2(np.e))
            np.exp2(scores, out=scores)
        else:
            np.exp(scores, out=scores)
        sums = scores.sum(axis=-1, keepdims=True)
        if self.late or self.working is np.float64:  # later is cheaper, and as exact in float64
            return self.stored(self._product(self.stored(scores), v) / sums)
        scores /= sums
        return self.matmul(self.stored(scores), v)


FLOAT64 = Arithmetic(working=np.float64)
FLOAT32 = Arithmetic(working=np.float32)
TF32 = Arithmetic(working=np.float32, operand=round_tf32)
FP16 = Arithmetic(working=np.float32, operand=round_fp16, stored=round_fp16)
FP16_BLOCKS = replace(FP16, terms=16, accumulated=round_fp16)
BF16 = Arithmetic(working=np.float32, operand=round_bf16, stored=round_bf16)

ENSEMBLE: Mapping[str, Mapping[str, Arithmetic]] = {
    "fp32": {
        "fp32": FLOAT32,
        "fp32-late": replace(FLOAT32, late=True),
        "fp32-blocks": replace(FLOAT32, terms=16),
        "fp32-exp2": replace(FLOAT32, exp2=True, late=True),
    },
    "tf32": {
        "tf32": TF32,
        "tf32-late": replace(TF32, late=True),
        "tf32-blocks": replace(TF32, terms=16),
        "tf32-exp2": replace(TF32, exp2=True, late=True),
    },
    "fp16": {
        "fp16": FP16,
        "fp16-late": replace(FP16, late=True),
        "fp16-blocks": FP16_BLOCKS,
        "fp16-blocks-late": replace(FP16_BLOCKS, late=True),
    },
    "bf16": {"bf16": BF16, "bf16-late": replace(BF16, late=True)},
}
"""Precision → name → arithmetic: how right engines may compute."""

POSSIBLE: Mapping[str, Mapping[str, Arithmetic]] = {
    "tf32": {"tf32-truncated": Arithmetic(working=np.float32, operand=truncate_tf32)},
}
"""The same, of arithmetics that no GPU has shown yet: they raise no floor, they only explain an error."""
