"""Records: the raw facts of one run of one cell, read from strict JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from sys import intern
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from trtmatrix.common.errors import shorten
from trtmatrix.judge.noise import Noise, read_noise
from trtmatrix.suite.model import Cause, CellId, Part, Product

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


Value = float | int
Values = Mapping[str, Mapping[str, Value]]
"""Measurements by output; JSON holds NaN and infinity as strings."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured of one engine.

    ``outputs`` maps an output's name to its measurements, ``scalars`` holds what the case measured by
    itself, ``remark`` is its word beside the verdict. ``signatures``: defect → output → ``c``, how much of
    the defect the error contains, and ``explained``, the share of the error (its square) that this is.
    """

    outputs: Values
    scalars: Mapping[str, Value]
    remark: str = ""
    signatures: Mapping[str, Values] = field(default_factory=dict)


_MEASURED = TypeAdapter(Measured)


class Content:
    """A record's JSON object, and what only the records that count are asked for."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data

    @cached_property
    def builds(self) -> tuple[Measured, ...]:
        """What was measured of each engine."""
        builds = self.data.get("builds") or [self.data]
        return tuple(_MEASURED.validate_python(build["measurements"]) for build in builds)

    @cached_property
    def emulation(self) -> Noise | None:
        """The case's noise; None where the record has none."""
        return read_noise(self.data.get("noise", {}))


class Pool:
    """What many records have in common, held once, and what reads a record's JSON object again.

    There may be 100,000 records: with a pool each holds what every record is asked for, and the rest is read
    again from its file.
    """

    def __init__(self, reread: Callable[[str], Mapping[str, Any]]) -> None:
        self.content = lru_cache(maxsize=256)(lambda file: Content(reread(file)))
        self._parts: dict[bytes, Mapping[str, Any]] = {}
        self.cells: dict[CellId, CellId] = {}  # the first of equal ids

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

    ``confirms``: the run whose verdict was doubted, empty where there is none. ``processes``: fresh processes
    whose counts were added up. ``started`` and ``finished``: in UTC. ``source``: the record's content, or the
    pool that reads it.
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

    @property
    def content(self) -> Content:
        """The rest."""
        return self.source if isinstance(self.source, Content) else self.source.content(self.file)

    @property
    def data(self) -> Mapping[str, Any]:
        """The JSON object as stored."""
        return self.content.data

    @property
    def builds(self) -> tuple[Measured, ...]:
        """What was measured of each engine, at least of one."""
        return self.content.builds

    @property
    def noise(self) -> Mapping[str, Any]:
        """The host's emulation of the case (:mod:`trtmatrix.judge.noise`); older records have none."""
        noise: Mapping[str, Any] = self.data.get("noise", {})
        return noise

    @property
    def is_disturbed(self) -> bool:
        """Whether other cells ran on the same GPU meanwhile: what took time says little then."""
        return bool(self.data.get("workers", 1) != 1)

    @property
    def engines(self) -> int:
        """How many engines were built and run."""
        return max(len(self.builds), self.processes)


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
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        where = f"{file}:{error.lineno}: damaged at column {error.colno}"
        raise RecordError(f"{where}: {error.msg}") from error
    if not isinstance(data, dict):
        raise RecordError(f"{file}:1: a record is a JSON object, not {type(data).__name__}")
    return data


def record_from(data: Mapping[str, Any], file: str = "", pool: Pool | None = None) -> Record:
    """View a JSON object as a record; :class:`RecordError` names what is missing or wrong."""
    schema = data.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        is_newer = type(schema) is int and schema > SCHEMA
        remedy = ": update trtmatrix, or move the file away" if is_newer else ""
        words = f"{file}:1: schema is {schema!r}, this trtmatrix reads {SCHEMA}{remedy}"
        raise NewerRecordError(words) if is_newer else RecordError(words)
    try:
        shape = _SHAPE.validate_python(data)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        where, words = ".".join(map(str, detail["loc"])), detail["msg"].removeprefix("Value error, ")
        words = f"{where}: {words[:1].lower()}{words[1:]} (found {shorten(detail['input'])})"
        raise RecordError(f"{file}:1: {words}") from error
    if not shape.get("builds") and "measurements" not in shape:
        raise RecordError(f"{file}:1: measurements is missing")
    parts: dict[str, Any] = {name: data[name] for name in ("digests", "observed", "gpu")}
    cell = shape["cell"]
    if pool:
        cell = pool.cells.setdefault(cell, cell)
        parts = {name: pool.share(part) for name, part in parts.items()}
    texts: Any = {name: data.get(name, "") for name in ("detail", "started", "confirms", "finished")}
    return Record(
        cell=cell, run=data["run"], ended=data["ended"], file=file, product=Product(data["product"]),
        processes=data.get("processes", 1), source=pool or Content(data), **texts, **parts,
    )  # fmt: skip


_Open = dict[str, Any]


class _Engine(TypedDict):
    engines: NotRequired[list[_Open]]


class _Build(TypedDict):
    measurements: Measured
    engine: NotRequired[_Engine | None]


class _Gpu(TypedDict):
    compute: NotRequired[Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)*$")] | None]


class _Kept(TypedDict):
    sha256: NotRequired[Annotated[str, Field(pattern="^(?:[0-9a-f]{64})$")]]


class _Shape(TypedDict):
    """A record's JSON object, as far as it is read; what else there may be is left alone."""

    cell: CellId
    run: Part
    product: Literal[tuple(product.value for product in Product)]  # type: ignore[valid-type]
    ended: Literal[ENDS]  # type: ignore[valid-type]
    detail: str
    started: str
    finished: NotRequired[str]
    confirms: NotRequired[str]
    processes: NotRequired[Annotated[int, Field(strict=True, ge=1, le=MOST_ENGINES)]]
    digests: _Open
    observed: _Open
    gpu: _Gpu
    noise: NotRequired[Noise]
    worker: NotRequired[_Open]
    kept: NotRequired[dict[str, _Kept]]
    measurements: NotRequired[Measured]
    builds: NotRequired[Annotated[list[_Build], Field(max_length=MOST_ENGINES)]]
    engine: NotRequired[_Engine | None]


_SHAPE = TypeAdapter(_Shape)


def write_number(value: float) -> float | str:
    """Return what strict JSON can hold: the number, or ``"NaN"``, ``"Infinity"``, ``"-Infinity"``."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
