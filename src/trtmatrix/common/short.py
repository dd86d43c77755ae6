"""Numbers in at most six characters."""

from __future__ import annotations

import math
import re


def short(value: float) -> str:
    """Write a number in at most six characters: ``0.31``, ``1373``, ``1.6e6``, ``1.2e-3``, ``NaN``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == int(value) and abs(value) < 100_000:
        return str(int(value))
    size = abs(value)
    if size >= 100_000 or size < 0.01:
        texts = [re.sub(r"e\+?(-?)0?", r"e\1", f"{value:.{digits}e}") for digits in (1, 0)]
        return next((text for text in texts if len(text) <= 6), texts[-1])
    return f"{value:.0f}" if size >= 100 else f"{value:.3g}"
