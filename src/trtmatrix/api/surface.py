"""Surfaces as JSON: one alone, as the probe leaves it; many in a store, each as what it changed."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from trtmatrix.api.types import ApiClass, Member, MemberKind, Origin, Surface
from trtmatrix.common.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class _File(Surface):
    schema: Literal[1]
    version: Annotated[str, Field(pattern=r"^\d+(\.\d+)+")]


_FILE, _SURFACE = TypeAdapter(_File), TypeAdapter(Surface)
_CLASS, _MEMBER = TypeAdapter(ApiClass), TypeAdapter(Member)


def parse_surface(text: str | bytes, file: str) -> Surface:
    """Return a surface from its JSON; :class:`ConfigError` says what in it is of another shape."""
    try:
        read = _FILE.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = f"{'.'.join(map(str, first['loc'])) or 'the text'}: {first['msg']}"
        remedy = "remove the file: the next run in that image writes it anew"
        raise ConfigError([f"{file}:1: this is no surface of the bindings: {what}\n  {remedy}"]) from error
    return Surface(version=read.version, origin=read.origin, classes=read.classes, names=read.names)


def format_surface(surface: Surface) -> dict[str, Any]:
    """Return a surface as plain values, as :func:`parse_surface` reads them as JSON."""
    return {"schema": 1, **_SURFACE.dump_python(surface, mode="json", exclude_defaults=True)}


def parse_store(text: str | bytes, file: str) -> dict[str, Surface]:
    """Return the surfaces of a store by version, oldest first; :class:`ConfigError` for another shape.

    Of each version it has what is new or other than in the one before. Entries are named ``Builder``, of
    members ``Builder:build_engine``; null is one that is gone.
    """
    surfaces, known = dict[str, Surface](), dict[str, ApiClass | Member]()
    try:
        data = json.loads(text)
        for line in data["surfaces"]:
            version = line.pop("version")
            for name, entry in data["changes"][version].items():
                known.pop(name, None)
                if entry is not None:
                    is_class = entry["kind"] == MemberKind.CLASS and "returns" not in entry
                    known[name] = (_CLASS if is_class else _MEMBER).validate_python(entry)
            members = {name: dict[str, Member]() for name in known if isinstance(known[name], ApiClass)}
            classes, names = dict[str, ApiClass](), dict[str, Member]()
            for dotted, entry in sorted(known.items()):
                owner, _, name = dotted.partition(":")
                if isinstance(entry, ApiClass):
                    classes[owner] = replace(entry, members=members[owner])
                else:
                    (members[owner] if name else names)[name or owner] = entry
            origin = Origin(**line)
            surfaces[version] = Surface(version=version, origin=origin, classes=classes, names=names)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        remedy = "install trtmatrix again, or remove it and run python -m bench.surfaces"
        what = f"{file}:1: the store of surfaces cannot be read: {error!r}\n  {remedy}"
        raise ConfigError([what]) from error
    return surfaces
