"""Records: the raw facts of one run of one cell, read from strict JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from sys import intern
from typing import Any

import orjson

from trtmatrix.common.jsontext import parse_json
from trtmatrix.judge.noise import Noise, check_noise, read_noise
from trtmatrix.suite.model import PART, Cause, CellId, Product

SCHEMA = 1
"""The number of the records' shape; a reader refuses what is newer."""

RAN = "ran"
BUILT = "built"
ENDS = (RAN, BUILT, *(cause.value for cause in Cause))
"""How a cell can end."""


MOST_ENGINES = 10_000
"""Engines or processes that a record can be of."""


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


class Content:
    """A record's JSON object, and what only the records that count are asked for."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        """Take an object that :func:`record_from` has checked."""
        self.data = data

    @cached_property
    def builds(self) -> tuple[Measured, ...]:
        """What was measured of each engine."""
        return tuple(_measured(build["measurements"]) for build in self.data.get("builds") or [self.data])

    @cached_property
    def emulation(self) -> Noise | None:
        """The case's noise; None where the record has none."""
        return read_noise(self.noise)

    @cached_property
    def noise(self) -> Mapping[str, Any]:
        """The case's noise as stored; nothing where it is no noise that can be read."""
        noise: Mapping[str, Any] = self.data.get("noise", {})
        try:
            check_noise(noise)
        except ValueError:  # who edited it has a record without a floor
            return {}
        return noise


