"""The hand-kept table (changes.yaml): what to write instead of names, changed behaviour, trtexec's flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from trtmatrix.api.types import ApiChange, ChangeKind, Kept


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


def parse_change_table(text: str) -> ChangeTable:
    """Read the table's text, which is a part of this package."""
    data = yaml.load(text, yaml.CSafeLoader)
    parts = {
        part: tuple(_kept(entry, data["sources"]) for entry in data[part])
        for part in ("replacements", "behaviours", "flags", "older")
    }
    replacements = {name: each for each in parts.pop("replacements") for name in each.names}
    return ChangeTable(replacements=replacements, **parts)


def _kept(entry: dict[str, Any], sources: Mapping[str, Mapping[str, str]]) -> Kept:
    """Return an entry with its source in words: the title, and how it is known where not read."""
    source, known = sources[entry["source"]], entry.pop("known", "read")
    plain = known in {"read", "measured"} or entry["source"] == "recalled"
    title = " ".join(source["title"].split()) + ("" if plain else f" ({known})")
    kind = ChangeKind(entry.pop("kind", ChangeKind.BEHAVIOUR))
    names = tuple(entry.pop("names", ()))
    return Kept(**{**entry, "kind": kind, "names": names, "source": title, "url": source["url"]})
