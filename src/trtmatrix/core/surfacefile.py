"""Surfaces as JSON: one alone, as the probe leaves it; many in a store where equal entries stand once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trtmatrix.core.api import ApiClass, Member, MemberKind, Origin, Surface
from trtmatrix.core.errors import ConfigError

SCHEMA = 1
LONGEST = 400
"""Characters of an entry's line that a problem shows."""


def numbers_of(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: ``"10.13.3.9.post1"`` → ``(10, 13, 3, 9)``."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def parse_surface(data: Any, file: str) -> Surface:  # noqa: ANN401 - JSON of whatever shape
    """Return a surface from plain values; :class:`ConfigError` says what in them is of another shape."""
    remedy = "remove the file: the next run in that image, or nox -s surfaces, writes it anew"
    try:
        _expect(data["schema"] == SCHEMA, f"schema {data['schema']!r}, and this trtmatrix reads {SCHEMA}")
        _expect(bool(numbers_of(data["version"])), f"{data['version']!r} is no version")
        return Surface(
            version=data["version"], origin=_origin(data.get("origin", {})),
            classes={str(name): _class(found) for name, found in data["classes"].items()},
            names={str(name): _member(found) for name, found in data["names"].items()},
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigError([f"{file}:1: this is no surface of the bindings: {what}\n  {remedy}"]) from error


def format_surface(surface: Surface) -> dict[str, Any]:
    """Return a surface as plain values, as :func:`parse_surface` reads them."""
    classes = {name: _plain_class(found) for name, found in surface.classes.items()}
    names = {name: _plain_member(found) for name, found in surface.names.items()}
    origin = {key: value for key, value in asdict(surface.origin).items() if value}
    return {
        "schema": SCHEMA,
        "version": surface.version,
        "origin": origin,
        "classes": classes,
        "names": names,
    }


def _expect(right: bool, otherwise: str) -> None:
    if not right:
        raise ValueError(otherwise)


def _text(value: Any) -> str:  # noqa: ANN401 - JSON
    _expect(isinstance(value, str), f"{value!r} is no text")
    return str(value)


def _texts(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - JSON
    _expect(isinstance(value, list), f"{value!r} is no list")
    return tuple(map(_text, value))


def _origin(data: Mapping[str, Any]) -> Origin:
    known = {name: _text(value) for name, value in data.items() if name in Origin.__dataclass_fields__}
    return Origin(**known)


def _class(data: Mapping[str, Any]) -> ApiClass:
    return ApiClass(
        bases=_texts(data.get("bases", [])), deprecated=_text(data.get("deprecated", "")),
        members={str(name): _member(found) for name, found in data.get("members", {}).items()},
    )  # fmt: skip


def _member(data: Mapping[str, Any]) -> Member:
    return Member(
        kind=MemberKind(data["kind"]), signatures=_texts(data.get("signatures", [])),
        returns=_text(data.get("returns", "")), deprecated=_text(data.get("deprecated", "")),
        settable=bool(data.get("settable", False)),
    )  # fmt: skip


def _plain_class(found: ApiClass) -> dict[str, Any]:
    members = {name: _plain_member(member) for name, member in sorted(found.members.items())}
    plain = {"bases": list(found.bases), "members": members, "deprecated": found.deprecated}
    return {key: value for key, value in plain.items() if value}


def _plain_member(member: Member) -> dict[str, Any]:
    plain = {
        "kind": member.kind.value, "signatures": list(member.signatures), "returns": member.returns,
        "deprecated": member.deprecated, "settable": member.settable,
    }  # fmt: skip
    return {key: value for key, value in plain.items() if value}


# ---- the store: a line an entry, with the versions that it is true of ----


@dataclass(frozen=True, kw_only=True)
class Store:
    """Many surfaces; ``entries``: by name, each variant as plain values with the span of its versions."""

    origins: Mapping[str, Origin]
    """By version, oldest first."""
    entries: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]]

    def surface(self, version: str) -> Surface:
        """Return the surface of a version that the store has; ``KeyError`` where it has none."""
        order = {name: place for place, name in enumerate(self.origins)}
        here = order[version]
        spans: dict[str, bool] = {}
        classes: dict[str, tuple[Mapping[str, Any], dict[str, Member]]] = {}
        names: dict[str, Member] = {}
        shared: dict[int, Member] = {}
        for dotted, variants in self.entries.items():
            for span, plain in variants:
                if span not in spans:
                    spans[span] = _covers(span, order, here)
                if not spans[span]:
                    continue
                owner, _, name = dotted.partition(":")
                if plain["kind"] == "class" and not name and "returns" not in plain:
                    classes[owner] = plain, {}
                else:
                    member = shared.setdefault(id(plain), _member(plain))
                    (classes[owner][1] if name else names)[name or owner] = member
                break
        built = {
            name: ApiClass(
                bases=tuple(plain.get("bases", ())), members=members, deprecated=plain.get("deprecated", "")
            )
            for name, (plain, members) in classes.items()
        }
        return Surface(version=version, origin=self.origins[version], classes=built, names=names)


def _covers(span: str, order: Mapping[str, int], here: int) -> bool:
    """Whether ``"8.6.1"``, ``"8.5.3.1..8.6.1"`` or ``"10.0.1.."`` (to the newest) holds a place."""
    for part in span.split(", "):
        first, dots, last = part.partition("..")
        end = order[last] if last else (len(order) - 1 if dots else order[first])
        if order[first] <= here <= end:
            return True
    return False


def parse_store(text: str, file: str) -> Store:
    """Return the store from its text; :class:`ConfigError` where it has another shape."""
    try:
        data = json.loads(text)
        _expect(data["schema"] == SCHEMA, f"schema {data['schema']!r}, and this trtmatrix reads {SCHEMA}")
        origins = {_text(line.pop("version")): _origin(line) for line in data["surfaces"]}
        _expect(list(origins) == sorted(origins, key=numbers_of), "its versions are not in order")
        entries = {name: [(span, plain) for span, plain in found] for name, found in data["entries"].items()}
        store = Store(origins=origins, entries=entries)
        for version in list(origins)[-1:]:
            store.surface(version)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        remedy = "nox -s surfaces writes it anew, or install trtmatrix again"
        raise ConfigError(
            [f"{file}:1: the store of surfaces cannot be read: {error!r}\n  {remedy}"]
        ) from error
    return store


def format_store(surfaces: Iterable[Surface]) -> str:
    """Return many surfaces as one JSON text with a line for each variant of each entry, oldest first.

    The newest span is left open: a release that changes nothing of an entry changes nothing of its line.
    """
    ordered = sorted(surfaces, key=lambda surface: numbers_of(surface.version))
    variants: dict[str, dict[str, list[int]]] = {}
    for place, surface in enumerate(ordered):
        for name, plain in _flat(surface):
            line = json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
            variants.setdefault(name, {}).setdefault(line, []).append(place)
    versions = [surface.version for surface in ordered]
    lines = [
        f"{json.dumps(name)}:["
        + ",\n ".join(f'["{_span(places, versions)}",{line}]' for line, places in found.items())
        + "]"
        for name, found in sorted(variants.items())
    ]
    heads = [
        json.dumps({"version": surface.version, **{k: v for k, v in asdict(surface.origin).items() if v}})
        for surface in ordered
    ]
    return (
        f'{{"schema":{SCHEMA},\n"surfaces":[\n' + ",\n".join(heads) + '\n],\n"entries":{\n'
        + ",\n".join(lines) + "\n}}\n"
    )  # fmt: skip


def _flat(surface: Surface) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield each entry with its name: ``Builder`` and, of its members, ``Builder:build_engine``."""
    for name, found in surface.classes.items():
        plain = _plain_class(found)
        plain.pop("members", None)
        yield name, {"kind": "class", **plain}
        for member, value in found.members.items():
            yield f"{name}:{member}", _plain_member(value)
    for name, value in surface.names.items():
        yield name, _plain_member(value)


def _span(places: Sequence[int], versions: Sequence[str]) -> str:
    """Write places as ``"8.5.3.1..8.6.1, 10.0.1.."``."""
    parts: list[str] = []
    start = places[0]
    for here, following in zip(places, [*places[1:], -1], strict=True):
        if following == here + 1:
            continue
        if here == len(versions) - 1:
            parts.append(f"{versions[start]}..")
        elif here == start:
            parts.append(versions[here])
        else:
            parts.append(f"{versions[start]}..{versions[here]}")
        start = following
    return ", ".join(parts)
