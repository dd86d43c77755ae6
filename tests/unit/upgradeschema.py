"""The JSON Schema of an upgrade report, made from its types."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from trtmatrix.upgrade.report import SCHEMA, Upgrade

_NUMBER = {"oneOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}


def upgrade_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12): every key with its type, each object with its type's own words."""
    made: dict[str, Any] = {}
    whole = _object(Upgrade, made)
    whole["properties"] |= {
        "schema": {"const": SCHEMA}, "exit_code": {"enum": [0, 10, 11, 12]},
    }  # fmt: skip
    whole["required"] = ["schema", "exit_code", *whole["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "trtmatrix upgrade report",
        **whole, "$defs": dict(sorted(made.items())),
    }  # fmt: skip


def _object(kind: type, made: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {
        "type": "object",
        "description": _words(kind),
        "properties": {field.name: _type(hints[field.name], made) for field in fields(kind)},
        "required": [field.name for field in fields(kind)],
        "additionalProperties": False,
    }


def _type(hint: Any, made: dict[str, Any]) -> dict[str, Any]:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_type(part, made) for part in args]}
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": _type(args[0], made)}
        return {"type": "array", "prefixItems": [_type(part, made) for part in args], "items": False,
                "minItems": len(args)}  # fmt: skip
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _type(args[1], made)}
    return _named(hint, made)


def _named(kind: type, made: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a plain type; a class of the report's own is defined once and referred to."""
    if kind is float:
        return _NUMBER
    if plain := {type(None): "null", bool: "boolean", int: "integer", str: "string"}.get(kind):
        return {"type": plain}
    if kind.__name__ not in made:
        if is_dataclass(kind):
            made[kind.__name__] = {}
            made[kind.__name__] = _object(kind, made)
        elif issubclass(kind, Enum):
            made[kind.__name__] = {"description": _words(kind), "enum": [member.value for member in kind]}
        else:
            raise TypeError(f"a report does not hold {kind.__name__}")
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _words(kind: type) -> str:
    """Return a type's docstring as one line."""
    return re.sub(r"\s+", " ", (kind.__doc__ or "").replace("``", "`")).strip()
