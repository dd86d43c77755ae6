"""Measurements of an output against its reference, in float64, block by block."""

from __future__ import annotations

import math
from typing import Dict, Union

import numpy as np

BLOCK = 1 << 16
"""Elements looked at together: 512 KiB as float64, which a core's cache holds."""

Number = Union[int, float]


def measure_output(output: np.ndarray, reference: np.ndarray) -> Dict[str, Number]:
    """Compare an output y with its reference r of the same shape, elementwise in float64.

    Returns ``count``; ``nan`` and ``inf`` of the output; ``nan_unexpected``: NaN or infinite where
    r is finite; ``zeros``: outputs equal to 0; and over the elements where both are finite
    ``max_abs``, ``mean_abs`` and ``sum_abs`` of |y − r| and ``rel_l2`` = ‖y − r‖₂ / ‖r‖₂ (infinite
    where r is zero and y is not). ``ValueError`` where the shapes differ.
    """
    if output.shape != reference.shape:
        raise ValueError("shape %s, the reference has %s" % (output.shape, reference.shape))
    y, r = output.reshape(-1), reference.reshape(-1)
    counts = dict.fromkeys(("nan", "inf", "nan_unexpected", "zeros"), 0)
    compared, total, worst, error2, norm2 = 0, 0.0, 0.0, 0.0, 0.0
    for start in range(0, y.size, BLOCK):
        yb = y[start : start + BLOCK].astype(np.float64)
        rb = r[start : start + BLOCK].astype(np.float64)
        counts["zeros"] += yb.size - int(np.count_nonzero(yb))
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(yb - rb)
            subtotal = float(error.sum())
        if not math.isfinite(subtotal):
            _count_infinite(counts, yb, rb)
            both = np.isfinite(yb) & np.isfinite(rb)
            error, rb = error[both], rb[both]
            subtotal = float(error.sum())
        compared += error.size
        total += subtotal
        worst = max(worst, float(error.max()) if error.size else 0.0)
        error2 += float(np.dot(error, error))
        norm2 += float(np.dot(rb, rb))
    relative = math.sqrt(error2 / norm2) if norm2 else (math.inf if error2 else 0.0)
    result: Dict[str, Number] = {"count": int(y.size), **counts}
    result.update(max_abs=worst, mean_abs=total / max(1, compared), sum_abs=total, rel_l2=relative)
    return result


def _count_infinite(counts: Dict[str, int], y: np.ndarray, r: np.ndarray) -> None:
    """Count what is not finite in a block: a sum of differences that is not finite told of it."""
    counts["nan"] += int(np.isnan(y).sum())
    counts["inf"] += int(np.isinf(y).sum())
    counts["nan_unexpected"] += int((~np.isfinite(y) & np.isfinite(r)).sum())
