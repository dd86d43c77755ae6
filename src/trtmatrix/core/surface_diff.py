"""The difference of two surfaces: what a caller of the first trips over in the second, and what is new."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trtmatrix.core.api import ApiChange, Behaviour, ChangeKind, Member, MemberKind, Surface
from trtmatrix.core.change_table import ChangeTable, lies_between, release
from trtmatrix.core.signatures import IsA, breaks, differ, parse_type

ORDER = (
    ChangeKind.REMOVED,
    ChangeKind.CHANGED,
    ChangeKind.BEHAVIOUR,
    ChangeKind.DEPRECATED,
    ChangeKind.ADDED,
)
TRTEXEC = "trtexec"
CALLABLES = {MemberKind.FUNCTION, MemberKind.METHOD}


def compare_surfaces(before: Surface, after: Surface, table: ChangeTable) -> tuple[ApiChange, ...]:
    """Return what changes from one surface to another, worst first, with what the table knows of each name.

    A class that is gone, or new, is one line. What moved to a base is no change, nor are docstrings' wording
    and defaults. trtexec's flags are in it for a move upwards.
    """
    source = f"NVIDIA's bindings {before.version} and {after.version}"
    found = [*_removed(before, after), *_lost_with_a_base(before, after), *_changed(before, after)]
    found += [*_deprecated(before, after, table), *_added(before, after)]
    filled = [_filled(replace(change, source=source), table) for change in found]
    filled += compare_flags(before.version, after.version, table)
    return tuple(sorted(filled, key=lambda change: (ORDER.index(change.kind), change.name)))


def find_behaviours(before: str, after: str, table: ChangeTable) -> tuple[Behaviour, ...]:
    """Return the changes of behaviour that a move between two versions meets, in either direction."""
    low, high = sorted((before, after), key=release)
    return tuple(item for item in table.behaviours if _meets(item.since, low, high))


def _meets(since: str, low: str, high: str) -> bool:
    """Whether a move meets a behaviour; one without a release is met by every move."""
    return lies_between(since, low, high) if since else release(low) != release(high)


def compare_flags(before: str, after: str, table: ChangeTable) -> list[ApiChange]:
    """Return what happens to trtexec's flags on the way up; the last where several things happen to one."""
    met: dict[str, ApiChange] = {}
    for flag in sorted(table.flags, key=lambda flag: release(flag.since)):
        if lies_between(flag.since, before, after):
            met[flag.flag] = ApiChange(
                name=f"{TRTEXEC} {flag.flag}", kind=flag.kind, replacement=flag.write,
                note=f"since {flag.since}" + (f": {flag.note}" if flag.note else ""),
                source=flag.source, url=flag.url,
            )  # fmt: skip
    return list(met.values())


def _filled(change: ApiChange, table: ChangeTable) -> ApiChange:
    """Add what the table knows of a name that goes, changes or is to go."""
    known = table.of(change.name)
    if known is None or change.kind is ChangeKind.ADDED:
        return change
    note = "; ".join(text for text in (change.note, known.note) if text)
    return replace(
        change, replacement=known.write, note=note, source=f"{change.source}; {known.source}", url=known.url
    )


def _members(surface: Surface) -> Iterator[tuple[str, Member]]:
    """Yield every member with its dotted name, then the module's own names."""
    for owner, found in surface.classes.items():
        for name, member in found.members.items():
            yield f"{owner}.{name}", member
    yield from surface.names.items()


def _removed(before: Surface, after: Surface) -> Iterator[ApiChange]:
    for name, had in before.classes.items():
        if after.find(name) is None and not _inside_removed(name, after):
            count = len(had.members)
            members = f"the class with its {count} member{'s' * (count != 1)}" if count else "the class"
            yield ApiChange(name=name, kind=ChangeKind.REMOVED, note=members)
    for name, member in _members(before):
        if after.find(name) is None and not _inside_removed(name, after):
            note = f"another name of {member.returns}" if member.kind is MemberKind.CLASS else ""
            signature = member.signatures[0] if member.signatures else ""
            yield ApiChange(name=name, kind=ChangeKind.REMOVED, before=signature, note=note)


def _inside_removed(name: str, after: Surface) -> bool:
    """Whether the class that a name lies in is gone, which is a line of its own."""
    owner = name.rpartition(".")[0]
    return bool(owner) and after.find(owner) is None


