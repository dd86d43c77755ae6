"""What is known of TensorRT's names at the version moved from, which of them change, and the uses found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trtmatrix.api.types import ApiChange, ApiUse, Behaviour, Certainty, ChangeKind, Surface

_WORTH = [ChangeKind.REMOVED, ChangeKind.CHANGED, ChangeKind.DEPRECATED]


class Names:
    """Answers what a dotted name is and what happens to it. ``after`` may be unknown (empty)."""

    def __init__(
        self, before: Surface, changes: Sequence[ApiChange], behaviours: Sequence[Behaviour], after: str,
        hints: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Sort the changes by name, the worst of each; what is only added is kept for ``hasattr``.

        ``hints``: what is known besides the surfaces, by topic, as scan.yaml has it.
        """
        self.surface, self.after, self.hints = before, after, hints
        self.added = {change.name for change in changes if change.kind is ChangeKind.ADDED}
        worst_last = sorted((c for c in changes if c.kind in _WORTH), key=lambda c: -_WORTH.index(c.kind))
        self.changes = {change.name: change for change in worst_last}
        self.flags = {name[8:]: c for name, c in self.changes.items() if name.startswith("trtexec ")}
        self.behaviours = {
            name: ApiChange(
                name=each.topic, kind=ChangeKind.BEHAVIOUR, note=each.text, source=each.source, url=each.url
            )
            for each in behaviours
            for name in each.names
        }
        self.owners: dict[str, list[str]] = {}
        """The classes of each member that changes."""
        for name in self.changes:
            owner, _, attribute = name.rpartition(".")
            if owner and " " not in name:
                self.owners.setdefault(attribute, []).append(owner)
        self.members = {name for known in before.classes.values() for name in known.members}
        self.members |= {name.rpartition(".")[2] for name in [*self.added, *before.classes, *before.names]}
        every = [word for name in [*self.changes, *self.behaviours] for word in name.split(".")]
        self.words = {"__version__", *(word for word in every if word[0] != "_")}
        self.words.add("[")  # behind a name that ends in engine
        self.attributes = set(self.words)
        for gone in filter(self._is_gone, before.classes):
            for attribute in before.classes[gone].members:  # what a class had goes with it
                self.attributes.add(attribute)
                if gone.endswith("Parser"):
                    self.owners.setdefault(attribute, []).append(gone)
        self.common = frozenset(hints["common"])
        self.long_words = {word for word in self.words if "_" in word.strip("_")}

    def _is_gone(self, name: str) -> bool:
        change = self.changes.get(name)
        return change is not None and change.kind is ChangeKind.REMOVED

    def is_own(self, attribute: str) -> bool:
        """Say whether an attribute's name is TensorRT's alone."""
        return "_" in attribute.strip("_") and attribute not in self.common and attribute[:2] != "__"

    def change_of(self, dotted: str) -> ApiChange | None:
        """Return what happens to ``"volume"`` or, through the bases, to ``"Builder.build_engine"``."""
        owner, _, attribute = dotted.rpartition(".")
        for base in self.line_of(owner) if owner else ():
            if (change := self.changes.get(f"{base}.{attribute}")) is not None:
                return change
            if base in self.surface.classes and attribute in self.surface.classes[base].members:
                if not self._is_gone(base) or attribute[0] == "_":
                    return None
                return replace(self.changes[base], name=f"{base}.{attribute}", note=f"{base} is gone")
        return None if owner else self.changes.get(dotted)

    def line_of(self, owner: str) -> list[str]:
        """Return a class and its bases, the nearest first."""
        line = [owner]
        for current in line:
            known = self.surface.classes.get(current)
            line += [base for base in (known.bases if known else ()) if base not in line]
        return line

    def at_target(self, dotted: str) -> bool:
        """Say whether the version moved to has that name."""
        owner, _, attribute = dotted.rpartition(".")
        if any(f"{base}.{attribute}".strip(".") in self.added for base in self.line_of(owner)):
            return True
        change = self.change_of(dotted)
        gone = change is not None and change.kind is ChangeKind.REMOVED
        return self.surface.find(dotted) is not None and not gone


@dataclass(frozen=True, kw_only=True)
class Page:
    """A file that is scanned. ``code``: its text; of a notebook the Python in it, line by line as ``lines``.

    ``cells``: of a notebook, each line's cell and line in it. ``found`` takes the uses of all files.
    """

    file: str
    code: str
    lines: Sequence[str]
    cells: Sequence[tuple[int, int]] = ()
    found: list[ApiUse] = field(default_factory=list)

    def note(self, line: int, change: ApiChange, why: str = "") -> None:
        """Note a use; ``why`` says why it is only possible (empty: it is sure)."""
        cell, inner = self.cells[line - 1] if self.cells else (0, line)
        self.found.append(ApiUse(
            file=self.file, line=inner, cell=cell, text=self.lines[line - 1].strip()[:200], change=change,
            certainty=Certainty.POSSIBLE if why else Certainty.SURE, why=why,
        ))  # fmt: skip


def list_uses(found: Iterable[ApiUse]) -> tuple[ApiUse, ...]:
    """Return the uses by file and line, one a line and name; of each changed behaviour one."""
    uses: dict[tuple[str, int, int, str], ApiUse] = {}
    met: dict[ApiChange, set[tuple[str, int, int]]] = {}
    for use in sorted(found, key=lambda use: (use.file, use.cell, use.line, use.change.name, not use.sure)):
        place = (use.file, use.cell, use.line)
        if use.change.kind is ChangeKind.BEHAVIOUR:
            met.setdefault(use.change, set()).add(place)
            place = ("", 0, 0)
        uses.setdefault((*place, use.change.name), use)
    for key, use in uses.items():
        if (places := len(met.get(use.change, ()))) > 1:
            note = f"{use.change.note} ({places} places)"
            uses[key] = replace(use, change=replace(use.change, note=note))
    return tuple(sorted(uses.values(), key=lambda use: (use.file, use.cell, use.line, use.change.name)))
