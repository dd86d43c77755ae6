"""What a caller of one surface trips over in another, what is new, and which of that lies within a move.

What NVIDIA's bindings do not say is kept by hand (changes.yaml): what to write instead of names, changed
behaviour, trtexec's flags.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from trtmatrix.api.types import (
    WORST_FIRST,
    ApiChange,
    ChangeKind,
    Kept,
    Member,
    MemberKind,
    Surface,
    lies_between,
    numbers_of,
)  # fmt: skip
from trtmatrix.suite.model import release_of

CALLABLES = {MemberKind.FUNCTION, MemberKind.METHOD}
_ONE_WAY = {"SupportsInt": "int", "SupportsIndex": "int", "SupportsFloat": "float"}
"""How releases of pybind11 write one and the same type."""
_PLAIN = ("str", "bytes", "bool", "int", "float")
"""Types of which none will do for another; that a number will do for a larger one is not asked."""


@dataclass(frozen=True, kw_only=True)
class ChangeTable:
    """All of the table; ``replacements`` by each of their names, ``older`` is of what no surface has."""

    replacements: Mapping[str, Kept] = field(default_factory=dict)
    behaviours: tuple[Kept, ...] = ()
    flags: tuple[Kept, ...] = ()
    older: tuple[Kept, ...] = ()

    def fill(self, change: ApiChange) -> ApiChange:
        """Return a change with what is kept of its name, or else of the class that it is a member of."""
        owner = change.name.rpartition(".")[0]
        kept = self.replacements.get(change.name) or self.replacements.get(owner) or Kept()
        return replace(
            change, replacement=kept.replacement, url=kept.url,
            note="; ".join(filter(None, (change.note, kept.note))),
            source="; ".join(filter(None, (change.source, kept.source))),
        )  # fmt: skip


def read_kept(entry: dict[str, Any], sources: Mapping[str, Mapping[str, str]]) -> Kept:
    """Return an entry with its source in words: the title, and how it is known where not read."""
    source, known = sources[entry["source"]], entry.pop("known", "read")
    plain = known in {"read", "measured"} or entry["source"] == "recalled"
    title = " ".join(source["title"].split()) + ("" if plain else f" ({known})")
    kind = ChangeKind(entry.pop("kind", ChangeKind.BEHAVIOUR))
    names = tuple(entry.pop("names", ()))
    return Kept(**{**entry, "kind": kind, "names": names, "source": title, "url": source["url"]})


# --- What lies within a move


def find_older(
    surfaces: Iterable[Surface], before: Surface, after: Surface, table: ChangeTable
) -> list[ApiChange]:
    """Return the names that had gone before a move, as code that is older still has them.

    ``surfaces``: all that are known, oldest first; what went before the first of them is in the table.
    """
    first = numbers_of(before.version)
    earlier = [surface for surface in surfaces if numbers_of(surface.version) < first]
    gone, kind = dict[str, ApiChange](), ChangeKind.REMOVED
    for old in table.older:
        note = f"gone since {old.removed}: older than {before.version}"
        for name in old.names:
            gone[name] = ApiChange(
                name=name, kind=kind, replacement=old.replacement, source=old.source, note=note
            )
    flags = compare_flags("0", before.version, table)
    gone |= {change.name: change for change in flags if change.kind is kind}
    for had, has in pairwise([*earlier, before]):
        for change in _removed(had, has):
            known = table.fill(replace(change, note="", source=_bindings(had, has)))
            gone[change.name] = replace(known, note=f"gone by {has.version}, before this move")
    return [c for name, c in gone.items() if before.find(name) is None and after.find(name) is None]


def _bindings(before: Surface, after: Surface) -> str:
    return f"NVIDIA's bindings {before.version} and {after.version}"


def find_behaviours(before: str, after: str, table: ChangeTable) -> tuple[Kept, ...]:
    """Return the changes of behaviour that a move between two versions meets, in either direction."""
    low, high = sorted((before, after), key=release_of)
    moved = release_of(low) != release_of(high)
    return tuple(b for b in table.behaviours if (lies_between(b.since, low, high) if b.since else moved))


def compare_flags(before: str, after: str, table: ChangeTable) -> list[ApiChange]:
    """Return what happens to trtexec's flags on the way up; the last where several things happen to one."""
    met: dict[str, ApiChange] = {}
    for item in sorted(table.flags, key=lambda item: release_of(item.since)):
        for flag in item.names if lies_between(item.since, before, after) else ():
            met[flag] = ApiChange(
                name=f"trtexec {flag}", kind=item.kind, replacement=item.replacement,
                note=f"since {item.since}" + (f": {item.note}" if item.note else ""),
                source=item.source, url=item.url,
            )  # fmt: skip
    return list(met.values())


