"""What is known of TensorRT's names at the version moved from, and which of them change."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trtmatrix.api.types import (
    ApiChange,
    ApiUse,
    Behaviour,
    Certainty,
    ChangeKind,
    Member,
    MemberKind,
    Surface,
)
from trtmatrix.api.version_tests import Const

_WORTH = [ChangeKind.REMOVED, ChangeKind.CHANGED, ChangeKind.DEPRECATED]
_FLAG = "set_flag of the builder's config"
_OLDER: Mapping[str, tuple[str, str]] = {
    "Builder.max_workspace_size": ("8.0", "IBuilderConfig.set_memory_pool_limit"),
    "Builder.build_cuda_engine": ("8.0", "Builder.build_serialized_network"),
    "Builder.fp16_mode": ("8.0", f"{_FLAG}: BuilderFlag.FP16"),
    "Builder.int8_mode": ("8.0", f"{_FLAG}: BuilderFlag.INT8"),
    "Builder.int8_calibrator": ("8.0", "IBuilderConfig.int8_calibrator, or Q/DQ nodes in the model"),
    "Builder.strict_type_constraints": ("8.0", f"{_FLAG}: BuilderFlag.OBEY_PRECISION_CONSTRAINTS"),
    "Builder.refittable": ("8.0", f"{_FLAG}: BuilderFlag.REFIT"),
    "Builder.debug_sync": ("8.0", f"{_FLAG}: BuilderFlag.DEBUG"),
    "Builder.average_find_iterations": ("8.0", "IBuilderConfig.avg_timing_iterations"),
    "Builder.min_find_iterations": ("8.0", "IBuilderConfig.avg_timing_iterations"),
    "ICudaEngine.max_workspace_size": ("8.0", "ICudaEngine.device_memory_size_v2"),
    "INetworkDefinition.add_plugin": ("8.0", "INetworkDefinition.add_plugin_v3"),
    "INetworkDefinition.add_plugin_ext": ("8.0", "INetworkDefinition.add_plugin_v3"),
    "INetworkDefinition.add_rnn": ("8.0", "INetworkDefinition.add_loop"),
    "infer": ("5.0", "the names of the module tensorrt itself"),
    "lite": ("5.0", "the names of the module tensorrt itself"),
}  # fmt: skip
"""Names that no surface has, as they went before the oldest one: since when, and what to write instead."""

COMMON = {
    "max_batch_size", "max_workspace_size", "build_engine", "execute_async", "get_shape", "get_strides",
    "get_location", "kernel_size", "window_size", "tensor_format", "add_padding", "add_plugin", "add_rnn",
    "supports_model", "dynamic_range", "create_plugin", "algorithm_selector", "fp16_mode", "int8_mode",
    "debug_sync", "strict_type_constraints", "pre_padding", "post_padding", "compute_precision",
    "reset_precision", "device_memory_size",
    "quantization_flags", "set_output_type", "add_quantize", "add_dequantize", "add_normalization",
}  # fmt: skip
"""Names that are not TensorRT's alone, besides those of a single word."""


@dataclass(frozen=True)
class Class:
    """A class of the bindings, or an enum."""

    name: str


@dataclass(frozen=True)
class Object:
    """An object of a class of the bindings; ``guessed`` where only its name says so."""

    name: str
    guessed: bool = False


@dataclass(frozen=True)
class Method:
    """A function or method of the bindings, as ``"Builder.build_engine"``."""

    dotted: str


@dataclass(frozen=True)
class Items:
    """A list, a dictionary, a generator of things; ``row`` where each place is known."""

    item: object = None
    row: tuple[object, ...] = ()