class Pool:
    """What many records have in common, held once, and what reads a record's JSON object again.

    There may be 100,000 records: with a pool each holds what every record is asked for, and the rest is read
    again from its file.
    """

    def __init__(self, reread: Callable[[str], Mapping[str, Any]]) -> None:
        """Take what reads the object of a record's file."""
        self.content = lru_cache(maxsize=256)(lambda file: Content(reread(file)))
        self._parts: dict[bytes, Mapping[str, Any]] = {}
        self._cells: dict[tuple[object, ...], CellId] = {}

    def cell(self, data: Mapping[str, Any]) -> CellId:
        """Return a cell's id; ``ValueError`` or ``TypeError`` where it is none."""
        key = tuple(data.items())
        if key not in self._cells:
            self._cells[key] = _cell(data)
        return self._cells[key]

    def share(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the first of equal parts; equal texts in different parts are one too."""
        try:
            key = blake2b(orjson.dumps(part), digest_size=16).digest()
        except TypeError:  # half a character, or a number beyond 64 bits
            return part
        if key not in self._parts:
            self._parts[key] = {name: intern(v) if type(v) is str else v for name, v in part.items()}
        return self._parts[key]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Record:
    """One run of one cell: what every record is asked for, and the rest as views.

    Numbers are finite or one of NaN and infinity, which JSON holds as strings. ``confirms``: the run whose
    verdict was doubted, empty where there is none. ``processes``: fresh processes whose counts were added up.
    ``started`` and ``finished``: in UTC. ``source``: the record's content, or the pool that reads it.
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
    confirms: str = ""
    processes: int = 1
    finished: str = ""
    file: str = ""
    source: Content | Pool = field(repr=False)

    def __eq__(self, other: object) -> bool:
        """Whether two records are of the same file and JSON object."""
        if not isinstance(other, Record):
            return NotImplemented
        return (self.file, self.data) == (other.file, other.data)

    __hash__ = None  # type: ignore[assignment] # it has mappings

    @property
    def _content(self) -> Content:
        return self.source if isinstance(self.source, Content) else self.source.content(self.file)

    @property
    def data(self) -> Mapping[str, Any]:
        """The JSON object as stored."""
        return self._content.data

    @property
    def builds(self) -> tuple[Measured, ...]:
        """What was measured of each engine, at least of one."""
        return self._content.builds

    @property
    def noise(self) -> Mapping[str, Any]:
        """The host's emulation of the case (:mod:`trtmatrix.judge.noise`); older records have none."""
        return self._content.noise

    @property
    def emulation(self) -> Noise | None:
        """The noise as the judge reads it; None where the record has none."""
        return self._content.emulation

    @property
    def worker(self) -> Mapping[str, Any]:
        """Which process of the probe ran it, and what that took; older records do not tell."""
        worker: Mapping[str, Any] = self.data.get("worker", {})
        return worker

    @property
    def has_shared_engine(self) -> bool:
        """Whether one of its engines was built for another cell of its run."""
        builds = self.data.get("builds") or [self.data]
        engines = (engine for build in builds for engine in build.get("engine", {}).get("engines", ()))
        return any("shared_with" in engine for engine in engines)

    @property
    def engines(self) -> int:
        """How many engines were built and run."""
        return max(len(self.builds), self.processes)

    @property
    def outputs(self) -> Mapping[str, Mapping[str, Any]]:
        """The first engine's outputs."""
        return self.builds[0].outputs

    @property
    def scalars(self) -> Mapping[str, float]:
        """What the case measured by itself, of the first engine."""
        return self.builds[0].scalars

    @property
    def remark(self) -> str:
        """The first engine's word beside the verdict."""
        return self.builds[0].remark


def parse_record(text: str | bytes | memoryview, file: str = "", pool: Pool | None = None) -> Record:
    """Read one record; :class:`RecordError` with line and column where it is damaged or newer.

    With a ``pool`` it is small, and read again from the file where more is asked for.
    """
    return record_from(parse_object(text, file), file, pool)


def parse_object(text: str | bytes | memoryview, file: str = "") -> dict[str, Any]:
    """Read a JSON object, whatever it holds; :class:`RecordError` says where it is damaged.

    An integer beyond 64 bits is read as a float.
    """
    try:
        data = parse_json(text)
    except json.JSONDecodeError as error:
        where = f"{file}:{error.lineno}: damaged at column {error.colno}"
        raise RecordError(f"{where}: {error.msg}") from error
    except ValueError as error:
        raise RecordError(f"{file}:1: {error}") from error
    if not isinstance(data, dict):
        raise RecordError(f"{file}:1: a record is a JSON object, not {type(data).__name__}")
    return data


def record_from(data: Mapping[str, Any], file: str = "", pool: Pool | None = None) -> Record:
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
        return _view(data, file, pool)
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{file}:1: {type(error).__name__} at {error}: a part is missing") from error
    except ValueError as error:
        raise RecordError(f"{file}:1: {error}") from error


def _view(data: Mapping[str, Any], file: str, pool: Pool | None) -> Record:
    builds = data.get("builds") or [data]
    if type(builds) is not list or len(builds) > MOST_ENGINES:
        raise ValueError(f"builds is no list of at most {MOST_ENGINES:,}")
    for build in builds:
        _check_measured(build["measurements"])
        _mapping(build.get("engine") or {}, "engine")
    for name in ("noise", "worker", "kept"):
        _mapping(data.get(name, {}), name)
    for name, facts in data.get("kept", {}).items():
        if not re.fullmatch(
            "[0-9a-f]{64}", digest := _text(_mapping(facts, name).get("sha256", ""), "sha256")
        ):
            raise ValueError(f"kept: {name}: {digest[:80]!r} is no digest")
    ended, run, processes = data["ended"], data["run"], data.get("processes", 1)
    if type(processes) is not int or not 1 <= processes <= MOST_ENGINES:
        raise ValueError(f"processes is {processes!r}, which is no number from 1 to {MOST_ENGINES:,}")
    if _text(ended, "ended") not in ENDS:
        raise ValueError(f"ended is {ended!r}, which is none of {', '.join(ENDS)}")
    if not PART.fullmatch(_text(run, "run")):
        raise ValueError(f"run is {run!r}, which is no run's id")
    texts: dict[str, Any] = {name: _text(data[name], name) for name in ("detail", "started")}
    for name in ("confirms", "finished"):
        texts[name] = _text(data.get(name, ""), name)
    parts: dict[str, Any] = {name: _mapping(data[name], name) for name in ("digests", "observed", "gpu")}
    if pool:
        parts = {name: pool.share(part) for name, part in parts.items()}
    return Record(
        cell=pool.cell(data["cell"]) if pool else _cell(data["cell"]), run=run, ended=ended, file=file,
        product=Product(data["product"]), processes=processes,
        source=pool or Content(data), **texts, **parts,
    )  # fmt: skip


def _cell(data: Mapping[str, Any]) -> CellId:
    return CellId.parse(str(CellId(**data)))


def _check_measured(measurements: Mapping[str, Any]) -> None:
    """Raise where measurements are not what :func:`_measured` takes; it does no more than it must."""
    groups = [*measurements["outputs"].items(), ("scalars", measurements["scalars"])]
    for defect, by_output in measurements.get("signatures", {}).items():
        groups += [(defect, values) for values in by_output.values()]
    for where, values in groups:
        if not _PLAIN.issuperset(map(type, values.values())):
            _numbers(values, where)
    _text(measurements.get("remark", ""), "remark")


_PLAIN = frozenset({int, float})


def _measured(measurements: Mapping[str, Any]) -> Measured:
    return Measured(
        outputs={name: _numbers(values, name) for name, values in measurements["outputs"].items()},
        scalars=_numbers(measurements["scalars"], "scalars"), remark=measurements.get("remark", ""),
        signatures={
            defect: {output: _numbers(values, defect) for output, values in by_output.items()}
            for defect, by_output in measurements.get("signatures", {}).items()
        },
    )  # fmt: skip


def _text(value: Any, name: str) -> str:  # noqa: ANN401 - JSON
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, which is no text")  # noqa: TRY004 - of the record, not of ours
    return value


def _mapping(value: Any, name: str) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
    if type(value) is not dict and not isinstance(value, Mapping):
        raise ValueError(f"{name} is {value!r}, which is no object")
    return value


_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _numbers(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Turn the words for NaN and infinity back into numbers; ``ValueError`` on what is no number."""
    numbers = {k: _WORDS.get(v, v) if isinstance(v, str) else v for k, v in values.items()}
    for name, value in numbers.items():
        if not isinstance(value, (int, float)):
            raise ValueError(f"{where}: {name} is {value!r}, which is no number")  # noqa: TRY004
    return numbers


def write_number(value: float) -> float | str:
    """Return what strict JSON can hold: the number, or ``"NaN"``, ``"Infinity"``, ``"-Infinity"``."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
