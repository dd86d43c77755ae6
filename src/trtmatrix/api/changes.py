"""The hand-kept table (changes.yaml): what to write instead of names, changed behaviour, trtexec's flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trtmatrix.api.types import ApiChange, Behaviour, ChangeKind
from trtmatrix.common.errors import ConfigError
from trtmatrix.suite.keys import parse_yaml


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """What to write instead of names. ``deprecated`` and ``removed`` are releases, or nothing.

    They are kept where NVIDIA's documents say them and the bindings' docstrings do not; ``source`` is of what
    ``write`` says. Of trtexec's options, which no surface has, ``kind`` says what happens to them ``since``.
    """

    names: tuple[str, ...] = ()
    write: str = ""
    note: str = ""
    deprecated: str = ""
    removed: str = ""
    kind: ChangeKind | None = None
    since: str = ""
    source: str = ""
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class ChangeTable:
    """All of the table; ``replacements`` by each of their names, ``older`` is of what no surface has."""

    replacements: Mapping[str, Replacement] = field(default_factory=dict)
    behaviours: tuple[Behaviour, ...] = ()
    flags: tuple[Replacement, ...] = ()
    older: tuple[Replacement, ...] = ()

    def of(self, name: str) -> Replacement:
        """Return what is kept of a name, or else of the class that it is a member of; maybe nothing."""
        return self.replacements.get(name) or self.replacements.get(name.rpartition(".")[0]) or Replacement()

    def fill(self, change: ApiChange) -> ApiChange:
        """Return a change with what is kept of its name."""
        kept, notes = self.of(change.name), (change.note, self.of(change.name).note)
        return replace(
            change, replacement=kept.write, url=kept.url, note="; ".join(filter(None, notes)),
            source="; ".join(filter(None, (change.source, kept.source))),
        )  # fmt: skip


def parse_change_table(text: str, file: str) -> ChangeTable:
    """Read the table's text; :class:`ConfigError` where it has another shape."""
    document = parse_yaml(text, file)
    if document.problems:
        raise ConfigError(list(document.problems))
    data = document.value

    def cited(entry: dict[str, Any]) -> dict[str, Any]:
        """Return an entry with its source in words: the title, and how it is known where not read."""
        key, known = entry["source"], entry.pop("known", "read")
        plain = known in {"read", "measured"} or key == "recalled"
        title = " ".join(data["sources"][key]["title"].split()) + ("" if plain else f" ({known})")
        entry |= {name: tuple(value) for name, value in entry.items() if isinstance(value, list)}
        entry |= {"kind": ChangeKind(entry["kind"])} if "kind" in entry else {}
        return {**entry, "source": title, "url": data["sources"][key]["url"]}

    try:
        kept, flags, older = (
            tuple(Replacement(**cited(entry)) for entry in data[part])
            for part in ("replacements", "flags", "older")
        )
        return ChangeTable(
            replacements={name: each for each in kept for name in each.names},
            behaviours=tuple(Behaviour(**cited(entry)) for entry in data["behaviours"]),
            flags=flags, older=older,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError([f"{file}:1: the table of changes cannot be read: {error!r}"]) from error