def compare_surfaces(before: Surface, after: Surface, table: ChangeTable) -> tuple[ApiChange, ...]:
    """Return what changes from one surface to another, with what the table knows of each name.

    A class that is gone, or new, is one line. What moved to a base is no change, nor are docstrings' wording
    and defaults. trtexec's flags are in it for a move upwards.
    """
    source = _bindings(before, after)
    found = (*_removed(before, after), *_changed(before, after), *_deprecated(before, after, table))
    added = (
        replace(change, kind=ChangeKind.ADDED, before="", after=change.before, source=source)
        for change in _removed(after, before)
    )
    filled = (table.fill(replace(change, source=source)) for change in found)
    changes = [*filled, *added, *compare_flags(before.version, after.version, table)]
    return tuple(sorted(changes, key=lambda change: (WORST_FIRST.index(change.kind), change.name)))


def _members(surface: Surface) -> Iterator[tuple[str, Member]]:
    """Yield every member with its dotted name, then the module's own names."""
    for owner, found in surface.classes.items():
        for name, member in found.members.items():
            yield f"{owner}.{name}", member
    yield from surface.names.items()


def _removed(before: Surface, after: Surface) -> Iterator[ApiChange]:
    """Yield the names that are gone; what lies in a class that is gone has no line of its own."""
    classes = [(name, Member(kind=MemberKind.CLASS, returns=name)) for name in before.classes]
    for name, member in [*classes, *_members(before)]:
        owner = name.rpartition(".")[0]
        if after.find(name) is not None or (owner and after.find(owner) is None):
            continue
        note = f"another name of {member.returns}" if member.kind is MemberKind.CLASS else ""
        if member.returns == name and name in before.classes:
            count = len(before.classes[name].members)
            note = f"the class with its {count} member{'s' * (count != 1)}" if count else "the class"
        signature = member.signatures[0] if member.signatures else ""
        yield ApiChange(name=name, kind=ChangeKind.REMOVED, before=signature, note=note)


def _changed(before: Surface, after: Surface) -> Iterator[ApiChange]:
    """Yield what code that calls, reads or sets a name trips over, where the name stays."""
    for name, had in _members(before):
        has = after.find(name)
        if has is None:
            continue
        note, lost = "", had.signatures
        if had.kind in CALLABLES and has.kind in CALLABLES:
            tried = [(way, [breaks(way, other) for other in has.signatures]) for way in had.signatures]
            broken = [(way, reasons) for way, reasons in tried if reasons and all(reasons)]
            lost = tuple(way for way, _ in broken)
            if broken:
                note = "one way of calling it is gone: " * (len(had.signatures) > 1)
                note += min(broken[0][1], key=lambda reason: not reason.startswith("asks for"))
        elif had.kind is not has.kind:
            note = f"a {has.kind.value}, and was a {had.kind.value}"
        elif had.settable and not has.settable:
            note = "can no longer be set"
        if note:
            was, now = _shown(had, lost), _shown(has, has.signatures)
            yield ApiChange(name=name, kind=ChangeKind.CHANGED, before=was, after=now, note=note)


