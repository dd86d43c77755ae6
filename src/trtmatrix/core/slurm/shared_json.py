"""Manifests, submissions and attempts as the JSON that lies on the shared folder; read strictly. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

from trtmatrix.core.errors import MachineryError
from trtmatrix.core.record import write_number
from trtmatrix.core.slurm.manifest import Asked, Manifest, Sent

LAYOUT = 1
"""The number of the shared folder's layout; one of a later number is refused."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What an attempt is to run (``indices.json``)."""

    indices: tuple[int, ...]
    retry: bool = False
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Gone:
    """How a job ended as Slurm told a client (``gone.json``)."""

    state: str
    reason: str = ""
    node: str = ""


def to_data(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a dataclass, with all in it, as what JSON can hold: numbers that it has not become words."""
    if is_dataclass(value):
        return {field.name: to_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): to_data(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_data(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return write_number(value)
    return value


def format_manifest(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest as it lies in its array's folder."""
    return {"layout": LAYOUT, **to_data(manifest)}


def parse_manifest(text: str, file: str) -> Manifest:
    """Read a manifest. :class:`MachineryError` where it is damaged or a newer trtmatrix wrote it."""
    data = _object(text, file)
    check_layout(data.pop("layout", None), file)
    manifest = _validate(Manifest, data, file)
    for task in manifest.tasks:
        if not task:
            raise MachineryError(f"{file}: a task has no cells; {_REMEDY}")
    return manifest


def check_layout(number: object, file: str) -> None:
    """Raise :class:`MachineryError` unless this trtmatrix knows a layout of this number."""
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise MachineryError(f"{file}: its layout is {number!r}, which is no number; {_REMEDY}")
    if number > LAYOUT:
        raise MachineryError(
            f"{file}: its layout is {number}, and this trtmatrix knows {LAYOUT}: a newer trtmatrix works in "
            "this folder. Update this one, or name another folder (shared: in the site's file)"
        )


def parse_sent(text: str, file: str) -> Sent:
    """Read a submission. :class:`MachineryError` where it is damaged."""
    return _validate(Sent, _object(text, file), file)


def parse_wanted(text: str, file: str, task: tuple[Asked, ...] | None = None) -> Wanted:
    """Read what an attempt is to run; ``task``: the cells that it may name.

    :class:`MachineryError` where it is damaged.
    """
    wanted = _validate(Wanted, _object(text, file), file)
    known = len(wanted.indices) if task is None else len(task)
    if len(set(wanted.indices)) < len(wanted.indices) or (
        task is not None and any(not 0 <= index < known for index in wanted.indices)
    ):
        raise MachineryError(f"{file}: it names cells that its task does not have, or twice; {_REMEDY}")
    return wanted


def parse_gone(text: str, file: str) -> Gone:
    """Read how a job ended. :class:`MachineryError` where it is damaged."""
    return _validate(Gone, _object(text, file), file)


def parse_facts(text: str) -> dict[str, str]:
    """Read what a script tells: lines ``name=value``; of two with one name the last counts."""
    lines = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value for name, sign, value in lines if sign}


_REMEDY = (
    "it was cut short or changed by hand: remove its folder (arrays/…) and type the command again: what has "
    "no record is run anew"
)


def _object(text: str, file: str) -> dict[str, Any]:
    import orjson

    try:
        data = orjson.loads(text.encode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise MachineryError(f"{file}: no JSON: {error}; {_REMEDY}") from error
    if not isinstance(data, dict):
        raise MachineryError(f"{file}: no object; {_REMEDY}")
    return data


_adapters: dict[type[Any], Any] = {}


def _adapter(kind: type[Any]) -> Any:  # noqa: ANN401 - pydantic's adapter of any type
    from pydantic import TypeAdapter

    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _validate(kind: type[T], data: Mapping[str, Any], file: str) -> T:
    import orjson
    from pydantic import ValidationError

    adapter = _adapter(kind)
    try:
        read: T = adapter.validate_json(orjson.dumps(data), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise MachineryError(f"{file}: {place or 'all of it'}: {first['msg']}; {_REMEDY}") from error
    return read
