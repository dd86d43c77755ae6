"""Records: the raw facts of one run of one cell, read from and written to strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trtmatrix.core.model import Cause, CellId, Product

SCHEMA = 1
"""The number of the records' shape; a reader refuses what is newer."""

RAN = "ran"
BUILT = "built"
ENDS = (RAN, BUILT, *(cause.value for cause in Cause))
"""How a cell can end."""


class RecordError(ValueError):
    """A record's text cannot be used; the message says where and why."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One run of one cell. ``data`` is the JSON object as stored; the rest are views of it.

    ``outputs`` maps an output's name to its measurements, ``scalars`` holds what the case measured
    by itself. Numbers are finite or one of NaN and infinity, which JSON holds as strings.
    """

    cell: CellId
    run: str
    product: Product
    ended: str
    detail: str
    started: str
    digests: Mapping[str, str]
    observed: Mapping[str, Any]
    gpu: Mapping[str, Any]
    outputs: Mapping[str, Mapping[str, Any]]
    scalars: Mapping[str, float]
    data: Mapping[str, Any] = field(repr=False)
    file: str = ""


def parse_record(text: str, file: str = "") -> Record:
    """Read one record; :class:`RecordError` with line and column where it is damaged or newer."""
    try:
        data = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise RecordError(f"{file}:{error.lineno}: damaged at column {error.colno}: {error.msg}") from error
    except ValueError as error:
        raise RecordError(f"{file}:1: {error}") from error
    if not isinstance(data, dict):
        raise RecordError(f"{file}:1: a record is a JSON object, not {type(data).__name__}")
    return record_from(data, file)


def record_from(data: Mapping[str, Any], file: str = "") -> Record:
    """View a JSON object as a record; :class:`RecordError` names what is missing or wrong."""
    schema = data.get("schema")
    if schema != SCHEMA:
        newer = isinstance(schema, int) and schema > SCHEMA
        remedy = "it was written by a newer trtmatrix: update" if newer else f"expected {SCHEMA}"
        raise RecordError(f"{file}:1: schema is {schema!r}: {remedy}")
    try:
        measurements = data["measurements"]
        ended = data["ended"]
        if ended not in ENDS:
            raise RecordError(f"{file}:1: ended is {ended!r}, which is none of {', '.join(ENDS)}")
        return Record(
            cell=CellId(**data["cell"]), run=data["run"], product=Product(data["product"]),
            ended=ended, detail=data["detail"], started=data["started"], digests=data["digests"],
            observed=data["observed"], gpu=data["gpu"], data=data, file=file,
            outputs={name: _numbers(values) for name, values in measurements["outputs"].items()},
            scalars=_numbers(measurements["scalars"]),
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{file}:1: {type(error).__name__} at {error}: a part is missing") from error
    except ValueError as error:
        raise RecordError(f"{file}:1: {error}") from error


def write_number(value: float) -> float | str:
    """Return what strict JSON can hold: the number, or ``"NaN"``, ``"Infinity"``, ``"-Infinity"``."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def to_json(data: Mapping[str, Any]) -> str:
    """Return strict JSON with sorted keys and a newline; ``ValueError`` on a bare NaN."""
    return json.dumps(data, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def _refuse(token: str) -> float:
    raise ValueError(f"a bare {token} is not JSON")


_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the words for NaN and infinity back into numbers."""
    return {k: _WORDS.get(v, v) if isinstance(v, str) else v for k, v in values.items()}
