"""Records: the raw facts of one run of one cell, read from and written to strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import Any

import orjson

from trtmatrix.common.jsontext import to_json
from trtmatrix.judge.noise import Noise, read_noise
from trtmatrix.suite.model import PART, Cause, CellId, Product

__all__ = [
    "BUILT", "ENDS", "RAN", "SCHEMA", "Measured", "NewerRecordError", "Pool", "Record", "RecordError", "Rest",
    "parse_record", "record_from", "to_json", "write_number",
]  # fmt: skip

SCHEMA = 1
"""The number of the records' shape; a reader refuses what is newer."""

RAN = "ran"
BUILT = "built"
ENDS = (RAN, BUILT, *(cause.value for cause in Cause))
"""How a cell can end."""
_ENDS = frozenset(ENDS)


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Rest:
    """What of a record is looked at only where the record counts for what is shown."""

    builds: tuple[Measured, ...]
    noise: Mapping[str, Any]
    worker: Mapping[str, Any]


Packed = tuple[bytes, bytes]
"""The worker and each engine's measurements as JSON, and the noise as JSON."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Record:
    """One run of one cell: what every record is asked for, and the rest as views.

    ``builds`` holds what was measured of each engine, at least of one; ``outputs``, ``scalars`` and
    ``remark`` are the first's. ``noise``: the host's emulation of the case (:mod:`trtmatrix.judge.noise`;
    empty in older records). Numbers are finite or one of NaN and infinity, which JSON holds as strings.
    ``worker``: which process of the probe ran it, and what that took (empty in older records).
    ``confirms``: the run whose verdict was doubted, ``remeasured_from``: the one whose outputs were measured
    again, each empty where there is none. ``processes``: fresh processes whose counts were added up.
    ``started`` and ``finished``: in UTC.

    There may be 100,000 of them: ``rest`` may be packed until it is asked for, and ``whole`` may be what
    reads the JSON object again.
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
    remeasured_from: str = ""
    finished: str = ""
    file: str = ""
    rest: Rest | Packed = field(repr=False)
    whole: Mapping[str, Any] | Callable[[str], Mapping[str, Any]] = field(repr=False)

    def __eq__(self, other: object) -> bool:
        """Whether two records are of the same file and JSON object, packed or not."""
        if not isinstance(other, Record):
            return NotImplemented
        return (self.file, self.data) == (other.file, other.data)

    __hash__ = None  # type: ignore[assignment] # it has mappings

    @property
    def data(self) -> Mapping[str, Any]:
        """The JSON object as stored; read from the record's file where it is not held."""
        return self.whole(self.file) if callable(self.whole) else self.whole

    @property
    def _views(self) -> Rest:
        return self.rest if isinstance(self.rest, Rest) else _unpack(*self.rest)

    @property
    def builds(self) -> tuple[Measured, ...]:
        """What was measured of each engine."""
        return self._views.builds

    @property
    def noise(self) -> Mapping[str, Any]:
        """The host's emulation of the case."""
        return self._views.noise

    @property
    def emulation(self) -> Noise | None:
        """The noise as the judge reads it; None where the record has none."""
        return read_noise(self.noise) if isinstance(self.rest, Rest) else _read_noise(self.rest[1])

    @property
    def worker(self) -> Mapping[str, Any]:
        """Which process of the probe ran it, and what that took."""
        return self._views.worker

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


