"""Measurements of an output against its reference, in float64, block by block; integers are exact."""

from __future__ import annotations

import math
from typing import Dict, Mapping, Optional, Tuple, Union

import numpy as np

BLOCK = 1 << 13
"""Elements looked at together: a core's cache holds them, and BLAS sums them up (to 10,000) without threads,
which on a busy machine would wait for each other at every block."""

RTOL, ATOL = 1e-5, 1e-8
"""NumPy's own tolerances (numpy.isclose): an element is close where |y − r| ≤ ATOL + RTOL·|r|."""

LOW_BITS = np.uint32((1 << 13) - 1)
"""What float32's 23 mantissa bits have more than TF32's and float16's 10."""

Number = Union[int, float]


def measure_output(output: np.ndarray, reference: np.ndarray) -> Dict[str, Number]:
    """Compare an output y with its reference r of the same shape, elementwise in float64.

    The difference of two integers is taken exactly. Returns ``count``; ``nan`` and ``inf`` of the output;
    ``nan_unexpected``: NaN or infinite where r is finite, or anything but r where that is infinite;
    ``inf_missed``: how many of these are of the latter kind (absent where none is); ``zeros``: outputs equal
    to 0, and ``share_zeros`` of all; ``share_not_close``: the share of elements that are not close (see
    :data:`RTOL`; equal infinities are, NaN never is); ``share_10_bits``: the share of outputs whose mantissa
    needs 10 bits at most (float32: the lowest 13 are 0; float16: all; absent for other dtypes).

    Over the elements where both are finite: ``max_abs``, ``mean_abs`` and ``sum_abs`` of |y − r|;
    ``rel_l2`` = ‖y − r‖₂ / ‖r‖₂ (infinite where r is zero and y is not); ``cosine`` = ⟨y, r⟩ / (‖y‖₂ ‖r‖₂)
    (1 where both are zero, 0 where one is); ``psnr`` = 20·log₁₀(max |r|) − 10·log₁₀(mean (y − r)²) in dB
    (infinite where they are equal). ``worst_at``: where |y − r| is largest (row-major, the first of
    equals), with ``worst_y`` and ``worst_r`` there, as integers where both are; the first unexpected NaN or
    infinity before all others. None of the three where nothing can be compared. ``ValueError`` where the
    shapes differ.
    """
    return measure_with_signatures(output, reference, {})[0]


def measure_alone(output: np.ndarray) -> Dict[str, Number]:
    """Return ``count``, ``nan``, ``inf``, ``zeros``, ``share_zeros`` of an output without a reference."""
    y = output.reshape(-1)
    counts = dict.fromkeys(("nan", "inf", "zeros"), 0)
    for start in range(0, y.size, BLOCK):
        block = y[start : start + BLOCK].astype(np.float64)
        counts["zeros"] += block.size - int(np.count_nonzero(block))
        counts["nan"] += int(np.isnan(block).sum())
        counts["inf"] += int(np.isinf(block).sum())
    return {"count": int(y.size), **counts, "share_zeros": counts["zeros"] / max(1, int(y.size))}


def measure_signature(output: np.ndarray, reference: np.ndarray, d: np.ndarray) -> Dict[str, float]:
    """Say how much of a defect d an output contains; see :class:`Signature`."""
    return measure_with_signatures(output, reference, {"d": d})[1].get("d", {})


def measure_with_signatures(
    output: np.ndarray, reference: np.ndarray, defects: Mapping[str, np.ndarray]
) -> Tuple[Dict[str, Number], Dict[str, Dict[str, float]]]:
    """Measure an output and its defects' signatures in one pass.

    Returns what :func:`measure_output` tells, and a signature for each defect (by name, an array of the
    output's shape) that is anything but zero where it can be compared.
    """
    for what, other in [("the reference", reference), *(("the defect " + n, d) for n, d in defects.items())]:
        if output.shape != other.shape:
            raise ValueError("shape %s, %s has %s" % (output.shape, what, other.shape))
    y, r = output.reshape(-1), reference.reshape(-1)
    flat = {name: d.reshape(-1) for name, d in defects.items()}
    sums, signatures = Sums(), {name: Signature() for name in defects}
    for start in range(0, y.size, BLOCK):
        block = slice(start, start + BLOCK)
        yb, rb = y[block].astype(np.float64), r[block].astype(np.float64)
        sums.add(start, yb, rb, difference_of_integers(y[block], r[block]))
        if flat:
            with np.errstate(invalid="ignore", over="ignore"):
                error = np.subtract(yb, rb, out=yb)
            for name, d in flat.items():
                signatures[name].add(error, d[block].astype(np.float64))
    measured = sums.result(int(y.size))
    if "worst_at" in measured and _common_integers(y, r) is not None:
        at = int(measured["worst_at"])
        measured.update(worst_y=int(y[at]), worst_r=int(r[at]))
    if y.dtype == np.float16:
        measured["share_10_bits"] = 1.0
    elif y.dtype == np.float32:
        measured["share_10_bits"] = _share_10_bits(y)
    return measured, {name: found.result() for name, found in signatures.items() if found.defect2 > 0}


def difference_of_integers(y: np.ndarray, r: np.ndarray) -> Optional[np.ndarray]:
    """Return |y − r|, rounded once, of integers that float64 may not hold; None for all other dtypes."""
    dtype = _common_integers(y, r)
    if dtype is None:
        return None
    y, r = y.astype(dtype), r.astype(dtype)
    difference: np.ndarray = np.maximum(y, r) - np.minimum(y, r)
    return difference.astype(np.uint64).astype(np.float64)  # unsigned, as 2**63 and more wraps round