class Names:
    """Answers what a dotted name is and what happens to it. ``after`` may be unknown (empty)."""

    def __init__(
        self, before: Surface, changes: Sequence[ApiChange], behaviours: Sequence[Behaviour], after: str = ""
    ) -> None:
        """Sort the changes by name, the worst of each; what is only added is kept for ``hasattr``."""
        self.surface, self.after = before, after
        self.added = {change.name for change in changes if change.kind is ChangeKind.ADDED}
        self.changes: dict[str, ApiChange] = {}
        for change in sorted((c for c in changes if c.kind in _WORTH), key=lambda c: -_WORTH.index(c.kind)):
            self.changes[change.name] = change
        for name, (since, write) in _OLDER.items():
            if before.find(name) is None:
                self.changes[name] = ApiChange(
                    name=name, kind=ChangeKind.REMOVED, replacement=write, source="recalled",
                    note=f"gone since {since}: older than {before.version}",
                )  # fmt: skip
        self.flags = {name[8:]: c for name, c in self.changes.items() if name.startswith("trtexec ")}
        self.behaviours = {
            name: ApiChange(
                name=each.topic, kind=ChangeKind.BEHAVIOUR, note=each.text, source=each.source, url=each.url
            )
            for each in behaviours
            for name in each.names
        }
        self.owners: dict[str, list[str]] = {}
        for name in self.changes:
            owner, _, attribute = name.rpartition(".")
            if owner and " " not in name:
                self.owners.setdefault(attribute, []).append(owner)
        every = [*self.changes, *self.behaviours]
        self.words = {"__version__", *(word for name in every for word in name.split(".") if word[0] != "_")}

    def is_own(self, attribute: str) -> bool:
        """Say whether an attribute's name is TensorRT's alone."""
        return "_" in attribute.strip("_") and attribute not in COMMON and not attribute.startswith("__")

    def change_of(self, dotted: str) -> ApiChange | None:
        """Return what happens to ``"volume"`` or, through the bases, to ``"Builder.build_engine"``."""
        owner, _, attribute = dotted.rpartition(".")
        for base in self.line_of(owner) if owner else ():
            if (change := self.changes.get(f"{base}.{attribute}")) is not None:
                return change
            if base in self.surface.classes and attribute in self.surface.classes[base].members:
                whole = self.changes.get(base)
                if whole is None or whole.kind is not ChangeKind.REMOVED or attribute[0] == "_":
                    return None
                return replace(whole, name=f"{base}.{attribute}", note=f"{base} is gone")
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

    def value_of(self, dotted: str) -> object:
        """Return what ``"BuilderFlag"``, ``"Builder.build_engine"`` or ``"ICudaEngine.num_layers"`` gives."""
        owner = dotted.rpartition(".")[0]
        member = self.surface.find(dotted)
        if dotted in self.surface.classes or member is None:
            return Class(dotted) if dotted in self.surface.classes else None
        match member.kind:
            case MemberKind.METHOD | MemberKind.FUNCTION:
                return Method(dotted)
            case MemberKind.VALUE:
                return Object(owner if owner in self.surface.classes else member.returns)
            case MemberKind.CLASS:
                return Class(member.returns)
            case MemberKind.PROPERTY:
                return self._given(member)

    def result_of(self, dotted: str) -> object:
        """Return what calling a function or method gives."""
        member = self.surface.find(dotted)
        return self._given(member) if member else None

    def item_of(self, owner: str) -> object:
        """Return what indexing or iterating an object by numbers gives."""
        if owner == "INetworkDefinition":
            return Object("ILayer")
        return Const("") if owner == "ICudaEngine" else self.result_of(f"{owner}.__getitem__")

    def _given(self, member: Member) -> object:
        """Read the type that a docstring tells."""
        text = member.returns or " ".join(text.rpartition("->")[2] for text in member.signatures)
        found = [word for word in re.findall(r"\w+", text) if word in self.surface.classes]
        if not found:
            return None
        listed = re.match(r"\s*(typing\.)?(list|tuple|sequence|iterator|iterable)\b", text, re.IGNORECASE)
        return Items(Object(found[0])) if listed else Object(found[0])


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
        key = (place.file, place.cell, place.line, change.name)
        if key not in self.found or (self.found[key].why and not why):
            self.found[key] = ApiUse(
                file=place.file, line=place.line, cell=place.cell, text=place.text.strip()[:200],
                change=change, certainty=Certainty.POSSIBLE if why else Certainty.SURE, why=why,
            )  # fmt: skip

    def add_behaviour(self, place: Place, change: ApiChange) -> None:
        """Note a place where something that now behaves otherwise is used."""
        self.behaviours.setdefault(change, {})[place] = None

    def update(self, other: Findings) -> None:
        """Take over what another found."""
        self.found.update(other.found)
        for change, places in other.behaviours.items():
            self.behaviours.setdefault(change, {}).update(places)

    def listed(self) -> tuple[ApiUse, ...]:
        """Return the uses by file and line; of each changed behaviour one, which says how many there are."""
        listed = Findings(found=dict(self.found))
        for change, places in self.behaviours.items():
            more = f" ({len(places)} places)" if len(places) > 1 else ""
            first = min(places, key=lambda place: (place.file, place.cell, place.line))
            listed.add(first, replace(change, note=change.note + more))
        return tuple(use for _, use in sorted(listed.found.items(), key=lambda item: item[0]))
