"""Records: the raw facts of one run of one cell, read from and written to strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trtmatrix.core.model import PART, Cause, CellId, Product

SCHEMA = 1
"""The number of the records' shape; a reader refuses what is newer."""

RAN = "ran"
BUILT = "built"
ENDS = (RAN, BUILT, *(cause.value for cause in Cause))
"""How a cell can end."""


class RecordError(ValueError):
    """A record's text cannot be used; the message says where and why."""


class NewerRecordError(RecordError):
    """A record is whole, but of a later shape than this program knows."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured of one engine.

    ``outputs`` maps an output's name to its measurements, ``scalars`` holds what the case measured by
    itself, ``remark`` is its word beside the verdict. ``signatures``: defect → output → ``c``, how much of
    the defect the error contains, and ``explained``, the share of the error (its square) that this is.
    """

    outputs: Mapping[str, Mapping[str, Any]]
    scalars: Mapping[str, float]
    remark: str = ""
    signatures: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Record:
    """One run of one cell. ``data`` is the JSON object as stored; the rest are views of it.

    ``builds`` holds what was measured of each engine, at least of one; ``outputs``, ``scalars`` and
    ``remark`` are the first's. ``noise``: the host's emulation of the case (:mod:`trtmatrix.core.noise`;
    empty in older records). Numbers are finite or one of NaN and infinity, which JSON holds as strings.
    ``worker``: which process of the probe ran it, and what that took (empty in older records).
    ``confirms``: the run whose verdict was doubted, ``remeasured_from``: the one whose outputs were measured
    again, each empty where there is none. ``processes``: fresh processes whose counts were added up.
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
    builds: tuple[Measured, ...]
    noise: Mapping[str, Any] = field(default_factory=dict, repr=False)
    worker: Mapping[str, Any] = field(default_factory=dict, repr=False)
    confirms: str = ""
    processes: int = 1
    remeasured_from: str = ""
    data: Mapping[str, Any] = field(repr=False)
    file: str = ""

    @property
    def engines(self) -> int:
        """How many engines were built and run."""
        return max(len(self.builds), self.processes)

    @property
    def first(self) -> Measured:
        """What was measured of the first engine; nothing where nothing ran."""
        return self.builds[0] if self.builds else Measured(outputs={}, scalars={})

    @property
    def outputs(self) -> Mapping[str, Mapping[str, Any]]:
        """The first engine's outputs."""
        return self.first.outputs

    @property
    def scalars(self) -> Mapping[str, float]:
        """What the case measured by itself, of the first engine."""
        return self.first.scalars

    @property
    def remark(self) -> str:
        """The first engine's word beside the verdict."""
        return self.first.remark


def parse_record(text: str, file: str = "") -> Record:
    """Read one record; :class:`RecordError` with line and column where it is damaged or newer."""
    try:
        data = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise RecordError(f"{file}:{error.lineno}: damaged at column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{file}:1: {error}") from error
    if not isinstance(data, dict):
        raise RecordError(f"{file}:1: a record is a JSON object, not {type(data).__name__}")
    return record_from(data, file)


def record_from(data: Mapping[str, Any], file: str = "") -> Record:
    """View a JSON object as a record; :class:`RecordError` names what is missing or wrong."""
    schema = data.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise NewerRecordError(
            f"{file}:1: schema is {schema}, this trtmatrix reads {SCHEMA}: update trtmatrix, "
            "or move the file away"
        )
    if type(schema) is not int or schema != SCHEMA:
        raise RecordError(f"{file}:1: schema is {schema!r}: expected {SCHEMA}")
    try:
        builds = tuple(_measured(build["measurements"]) for build in data.get("builds") or [data])
        texts = {name: _text(data[name], name) for name in ("run", "ended", "detail", "started")}
        maps = {name: _mapping(data[name], name) for name in ("digests", "observed", "gpu")}
        maps |= {name: _mapping(data.get(name, {}), name) for name in ("noise", "worker")}
        links = {name: _text(data.get(name, ""), name) for name in ("confirms", "remeasured_from")}
        _check_words(texts["ended"], texts["run"])
        return Record(
            cell=CellId.parse(str(CellId(**data["cell"]))), product=Product(data["product"]),
            data=data, file=file, builds=builds, processes=_count(data.get("processes", 1)),
            run=texts["run"], ended=texts["ended"], detail=texts["detail"], started=texts["started"],
            digests=maps["digests"], observed=maps["observed"], gpu=maps["gpu"], noise=maps["noise"],
            worker=maps["worker"], confirms=links["confirms"], remeasured_from=links["remeasured_from"],
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{file}:1: {type(error).__name__} at {error}: a part is missing") from error
    except ValueError as error:
        raise RecordError(f"{file}:1: {error}") from error


def _measured(measurements: Mapping[str, Any]) -> Measured:
    signatures = {
        defect: {output: _numbers(values, defect) for output, values in by_output.items()}
        for defect, by_output in measurements.get("signatures", {}).items()
    }
    return Measured(
        outputs={name: _numbers(values, name) for name, values in measurements["outputs"].items()},
        scalars=_numbers(measurements["scalars"], "scalars"),
        remark=_text(measurements.get("remark", ""), "remark"), signatures=signatures,
    )  # fmt: skip


def _check_words(ended: str, run: str) -> None:
    if ended not in ENDS:
        raise ValueError(f"ended is {ended!r}, which is none of {', '.join(ENDS)}")
    if not PART.fullmatch(run):
        raise ValueError(f"run is {run!r}, which is no run's id")


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, which is no text")  # noqa: TRY004 - of the record, not of ours
    return value


def _count(value: object) -> int:
    """Return how many there were; what is no number counts as one."""
    return value if isinstance(value, int) else 1


def _mapping(value: Any, name: str) -> Mapping[str, Any]:  # noqa: ANN401
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is {value!r}, which is no object")  # noqa: TRY004
    return value


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


def _numbers(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Turn the words for NaN and infinity back into numbers; ``ValueError`` on what is no number."""
    numbers = {k: _WORDS.get(v, v) if isinstance(v, str) else v for k, v in values.items()}
    for name, value in numbers.items():
        if not isinstance(value, (int, float)):
            raise ValueError(f"{where}: {name} is {value!r}, which is no number")  # noqa: TRY004
    return numbers
