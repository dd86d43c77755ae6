"""Numbers of things, numbers in six characters, times, and texts on one line. Pure."""

from __future__ import annotations

import math
import re


def counted(number: int, what: str) -> str:
    """Return such as ``1 cell`` and ``2 cells``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def duration(seconds: float) -> str:
    """Return seconds for reading: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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


def one_line(text: str, limit: int = 300) -> str:
    """Return a text as one printable line: no control characters, white space run together."""
    printable = text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
    line = " ".join(printable.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
