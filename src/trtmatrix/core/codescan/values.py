"""What a name in the user's code can stand for: sets of things, joined where ways through the code meet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

MOST = 24
"""Things that one value holds at most, and texts; more say nothing any more."""
DEEPEST = 4
"""Containers within containers are followed so deep."""


@dataclass(frozen=True)
class Module:
    """The bindings themselves."""


@dataclass(frozen=True)
class TrtClass:
    """A class of the bindings, such as ``Builder``."""

    name: str


@dataclass(frozen=True)
class TrtObject:
    """An object of a class of the bindings, or of one derived from it."""

    name: str


@dataclass(frozen=True)
class TrtCallable:
    """A function or method of the bindings by its dotted name."""

    name: str


@dataclass(frozen=True)
class OwnModule:
    """One of the scanned files, or a folder of them."""

    path: str


@dataclass(frozen=True)
class OwnClass:
    """A class that the scanned files define."""

    key: str


@dataclass(frozen=True)
class OwnObject:
    """An object of a class that the scanned files define."""

    key: str


@dataclass(frozen=True)
class OwnFunction:
    """A function of the scanned files; ``bound``: its first parameter is filled already."""

    key: str
    bound: bool = False


@dataclass(frozen=True)
class Super:
    """What ``super()`` stands for in a class of the scanned files."""

    key: str


@dataclass(frozen=True)
class Foreign:
    """Something of another library or of Python itself, by its dotted name as far as that is known."""

    name: str


@dataclass(frozen=True)
class Const:
    """A literal. ``versioned``: it hangs on TensorRT's version, and is its value at the one moved to.

    ``where``: the file and line it was written at, kept for words of command lines only.
    """

    value: str | int | float | bool | tuple[int | str, ...]
    versioned: bool = False
    where: tuple[str, int] = ("", 0)


@dataclass(frozen=True)
class Tainted:
    """Something that hangs on TensorRT's version in a way that is not followed."""


@dataclass(frozen=True)
class Many:
    """A container: what any of its items can be, and what is known of single keys or attributes."""

    items: frozenset[Thing]
    fields: tuple[tuple[str, frozenset[Thing]], ...] = ()
    ordered: bool = True
    """A list or the like; else a mapping, whose iteration gives keys."""


@dataclass(frozen=True)
class Row:
    """A tuple, item by item."""

    items: tuple[frozenset[Thing], ...]


@dataclass(frozen=True)
class Partial:
    """A callable with some arguments filled in."""

    function: frozenset[Thing]
    args: tuple[frozenset[Thing], ...]
    keywords: tuple[tuple[str, frozenset[Thing]], ...]


Thing: TypeAlias = (
    Module | TrtClass | TrtObject | TrtCallable | OwnModule | OwnClass | OwnObject | OwnFunction | Super | Foreign
    | Const | Tainted | Many | Row | Partial
)  # fmt: skip
Value: TypeAlias = frozenset[Thing]
"""Empty: nothing is known."""

NOTHING: Value = frozenset()


def of(*things: Thing) -> Value:
    """Return the value that holds these."""
    return frozenset(things)


def join(*values: Value) -> Value:
    """Return what a name can stand for where several ways meet; containers become one container."""
    first, *others = values or (NOTHING,)
    if all(other <= first for other in others):
        return first
    things = {thing for value in values for thing in value}
    many = [thing for thing in things if isinstance(thing, Many)]
    rows = [thing for thing in things if isinstance(thing, Row)]
    if len(many) > 1:
        things = things.difference(many) | {_join_many(many)}
    if len(rows) > 1:
        things = things.difference(rows) | set(_join_rows(rows))
    if len(things) > MOST:
        kept = sorted(things, key=lambda thing: (_rank(thing), repr(thing)))
        return frozenset(kept[:MOST])
    return frozenset(things)


def many(items: Iterable[Value], fields: dict[str, Value] | None = None, ordered: bool = True) -> Value:
    """Return a container of these items, not deeper than is followed."""
    inner = join(*items) if items else NOTHING
    known = tuple(sorted((fields or {}).items()))
    if depth(inner) >= DEEPEST:
        inner, known = NOTHING, ()
    return of(Many(inner, known, ordered))


def row(items: Iterable[Value]) -> Value:
    """Return a tuple of these items, not deeper than is followed."""
    listed = tuple(items)
    if any(depth(item) >= DEEPEST for item in listed):
        return of(Many(NOTHING))
    return of(Row(listed))


def depth(value: Value) -> int:
    """Return how many containers within each other a value has."""
    deepest = 0
    for thing in value:
        if isinstance(thing, Many):
            inner = [depth(thing.items), *(depth(field) for _, field in thing.fields)]
        elif isinstance(thing, Row):
            inner = [depth(item) for item in thing.items]
        elif isinstance(thing, Partial):
            inner = [depth(thing.function), *(depth(arg) for arg in thing.args)]
        else:
            continue
        deepest = max(deepest, 1 + max(inner, default=0))
    return deepest


def items_of(value: Value) -> Value:
    """Return what the items of containers can be."""
    found = [thing.items for thing in value if isinstance(thing, Many)]
    found += [item for thing in value if isinstance(thing, Row) for item in thing.items]
    found += [of(Foreign(f"{thing.name}[]")) for thing in value if isinstance(thing, Foreign)]
    return join(*found)


def texts(value: Value) -> list[Const]:
    """Return the literal texts in a value, those inside containers too."""
    found = [thing for thing in value if isinstance(thing, Const) and isinstance(thing.value, str)]
    inner = items_of(frozenset(thing for thing in value if isinstance(thing, Many | Row)))
    return [*found, *(texts(inner) if inner else [])]


def _join_many(listed: list[Many]) -> Many:
    fields: dict[str, Value] = {}
    for each in listed:
        for name, value in each.fields:
            fields[name] = join(fields.get(name, NOTHING), value)
    items = join(*(each.items for each in listed))
    return Many(items, tuple(sorted(fields.items())), all(each.ordered for each in listed))


def _join_rows(listed: list[Row]) -> list[Thing]:
    found: list[Thing] = []
    for length in {len(each.items) for each in listed}:
        same = [each.items for each in listed if len(each.items) == length]
        found.append(Row(tuple(join(*items) for items in zip(*same, strict=True))))
    return found


def _rank(thing: Thing) -> int:
    """Order things by how much they say: those of TensorRT first, literals last."""
    if isinstance(thing, Module | TrtClass | TrtObject | TrtCallable | Many | Row):
        return 0
    return 2 if isinstance(thing, Const) else 1
