"""Strict JSON, in one form for every file that is kept, and one way to read it. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import orjson

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
