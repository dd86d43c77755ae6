"""What many write text with: counts, durations, numbers in six characters, names; and strict JSON. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson


def counted(number: int, what: str) -> str:
    """Return such as ``1 cell`` and ``2 cells``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def duration(seconds: float) -> str:
    """Return seconds for reading: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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


def printable(text: str) -> str:
    """Return lines of text with blanks for all other control characters: a terminal would obey them."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def one_line(text: str, limit: int = 300) -> str:
    """Return a text as one printable line: no control characters, white space run together."""
    line = " ".join((text if text.isprintable() else printable(text)).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


DEPTH = 100
"""Objects and lists inside of each other that a text may have; a record has nine."""


def to_json(data: Mapping[str, Any]) -> str:
    """Return strict JSON with sorted keys and a newline; ``ValueError`` on a bare NaN.

    Half a character, which no file can hold, is written as an escape.
    """
    text = json.dumps(data, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False, default=_plain)
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def _plain(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"an object of type {type(value).__name__} is not JSON serializable")


def parse_json(text: str | bytes | memoryview) -> Any:  # noqa: ANN401 - JSON
    """Read strict JSON: no bare NaN, no number beyond the floats (1e400), depth as far as orjson goes (1024).

    ``ValueError`` says what is wrong; of broken syntax it is ``json.JSONDecodeError`` with its place. An
    integer beyond 64 bits is read as a float.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:  # or half a character, which Python's own reader takes
        if "depth limit" in str(error):
            raise ValueError(TOO_DEEP) from error
        plain = text if isinstance(text, str) else str(text, "utf-8")
        try:
            return json.loads(plain, parse_constant=_refuse, parse_float=_finite)
        except RecursionError:
            raise ValueError(TOO_DEEP) from error


def check_depth(data: object) -> None:
    """Raise ``ValueError`` where more than :data:`DEPTH` objects and lists lie inside of each other.

    It costs twice what parsing does: what was checked on its way in, as a stored record, is not looked at.
    """
    level, depth = [data], 0
    while level := [each for each in level if type(each) is dict or type(each) is list]:
        depth += 1
        if depth > DEPTH:
            raise ValueError(TOO_DEEP)
        level = [inner for each in level for inner in (each.values() if type(each) is dict else each)]


TOO_DEEP = f"more than {DEPTH} objects or lists lie inside of each other"


def _refuse(token: str) -> float:
    raise ValueError(f"a bare {token} is not JSON")


def _finite(token: str) -> float:
    if math.isinf(value := float(token)):
        raise ValueError(f"{token[:20]} is beyond what a number can be")
    return value