def _lost_with_a_base(before: Surface, after: Surface) -> Iterator[ApiChange]:
    """Yield what a class inherited from a base that is no longer one of its bases."""
    for name, had in before.classes.items():
        for base in sorted(set(had.bases) - set(after.classes[name].bases)) if name in after.classes else ():
            for member in before.classes[base].members if base in before.classes else ():
                dotted = f"{name}.{member}"
                if not member.startswith("__") and after.find(dotted) is None:
                    note = f"{name} is no {base} any more"
                    yield ApiChange(name=dotted, kind=ChangeKind.REMOVED, note=note)


def _changed(before: Surface, after: Surface) -> Iterator[ApiChange]:
    for name, had in _members(before):
        has = after.find(name)
        if has is None:
            continue
        if had.kind in CALLABLES and has.kind in CALLABLES:
            yield from _changed_call(name, had, has, after)
        elif why := _changed_value(had, has, after):
            yield ApiChange(
                name=name, kind=ChangeKind.CHANGED, before=_shown(had), after=_shown(has), note=why
            )


def _changed_call(name: str, had: Member, has: Member, after: Surface) -> Iterator[ApiChange]:
    """Yield the ways of calling a function that no longer work; the nearest that does says why."""
    is_a = _classes_of(after)
    lost: list[tuple[str, str]] = []
    for signature in had.signatures if has.signatures else ():
        reasons = [breaks(signature, other, is_a) for other in has.signatures]
        if all(reasons):
            lost.append((signature, min(reasons, key=lambda reason: not reason.startswith("asks for"))))
    if lost:
        note = lost[0][1] if len(had.signatures) == 1 else f"one way of calling it is gone: {lost[0][1]}"
        yield ApiChange(
            name=name, kind=ChangeKind.CHANGED, before="\n".join(signature for signature, _ in lost),
            after="\n".join(has.signatures), note=note,
        )  # fmt: skip


def _changed_value(had: Member, has: Member, after: Surface) -> str:
    """Say what code that reads or sets a member trips over; nothing where all goes on."""
    if had.kind is not has.kind:
        return f"a {has.kind.value}, and was a {had.kind.value}"
    if had.settable and not has.settable:
        return "can no longer be set"
    old, new = parse_type(had.returns) - {"None"}, parse_type(has.returns) - {"None"}
    if had.kind is MemberKind.PROPERTY and differ(new, old, _classes_of(after)):
        return f"is {has.returns} instead of {had.returns}"
    return ""


def _classes_of(surface: Surface) -> IsA:
    """Return which class of a surface is which other."""

    def is_a(name: str, other: str) -> bool:
        found = surface.classes.get(name)
        return name == other or (found is not None and any(is_a(base, other) for base in found.bases))

    return is_a


def _shown(member: Member) -> str:
    if member.kind is MemberKind.PROPERTY:
        return f"{member.returns or 'a property'}{'' if member.settable else ', read only'}"
    return "\n".join(member.signatures)


def _deprecated(before: Surface, after: Surface, table: ChangeTable) -> Iterator[ApiChange]:
    """Yield what the second surface's docstrings, or else the table, newly call deprecated."""
    classes = {name for name, has in after.classes.items() if has.deprecated}
    told = set()
    for name in sorted(classes & set(before.classes)):
        if not before.classes[name].deprecated:
            told.add(name)
            note = after.classes[name].deprecated
            yield ApiChange(name=name, kind=ChangeKind.DEPRECATED, note=note)
    for name, had in _members(before):
        has = after.find(name)
        if has is None or not has.deprecated or had.deprecated or name.rpartition(".")[0] in told:
            continue
        told.add(name)
        yield ApiChange(name=name, kind=ChangeKind.DEPRECATED, note=has.deprecated)
    for name, kept in table.replacements.items():
        if name in told or not lies_between(kept.deprecated or "0", before.version, after.version):
            continue
        had_it, has_it = before.find(name), after.find(name)
        if had_it is not None and has_it is not None and not had_it.deprecated:
            note = f"deprecated since {kept.deprecated}"
            yield ApiChange(name=name, kind=ChangeKind.DEPRECATED, note=note)


def _added(before: Surface, after: Surface) -> Iterator[ApiChange]:
    """Yield what is new: seen from the second surface, the first lacks it."""
    for change in _removed(after, before):
        yield replace(change, kind=ChangeKind.ADDED, before="", after=change.before)
