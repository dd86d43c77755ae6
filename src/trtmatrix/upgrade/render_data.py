"""An upgrade report as strict JSON: its types, field by field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from trtmatrix.common.jsontext import to_json
from trtmatrix.judge.record import write_number
from trtmatrix.upgrade.report import Upgrade

SCHEMA = 1
"""The number of the JSON's shape; docs/upgrade.schema.json describes it."""


def upgrade_json(upgrade: Upgrade) -> str:
    """Return the report as a JSON object with ``schema`` and the fields of :class:`Upgrade`.

    Enums are their values, what is not known is null, and a number that JSON cannot hold is one of the
    strings NaN, Infinity and -Infinity. ``exit_code`` is what the command ends with.
    """
    data = {"schema": SCHEMA, "exit_code": int(upgrade.exit_code), **plain(upgrade)}
    return to_json(data)


def plain(value: Any) -> Any:  # noqa: ANN401 - any field of the report, and JSON
    """Return a value of the report as JSON has it; ``TypeError`` on what the report's types do not have."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return _HALF.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, float):
        return write_number(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    raise TypeError(f"a report does not hold {type(value).__name__}")


_HALF = re.compile("[\ud800-\udfff]")
"""Halves of a character, which no file in UTF-8 can hold."""
