"""Writes strict JSON as the standard library's json does with an indent, several times faster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from json.encoder import encode_basestring
from operator import itemgetter
from typing import Any


def to_json(data: Mapping[str, Any]) -> str:
    """Return strict JSON with sorted keys and a newline; ``ValueError`` on a bare NaN.

    It is what ``json.dumps(data, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)`` gives,
    which is slow, as the library's fast encoder knows no indent.
    """
    return _write(data, "\n") + "\n"


def _write(value: Any, margin: str) -> str:  # noqa: ANN401 - JSON
    """Return a value as text; ``margin`` starts the line that closes it."""
    if isinstance(value, str):
        return encode_basestring(value)
    if value is None or value is True or value is False:
        return _WORDS[value]
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        return _write_object(value, margin)
    if isinstance(value, (list, tuple)):
        inner = margin + " "
        items = ("," + inner).join([_write(item, inner) for item in value])
        return f"[{inner}{items}{margin}]" if value else "[]"
    raise TypeError(f"an object of type {type(value).__name__} is not JSON serializable")


def _write_object(data: Mapping[Any, Any], margin: str) -> str:
    if not data:
        return "{}"
    inner = margin + " "
    items = [
        encode_basestring(name) + ": "
        + (encode_basestring(value) if type(value) is str else _write(value, inner))
        for name, value in sorted(data.items(), key=_NAME)
    ]  # fmt: skip
    return f"{{{inner}{(',' + inner).join(items)}{margin}}}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"out of range float values are not JSON compliant: {value!r}")
    return float.__repr__(value)


_NAME = itemgetter(0)
_WORDS = {None: "null", True: "true", False: "false"}