def _shown(member: Member, signatures: tuple[str, ...]) -> str:
    if member.kind is MemberKind.PROPERTY:
        return f"{member.returns or 'a property'}{'' if member.settable else ', read only'}"
    return "\n".join(signatures)


def _deprecated(before: Surface, after: Surface, table: ChangeTable) -> Iterator[ApiChange]:
    """Yield what the second surface's docstrings, or else the table, newly call deprecated."""
    told = set[str]()
    for name in [*before.classes, *dict(_members(before))]:
        had, has = before.find(name), after.find(name)
        if had is None or has is None or had.deprecated or name.rpartition(".")[0] in told:
            continue
        since = table.replacements[name].deprecated if name in table.replacements else ""
        known = lies_between(since or "0", before.version, after.version)
        if note := has.deprecated or f"deprecated since {since}" * known:
            told.add(name)
            yield ApiChange(name=name, kind=ChangeKind.DEPRECATED, note=note)


# ---- signatures ----


class Parameter(NamedTuple):
    """A parameter; ``name`` is empty where the bindings name none, ``type`` where it is none of the plain."""

    name: str
    type: str
    optional: bool


@lru_cache(maxsize=8192)
def parse_signature(text: str) -> tuple[Parameter, ...]:
    """Read ``"(index: int, name: str = '') -> ITensor"``; what is no Python at all takes anything."""
    plain = re.sub(r"(?<==)\s*<.*?>(?=[,)])", "...", re.sub(r"\w+(::\w+)+", "object", text))
    try:
        function = ast.parse(f"def _{plain}: ...").body[0]
    except SyntaxError:
        return (Parameter("*", "", optional=True),)
    assert isinstance(function, ast.FunctionDef)  # noqa: S101 - the text above begins so
    given = function.args
    required = len(given.args) - len(given.defaults)
    parameters = [
        Parameter(re.sub(r"^arg\d+$", "", each.arg), _type(each.annotation), optional=place >= required)
        for place, each in enumerate(given.args)
    ]
    starred = [Parameter(f"*{each.arg}", "", optional=True) for each in (given.vararg, given.kwarg) if each]
    return (*parameters, *starred)


def _type(node: ast.expr | None) -> str:
    """Return a plain type, or nothing for any other and for several."""
    parts = ast.unparse(node).split(" | ") if node else []
    names = {_ONE_WAY.get(name, name) for name in (part.rpartition(".")[2] for part in parts)}
    return names.pop() if len(names) == 1 and names <= {*_PLAIN} else ""


def fits(call: ast.Call, signature: str) -> bool:
    """Say whether a call surely fits a signature by number and names of arguments."""
    parameters = parse_signature(signature)
    rest = {each.name: each.optional for each in parameters[len(call.args) :]}
    given = {each.arg for each in call.keywords}
    lacking = [name for name, optional in rest.items() if not optional and name not in given]
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    return not lacking and not starred and len(call.args) <= len(parameters) and given <= {*rest}


def breaks(before: str, after: str) -> str:
    """Say what a caller written for one signature trips over in another; nothing where all goes on."""
    old, new = parse_signature(before), parse_signature(after)
    if any(parameter.name.startswith("*") for parameter in (*old, *new)):
        return ""
    for place, had in enumerate(old):
        if place >= len(new):
            return f"takes no {had.name or f'argument {place + 1}'} any more"
        has = new[place]
        if had.name and has.name and had.name != has.name:
            stays = any(parameter.name == had.name for parameter in new)
            return f"{had.name} stands elsewhere" if stays else f"{has.name} instead of {had.name}"
        if had.optional and not has.optional:
            return f"asks for {has.name or 'an argument'}, which could be left out"
        if had.type and has.type and had.type != has.type:
            return f"{has.name or 'the argument'} is {has.type} instead of {had.type}"
    required = [parameter for parameter in new[len(old) :] if not parameter.optional]
    return f"asks for {required[0].name or 'one argument more'}" if required else ""
