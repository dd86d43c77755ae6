"""What is known of TensorRT's names at the version moved from, which of them change, and the uses found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trtmatrix.api.types import (
    ApiChange,
    ApiUse,
    Behaviour,
    Certainty,
    ChangeKind,
    Surface,
)

_WORTH = [ChangeKind.REMOVED, ChangeKind.CHANGED, ChangeKind.DEPRECATED]
COMMON = {
    "max_batch_size", "max_workspace_size", "build_engine", "execute_async", "get_shape", "get_strides",
    "get_location", "kernel_size", "window_size", "tensor_format", "add_padding", "add_plugin", "add_rnn",
    "supports_model", "dynamic_range", "create_plugin", "algorithm_selector", "fp16_mode", "int8_mode",
    "debug_sync", "strict_type_constraints", "pre_padding", "post_padding", "compute_precision",
    "reset_precision", "device_memory_size", "quantization_flags", "set_output_type", "add_quantize",
    "add_dequantize", "add_normalization",
}  # fmt: skip
"""Names that other libraries have, too, besides those of a single word."""


class Names:
    """Answers what a dotted name is and what happens to it. ``after`` may be unknown (empty)."""

    def __init__(
        self, before: Surface, changes: Sequence[ApiChange], behaviours: Sequence[Behaviour], after: str = ""
    ) -> None:
        """Sort the changes by name, the worst of each; what is only added is kept for ``hasattr``."""
        self.surface, self.after, self.ends = before, after, (before.version, after)
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
        self.parsers = [name for name in before.classes if name.endswith("Parser") and self._is_gone(name)]
        self.members = {name for known in before.classes.values() for name in known.members}
        self.members |= {name.rpartition(".")[2] for name in [*self.added, *before.classes, *before.names]}
        every = [*self.changes, *self.behaviours]
        self.words = {"__version__", *(word for name in every for word in name.split(".") if word[0] != "_")}
        self.words.add("[")  # behind a name that ends in engine
        self.long_words = {word for word in self.words if "_" in word.strip("_")}

    def _is_gone(self, name: str) -> bool:
        change = self.changes.get(name)
        return change is not None and change.kind is ChangeKind.REMOVED

    def is_own(self, attribute: str) -> bool:
        """Say whether an attribute's name is TensorRT's alone."""
        return "_" in attribute.strip("_") and attribute not in COMMON and not attribute.startswith("__")

    def owners_of(self, attribute: str, role: str) -> list[str]:
        """Return the classes whose member of that name changes; another parser's where a parser is meant."""
        gone = [name for name in self.parsers if attribute in self.surface.classes[name].members]
        return self.owners.get(attribute, []) or (gone if role == "OnnxParser" else [])

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
class Place:
    """Where a use stands: ``line`` and ``cell`` from 1 (0: no notebook), ``text`` the line itself."""

    file: str
    line: int
    cell: int = 0
    text: str = ""


@dataclass
class Findings:
    """Collects uses, one a line and name: a sure one displaces one that is only possible."""

    found: dict[tuple[str, int, int, str], ApiUse] = field(default_factory=dict)
    behaviours: dict[ApiChange, dict[Place, None]] = field(default_factory=dict)

    def add(self, place: Place, change: ApiChange, why: str = "") -> None:
        """Note a use; ``why`` says why it is only possible (empty: it is sure)."""
        if change.kind is ChangeKind.BEHAVIOUR:
            self.behaviours.setdefault(change, {})[place] = None
            return
        key = (place.file, place.cell, place.line, change.name)
        if key not in self.found or (self.found[key].why and not why):
            self.found[key] = ApiUse(
                file=place.file, line=place.line, cell=place.cell, text=place.text.strip()[:200],
                change=change, certainty=Certainty.POSSIBLE if why else Certainty.SURE, why=why,
            )  # fmt: skip

    def update(self, other: Findings) -> None:
        """Take over what another found."""
        self.found.update(other.found)
        for change, places in other.behaviours.items():
            self.behaviours.setdefault(change, {}).update(places)

    def listed(self) -> tuple[ApiUse, ...]:
        """Return the uses by file and line; of each changed behaviour one, which says how many there are."""
        uses = list(self.found.values())
        for change, places in self.behaviours.items():
            more = f" ({len(places)} places)" if len(places) > 1 else ""
            first = min(places, key=lambda place: (place.file, place.cell, place.line))
            uses.append(
                ApiUse(
                    file=first.file, line=first.line, cell=first.cell, text=first.text.strip()[:200],
                    change=replace(change, note=change.note + more), certainty=Certainty.SURE,
                )
            )  # fmt: skip
        return tuple(sorted(uses, key=lambda use: (use.file, use.cell, use.line, use.change.name)))
