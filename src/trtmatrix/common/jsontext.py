"""Strict JSON, in one form for every file that is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def to_json(data: Mapping[str, Any]) -> str:
    """Return strict JSON with sorted keys and a newline; ``ValueError`` on a bare NaN."""
    return (
        json.dumps(data, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False, default=_plain) + "\n"
    )


def _plain(value: object) -> dict[Any, Any]:
    """Return a mapping that is no dict as one."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"an object of type {type(value).__name__} is not JSON serializable")