def _common_integers(y: np.ndarray, r: np.ndarray) -> Optional[np.dtype]:
    both = np.result_type(y.dtype, r.dtype)
    return both if both.kind in "iu" and both.itemsize == 8 else None


def _share_10_bits(y: np.ndarray) -> float:
    """Return ``share_10_bits`` of a flat float32 output."""
    longer = 0
    for start in range(0, y.size, BLOCK):
        longer += int(np.count_nonzero(y[start : start + BLOCK].view(np.uint32) & LOW_BITS))
    return (y.size - longer) / max(1, y.size)


class Sums:
    """What is summed up over the blocks of an output and its reference."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("nan", "inf", "nan_unexpected", "zeros"), 0)
        self.compared = self.not_close = self.missed = 0
        self.total = self.peak = self.error2 = self.norm2 = self.output2 = self.product = 0.0
        self.max_abs, self.worst = 0.0, -1.0
        self.where: Dict[str, Number] = {}

    def add(self, start: int, y: np.ndarray, r: np.ndarray, error: Optional[np.ndarray] = None) -> None:
        """Take one flat block in, in float64; ``start`` is the place of its first element.

        ``error``: |y − r|, where that is known better than y and r.
        """
        self.counts["zeros"] += y.size - int(np.count_nonzero(y))
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(y - r) if error is None else error
            subtotal = float(error.sum())
        places = None
        if not math.isfinite(subtotal):
            self._count_infinite(start, y, r)
            places = np.flatnonzero(np.isfinite(y) & np.isfinite(r))
            error, y, r = error[places], y[places], r[places]
            subtotal = float(error.sum())
        if not error.size:
            return
        at = int(np.argmax(error))
        worst = float(error[at])
        if worst > self.worst:
            self.worst = worst
            self._note(start + (at if places is None else int(places[at])), y[at], r[at])
        self.max_abs = max(self.max_abs, worst)
        size = np.abs(r)
        self.peak = max(self.peak, float(size.max()))
        self.not_close += int(np.count_nonzero(error > ATOL + RTOL * size))
        self.compared += error.size
        self.total += subtotal
        self.error2 += float(np.dot(error, error))
        self.norm2 += float(np.dot(r, r))
        self.output2 += float(np.dot(y, y))
        self.product += float(np.dot(y, r))

    def _count_infinite(self, start: int, y: np.ndarray, r: np.ndarray) -> None:
        """Count what is not finite in a block: a sum of differences that is not finite told of it."""
        missed = np.isinf(r) & (y != r)
        unexpected = (~np.isfinite(y) & np.isfinite(r)) | missed
        either = ~np.isfinite(y) | ~np.isfinite(r)
        self.counts["nan"] += int(np.isnan(y).sum())
        self.counts["inf"] += int(np.isinf(y).sum())
        self.counts["nan_unexpected"] += int(unexpected.sum())
        self.missed += int(missed.sum())
        self.not_close += int((either & (y != r)).sum())
        if unexpected.any() and self.worst < math.inf:
            at = int(np.argmax(unexpected))
            self.worst = math.inf
            self._note(start + at, y[at], r[at])

    def _note(self, at: int, y: float, r: float) -> None:
        self.where = {"worst_at": at, "worst_y": float(y), "worst_r": float(r)}

    def result(self, count: int) -> Dict[str, Number]:
        """Return the measurements of ``count`` elements."""
        found: Dict[str, Number] = {"count": count, **self.counts, **self.where}
        if self.missed:
            found["inf_missed"] = self.missed
        found["share_zeros"] = self.counts["zeros"] / max(1, count)
        found["share_not_close"] = self.not_close / max(1, count)
        found.update(sum_abs=self.total, mean_abs=self.total / max(1, self.compared))
        found.update(max_abs=self.max_abs, cosine=self._cosine(), psnr=self._psnr())
        none = math.inf if self.error2 else 0.0
        found["rel_l2"] = math.sqrt(self.error2 / self.norm2) if self.norm2 else none
        return found

    def _cosine(self) -> float:
        if not self.norm2 or not self.output2:
            return float(self.norm2 == self.output2)
        return self.product / math.sqrt(self.norm2) / math.sqrt(self.output2)

    def _psnr(self) -> float:
        if not self.error2:
            return math.inf
        if not self.peak:
            return -math.inf
        return 20 * math.log10(self.peak) - 10 * math.log10(self.error2 / self.compared)


class Signature:
    """How much of a known defect d an error e = y − r contains, summed up over the blocks.

    d is what the defect adds to a right result. Over the elements where all are finite:
    ``c`` = ⟨e, d⟩ / ⟨d, d⟩, 1 where the defect is there and 0 where it is not;
    ``explained`` = ⟨e, d⟩² / (⟨e, e⟩ ⟨d, d⟩), the share of the error (its square) that c·d is; 0 where e is.
    It tells nothing where ``defect2`` is 0.
    """

    def __init__(self) -> None:
        self.error2 = self.defect2 = self.product = 0.0

    def add(self, error: np.ndarray, d: np.ndarray) -> None:
        """Take one block in: two flat float64 arrays."""
        error2, defect2 = float(np.dot(error, error)), float(np.dot(d, d))
        if not math.isfinite(error2 + defect2):
            finite = np.flatnonzero(np.isfinite(error) & np.isfinite(d))
            error, d = error[finite], d[finite]
            error2, defect2 = float(np.dot(error, error)), float(np.dot(d, d))
        self.error2 += error2
        self.defect2 += defect2
        self.product += float(np.dot(error, d))

    def result(self) -> Dict[str, float]:
        """Return ``c`` and ``explained``."""
        c = self.product / self.defect2
        explained = c * self.product / self.error2 if self.error2 else 0.0
        return {"c": c, "explained": min(explained, 1.0)}
