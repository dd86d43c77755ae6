"""What is known of TensorRT's names at the version moved from, and which of them change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from trtmatrix.core.api import ApiChange, Behaviour, ChangeKind, Member, MemberKind, Surface
from trtmatrix.core.codescan.values import (
    NOTHING,
    Foreign,
    TrtCallable,
    TrtClass,
    TrtObject,
    Value,
    join,
    many,
    of,
)

_WORTH = [ChangeKind.REMOVED, ChangeKind.CHANGED, ChangeKind.DEPRECATED, ChangeKind.BEHAVIOUR]
_ITEMS = {"INetworkDefinition": "ILayer"}
"""What indexing gives, where a surface does not say."""


class Names:
    """Answers what a dotted name is and what happens to it. ``after`` may be unknown (empty)."""

    def __init__(
        self, before: Surface, changes: Sequence[ApiChange], behaviours: Sequence[Behaviour], after: str = ""
    ) -> None:
        """Sort the changes by name; what is only added is kept for tests such as ``hasattr``."""
        self.surface, self.after = before, after
        self.added = {change.name for change in changes if change.kind is ChangeKind.ADDED}
        self._changes: dict[str, list[ApiChange]] = {}
        for change in [*changes, *_as_changes(behaviours)]:
            if change.kind in _WORTH:
                self._changes.setdefault(change.name, []).append(change)
        for listed in self._changes.values():
            listed.sort(key=lambda change: _WORTH.index(change.kind))
            if listed[0].kind is ChangeKind.REMOVED:
                del listed[1:]  # what else it did is of no use any more

    @cached_property
    def flags(self) -> dict[str, list[ApiChange]]:
        """The changes of trtexec's options, by option with its dashes."""
        named = {name.removeprefix("trtexec "): listed for name, listed in self._changes.items()}
        return {name: named[name] for name in named if f"trtexec {name}" in self._changes}

    @cached_property
    def owners(self) -> dict[str, list[str]]:
        """Attribute → the classes whose attribute of that name is removed, the first in the surface first."""
        found: dict[str, list[str]] = {}
        for name, listed in self._changes.items():
            owner, _, attribute = name.rpartition(".")
            if owner and " " not in name and listed[0].kind is ChangeKind.REMOVED:
                found.setdefault(attribute, []).append(owner)
        return found

    def changes(self, dotted: str) -> list[ApiChange]:
        """Return what happens to ``"Builder"``, ``"volume"`` or, through the bases, ``"Builder.build_engine"``."""
        owner, _, attribute = dotted.rpartition(".")
        if not owner:
            return self._changes.get(dotted, [])
        for base in self.line_of(owner):
            listed = self._changes.get(f"{base}.{attribute}")
            if listed:
                return listed
            if base in self.surface.classes and attribute in self.surface.classes[base].members:
                return []
        return []

    def line_of(self, owner: str) -> list[str]:
        """Return a class and its bases, the nearest first."""
        line, waiting = [], [owner]
        while waiting:
            current = waiting.pop(0)
            if current not in line:
                line.append(current)
                known = self.surface.classes.get(current)
                waiting += known.bases if known else ()
        return line

    def derived(self, owner: str) -> list[str]:
        """Return the classes of the bindings that derive from one."""
        return [name for name in self.surface.classes if name != owner and owner in self.line_of(name)]

    def knows(self, dotted: str) -> bool:
        """Say whether the version moved from has that name."""
        return self.surface.find(dotted) is not None

    def at_target(self, dotted: str) -> bool:
        """Say whether the version moved to has that name."""
        if dotted in self.added or self._added_to_base(dotted):
            return True
        gone = any(change.kind is ChangeKind.REMOVED for change in self.changes(dotted))
        return self.knows(dotted) and not gone

    def _added_to_base(self, dotted: str) -> bool:
        owner, _, attribute = dotted.rpartition(".")
        return any(f"{base}.{attribute}" in self.added for base in self.line_of(owner))

    def value_of(self, owner: str, attribute: str, *, of_class: bool = False) -> Value:
        """Return what ``owner.attribute`` gives; nothing where the surface has no such member."""
        for base in self.line_of(owner):
            if f"{base}.{attribute}" in self.surface.classes:
                return of(TrtClass(f"{base}.{attribute}"))
        member = self.surface.find(f"{owner}.{attribute}")
        if member is None:
            return NOTHING
        match member.kind:
            case MemberKind.METHOD | MemberKind.FUNCTION:
                return of(TrtCallable(f"{owner}.{attribute}"))
            case MemberKind.VALUE:
                return of(TrtObject(owner if owner in self.surface.classes else member.returns))
            case MemberKind.CLASS:
                return of(TrtClass(attribute))
            case MemberKind.PROPERTY:
                return of(Foreign("property")) if of_class else self._given(member, f"{owner}.{attribute}")

    def value_of_name(self, name: str) -> Value:
        """Return what the module's attribute gives; nothing where it has none of that name."""
        if name in self.surface.classes:
            return of(TrtClass(name))
        member = self.surface.names.get(name)
        if member is None:
            return NOTHING
        if member.kind is MemberKind.CLASS:
            return of(TrtClass(member.returns))
        return self._given(member, name) if member.kind is MemberKind.VALUE else of(TrtCallable(name))

    def result_of(self, dotted: str) -> Value:
        """Return what calling a function or method gives."""
        member = self.surface.find(dotted)
        return self._given(member, dotted) if member else NOTHING

    def item_of(self, owner: str) -> Value:
        """Return what indexing or iterating an object by numbers gives."""
        member = self.surface.find(f"{owner}.__getitem__")
        if member is not None and any("int)" in text for text in member.signatures):
            by_number = next(text for text in member.signatures if "int)" in text)
            return self._typed(by_number.rpartition("->")[2].strip(), f"{owner}.__getitem__")
        given = self.result_of(f"{owner}.__getitem__")
        if not given or all(isinstance(thing, Foreign) for thing in given):
            for base in self.line_of(owner):
                if base in _ITEMS:
                    return of(TrtObject(_ITEMS[base]))
        return given

    def _given(self, member: Member, dotted: str) -> Value:
        """Read the type that a docstring tells: a class of the bindings, a list of them, or another's."""
        return self._typed(member.returns or _after_arrows(member.signatures), dotted)

    def _typed(self, text: str, dotted: str) -> Value:
        """Return a value of a type's text; plain types of Python by their names."""
        if text in ("int", "str", "bool", "float"):
            return of(Foreign(f"builtins.{text}()"))
        words = re.findall(r"\w+", text)
        found = [of(TrtObject(word)) for word in words if word in self.surface.classes]
        if not found:
            return of(Foreign(f"tensorrt.{dotted}()")) if text else NOTHING
        listed = re.match(r"(typing\.)?(list|tuple|sequence|iterator|iterable|dict)\b", text, re.IGNORECASE)
        return many(found) if listed else join(*found)


def _after_arrows(signatures: Sequence[str]) -> str:
    """Return what overloads give, where no single class is named."""
    return " | ".join(text.rpartition("->")[2].strip() for text in signatures if "->" in text)


def _as_changes(behaviours: Sequence[Behaviour]) -> list[ApiChange]:
    """Make a change of every name that a changed behaviour affects."""
    return [
        ApiChange(
            name=name, kind=ChangeKind.BEHAVIOUR, note=behaviour.text, source=behaviour.source, url=behaviour.url
        )
        for behaviour in behaviours
        for name in behaviour.names
    ]  # fmt: skip