class Pool:
    """What many records have in common, held once, and how a record's JSON object is read again.

    Records that are read with a pool are small: of 5 kB of JSON some 1.5 kB are held.
    """

    def __init__(self, reread: Callable[[str], Mapping[str, Any]]) -> None:
        """Take what reads the object of a record's file."""
        self.reread = reread
        self._parts: dict[bytes, Mapping[str, Any]] = {}
        self._noises: dict[bytes, bytes] = {}
        self._cells: dict[tuple[object, ...], CellId] = {}

    def cell(self, data: Mapping[str, Any]) -> CellId:
        """Return a cell's id; ``ValueError`` or ``TypeError`` where it is none."""
        key = tuple(data.items())
        if key not in self._cells:
            self._cells[key] = _cell(data)
        return self._cells[key]

    def share(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the first of equal parts; equal texts in different parts are one too."""
        key = _to_json(part)
        shared: Mapping[str, Any] | None = self._parts.get(key)
        if shared is None:
            shared = {name: intern(v) if type(v) is str else v for name, v in part.items()}
            self._parts[_fit(key)] = shared
        return shared

    def pack(self, data: Mapping[str, Any], builds: Sequence[Mapping[str, Any]]) -> Packed:
        """Return the rest of a record as JSON."""
        noise = _to_json(data.get("noise", {}))
        if noise not in self._noises:
            self._noises[_fit(noise)] = _fit(noise)
        measured = _to_json([data.get("worker", {}), *(build["measurements"] for build in builds)])
        return _fit(measured), self._noises[noise]


def parse_record(text: str | bytes | memoryview, file: str = "", pool: Pool | None = None) -> Record:
    """Read one record; :class:`RecordError` with line and column where it is damaged or newer.

    With a ``pool`` it is small, and its data is read again from the file when it is asked for. An integer
    beyond 64 bits is read as a float.
    """
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError:  # or half a character, or a number that it has no room for
        data = _parse_slowly(text, file)
    if not isinstance(data, dict):
        raise RecordError(f"{file}:1: a record is a JSON object, not {type(data).__name__}")
    return record_from(data, file, pool)


def _parse_slowly(text: str | bytes | memoryview, file: str) -> Any:  # noqa: ANN401 - JSON
    """Read JSON with the standard library, which knows all of it and says where it is damaged."""
    try:
        return json.loads(text if isinstance(text, str) else str(text, "utf-8"), parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise RecordError(f"{file}:{error.lineno}: damaged at column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{file}:1: {error}") from error


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
    for build in builds:
        _check_measured(build["measurements"])
    for name in ("noise", "worker"):
        _mapping(data.get(name, {}), name)
    ended, run = _text(data["ended"], "ended"), _text(data["run"], "run")
    _check_words(ended, run)
    digests, observed, gpu = (_mapping(data[name], name) for name in ("digests", "observed", "gpu"))
    if pool:
        digests, observed, gpu = pool.share(digests), pool.share(observed), pool.share(gpu)
    return Record(
        cell=pool.cell(data["cell"]) if pool else _cell(data["cell"]), product=Product(data["product"]),
        run=run, ended=ended, detail=_text(data["detail"], "detail"),
        started=_text(data["started"], "started"), digests=digests, observed=observed, gpu=gpu,
        confirms=_text(data.get("confirms", ""), "confirms"), processes=_count(data.get("processes", 1)),
        remeasured_from=_text(data.get("remeasured_from", ""), "remeasured_from"), file=file,
        finished=_text(data.get("finished", ""), "finished"),
        rest=pool.pack(data, builds) if pool else _rest(data, builds), whole=pool.reread if pool else data,
    )  # fmt: skip


def _cell(data: Mapping[str, Any]) -> CellId:
    return CellId.parse(str(CellId(**data)))


def _rest(data: Mapping[str, Any], builds: Iterable[Mapping[str, Any]]) -> Rest:
    return Rest(
        builds=tuple(_measured(build["measurements"]) for build in builds),
        noise=data.get("noise", {}), worker=data.get("worker", {}),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _unpack(measured: bytes, noise: bytes) -> Rest:
    """Return what was packed; the same again where it is asked for soon."""
    worker, *builds = _from_json(measured)
    return Rest(builds=tuple(map(_measured, builds)), noise=_unpack_noise(noise), worker=worker)


@lru_cache(maxsize=1024)
def _unpack_noise(noise: bytes) -> Mapping[str, Any]:
    unpacked: Mapping[str, Any] = _from_json(noise)
    return unpacked


@lru_cache(maxsize=1024)
def _read_noise(noise: bytes) -> Noise | None:
    return read_noise(_unpack_noise(noise))


def _to_json(part: Any) -> bytes:  # noqa: ANN401 - JSON
    try:
        return orjson.dumps(part)
    except TypeError:  # half a character, or a number beyond 64 bits
        return json.dumps(part).encode()


def _fit(content: bytes) -> bytes:
    """Return bytes that are no larger than they look: orjson's have room to spare behind them."""
    return bytes(memoryview(content))


def _from_json(packed: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        return orjson.loads(packed)
    except orjson.JSONDecodeError:
        return json.loads(packed)


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
    if ended not in _ENDS:
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
    if type(value) is not dict and not isinstance(value, Mapping):
        raise ValueError(f"{name} is {value!r}, which is no object")
    return value


def write_number(value: float) -> float | str:
    """Return what strict JSON can hold: the number, or ``"NaN"``, ``"Infinity"``, ``"-Infinity"``."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


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
