"""Surfaces as JSON: one alone, as the probe leaves it; many in a store, each as what it changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
from pydantic import TypeAdapter

from trtmatrix.api.types import ApiClass, Member, MemberKind, Origin, Surface

_SURFACE, _CLASS, _MEMBER = TypeAdapter(Surface), TypeAdapter(ApiClass), TypeAdapter(Member)


def parse_surface(text: str | bytes) -> Surface:
    """Return a surface from its JSON; ``ValueError`` says what in it is of another shape."""
    return _SURFACE.validate_json(text, strict=True)


def format_surface(surface: Surface) -> dict[str, Any]:
    """Return a surface as plain values, as :func:`parse_surface` reads them as JSON."""
    return {"schema": 1, **_SURFACE.dump_python(surface, mode="json", exclude_defaults=True)}


def parse_store(text: str | bytes) -> dict[str, Surface]:
    """Return the surfaces of the store, which is a part of this package, by version, oldest first.

    Of each version it has what is new or other than in the one before. Entries are named ``Builder``, of
    members ``Builder:build_engine``; null is one that is gone.
    """
    surfaces, known, data = dict[str, Surface](), dict[str, ApiClass | Member](), orjson.loads(text)
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
        surfaces[version] = Surface(version=version, origin=Origin(**line), classes=classes, names=names)
    return surfaces
