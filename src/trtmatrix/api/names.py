"""What the scan looks for, by name, and the uses that it notes."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trtmatrix.api.types import (
    WORST_FIRST,
    ApiChange,
    ApiClass,
    ApiUse,
    Behaviour,
    Certainty,
    ChangeKind,
    Surface,
)


class Names:
    """What happens to each name in a move, the worst of each; ``hints``: what is kept in scan.yaml."""

    def __init__(
        self, before: Surface, after: Surface, changes: Sequence[ApiChange],
        behaviours: Sequence[Behaviour], hints: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.surface, self.target, self.after, self.hints = before, after, after.version, hints
        ruled = sorted(changes, key=lambda change: -WORST_FIRST.index(change.kind))
        self.changes = {c.name: c for c in ruled if c.kind is not ChangeKind.ADDED}
        self.flags = {name[8:]: c for name, c in self.changes.items() if name.startswith("trtexec ")}
        told, lost = (
            dict[str, ApiChange](),
            dict[str, ApiChange](),
        )  # what behaves otherwise; goes with its class
        for each in behaviours:
            change = ApiChange(
                name=each.topic, kind=ChangeKind.BEHAVIOUR, note=each.text, source=each.source, url=each.url
            )
            told |= dict.fromkeys(each.names, change)
        for gone, known in before.classes.items():
            if gone in self.changes and self.changes[gone].kind is ChangeKind.REMOVED:
                for dotted in (f"{gone}.{member}" for member in known.members if member[0] != "_"):
                    lost[dotted] = replace(self.changes[gone], name=dotted, note=f"{gone} is gone")
        self.tables = (self.changes, lost, told)
        self.owners = defaultdict[str, list[str]](list)  # the classes of each member that changes
        for owner, _, attribute in (name.rpartition(".") for name in self.changes if " " not in name):
            self.owners[attribute] += [owner] * bool(owner)
        self.sought = {*self.owners, *(name.rpartition(".")[2] for name in told)}
        self.words = self.sought | {name.rpartition(".")[2] for name in lost}
        self.alone = {word for word in self.sought if self.is_own(word) or word[0].isupper()}
        self._roles = re.compile("|".join(f"(?P<{role}>{form})" for role, form in hints["roles"].items()))

    def is_own(self, attribute: str) -> bool:
        """Whether TensorRT alone has a member of that name."""
        return "_" in attribute.strip("_") and attribute not in self.hints["common"] and attribute[:2] != "__"

    def find_role(self, name: str) -> str:
        """Return the class of what a name such as ``trt_engine2`` says that it holds, or nothing."""
        found = self._roles.fullmatch(name.lower().strip("_0123456789"))
        return (found and found.lastgroup) or ""

    def changes_of(self, dotted: str) -> list[ApiChange]:
        """Return what happens to ``"volume"`` or, through the bases, to ``"Builder.build_engine"``."""
        owner, _, attribute = dotted.rpartition(".")
        line = [owner]
        for base in line:  # the nearest that has it decides
            whole = f"{base}.{attribute}" if owner else dotted
            known = self.surface.classes.get(base, ApiClass())
            found = [each[whole] for each in self.tables if whole in each]
            if found or attribute in known.members:
                return found
            line += [each for each in known.bases if each not in line]
        return []


@dataclass(frozen=True, kw_only=True)
class Page:
    """A file that is scanned; of a notebook the Python in it. ``found`` takes the uses of all files."""

    file: str
    code: str
    lines: Sequence[str]
    cells: Sequence[tuple[int, int]] = ()  # of a notebook, each line's cell and line in it
    found: list[ApiUse] = field(default_factory=list)

    def note(self, line: int, change: ApiChange, why: str = "") -> None:
        """Note a use; ``why`` says why it is only possible (empty: it is sure)."""
        cell, inner = self.cells[line - 1] if self.cells else (0, line)
        self.found.append(ApiUse(
            file=self.file, line=inner, cell=cell, text=self.lines[line - 1].strip()[:200], change=change,
            certainty=Certainty.POSSIBLE if why else Certainty.SURE, why=why,
        ))  # fmt: skip


def dotted_name(node: ast.AST) -> str:
    """Return ``a.b.c`` of names and attributes, with what is called or indexed left out."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{dotted_name(value)}.{name}"
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return dotted_name(inner)
    return ""
