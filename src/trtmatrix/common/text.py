"""What many write text with: counts, durations, numbers in six characters, names; and JSON. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any


def counted(number: int, what: str) -> str:
    """Return such as ``1 cell`` and ``2 cells``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def duration(seconds: float) -> str:
    """Return seconds for reading: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def write_size(size: float) -> str:
    """Write bytes in decimal units: ``812 B``, ``4.1 kB``, ``25.0 MB``, ``9.4 GB``."""
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if size >= 10**power:
            return f"{size / 10**power:.1f} {unit}"
    return f"{size:.0f} B"


def join_some(names: Sequence[str], most: int = 4) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def name_source(url: str) -> str:
    """Return an address as people name it: ``NVIDIA/TensorRT#4333``, or its host with the last part."""
    if found := re.match(r"https://github\.com/([^/]+/[^/]+)/(?:issues|pull)/(\d+)", url):
        return f"{found.group(1)}#{found.group(2)}"
    parts = url.removeprefix("https://").rstrip("/").split("/")
    return "/".join(parts) if len(parts) < 3 else f"{parts[0]}/…/{parts[-1]}"


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


def fill_constants(source: str, codes: Mapping[str, str]) -> str:
    """Return Python source with what constants are given replaced, by name; comments behind them stay."""
    constant = r"(?m)^([A-Z][A-Z0-9_, ]*)((?:: [^=\n]+)?) = (.*?)((?:  # .*)?)$"
    return re.sub(constant, lambda c: f"{c[1]}{c[2]} = {codes.get(c[1], c[3])}{c[4]}", source)


def printable(text: str) -> str:
    """Return lines of text with blanks for all other control characters: a terminal would obey them."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def one_line(text: str, limit: int = 300) -> str:
    """Return a text as one printable line: no control characters, white space run together."""
    line = " ".join((text if text.isprintable() else printable(text)).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def to_json(data: Mapping[str, Any]) -> str:
    """Return strict JSON with sorted keys and a newline; ``ValueError`` on a bare NaN.

    Half a character, as of a file's name that is no UTF-8, is written as an escape.
    """
    text = json.dumps(data, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False, default=dict)
    return text.encode("utf-8", "backslashreplace").decode() + "\n"
