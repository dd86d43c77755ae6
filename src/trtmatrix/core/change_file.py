"""Reads api_changes.yaml: every mistake at once, each with file, line and what was expected."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trtmatrix.core.api import Behaviour, ChangeKind
from trtmatrix.core.change_table import ChangeTable, FlagChange, Replacement
from trtmatrix.core.errors import ConfigError, shorten
from trtmatrix.core.model import Known
from trtmatrix.core.yamltext import Document, dotted, parse_yaml

ALWAYS = "any"
"""In the place of a release: what every move meets."""

NAME = r"^[A-Za-z]\w*(\.\w+)*$"
FLAG = r"^--[A-Za-z]\w*$"
RELEASE = r"^\d+\.\d+(\.\d+)*$"


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


_Text = Annotated[str, Field(min_length=1)]
_Release = Annotated[str, Field(pattern=RELEASE)]
_Known = Annotated[Known, Field(strict=False)]


class _Source(_Keys):
    title: _Text
    url: Annotated[str, Field(pattern="^(https://.+)?$")]


class _Sourced(_Keys):
    source: str
    known: _Known = Known.READ


class _Replacement(_Sourced):
    names: Annotated[list[Annotated[str, Field(pattern=NAME)]], Field(min_length=1)]
    write: _Text
    note: str = ""
    deprecated: _Release | Literal[""] = ""
    removed: _Release | Literal[""] = ""


class _Behaviour(_Sourced):
    topic: _Text
    text: _Text
    since: _Release | Literal["any"]
    names: list[Annotated[str, Field(pattern=NAME)]] = []


class _Flags(_Sourced):
    flags: Annotated[list[Annotated[str, Field(pattern=FLAG)]], Field(min_length=1)]
    kind: Literal["removed", "changed", "deprecated"]
    since: _Release
    write: str = ""
    note: str = ""


class _File(_Keys):
    schema_: Literal[1] = Field(alias="schema")
    sources: dict[str, _Source]
    replacements: list[_Replacement]
    behaviours: list[_Behaviour]
    flags: list[_Flags]


def parse_change_table(text: str, file: str) -> ChangeTable:
    """Read the table's text; :class:`ConfigError` lists every mistake with its line."""
    document = parse_yaml(text, file)
    problems = list(document.problems)
    try:
        read = _File.model_validate(document.value)
    except ValidationError as error:
        problems += [
            _line(document, item["loc"], _words(item["msg"], item["input"])) for item in error.errors()
        ]
        raise ConfigError(_in_order(problems, file)) from error
    problems += [_line(document, path, text) for path, text in _check(read)]
    if problems:
        raise ConfigError(_in_order(problems, file))
    return _table(read)


def _line(document: Document, path: tuple[str | int, ...], text: str) -> str:
    return f"{document.file}:{document.line_of(path)}: {dotted(path)}: {text}"


def _words(message: str, found: object) -> str:
    return f"{message[:1].lower()}{message[1:]} (found {shorten(found)})"


def _in_order(problems: list[str], file: str) -> list[str]:
    return sorted(
        set(problems), key=lambda line: (int(line.removeprefix(f"{file}:").partition(":")[0]), line)
    )


def _check(read: _File) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield what the entries say wrong of each other."""
    seen: dict[str, int] = {}
    parts: tuple[tuple[str, Sequence[_Sourced]], ...] = (
        ("replacements", read.replacements), ("behaviours", read.behaviours), ("flags", read.flags),
    )  # fmt: skip
    for part, entries in parts:
        for i, entry in enumerate(entries):
            if entry.source not in read.sources:
                yield (part, i, "source"), f"{entry.source!r} is not among the sources"
            elif entry.source == "recalled" and entry.known is Known.READ:
                yield (part, i, "source"), "what is recalled is not read: write known: recalled, or inferred"
    for i, entry in enumerate(read.replacements):
        for name in entry.names:
            if name in seen:
                yield (
                    ("replacements", i, "names"),
                    f"{name} has an entry already (replacements[{seen[name]}])",
                )
            seen.setdefault(name, i)
    met: dict[tuple[str, str], int] = {}
    for i, flags in enumerate(read.flags):
        for flag in flags.flags:
            if (flag, flags.since) in met:
                yield ("flags", i, "flags"), f"{flag} has an entry for {flags.since} already"
            met[flag, flags.since] = i
    used = {entry.source for _, entries in parts for entry in entries}
    for key in read.sources:
        if key not in used:
            yield ("sources", key), "is used by no entry: remove it"


def _table(read: _File) -> ChangeTable:
    """Return the table with each entry's source in words: its title, and how it is known where not read."""
    replacements: dict[str, Replacement] = {}
    for item in read.replacements:
        kept = Replacement(
            names=tuple(item.names), write=item.write, note=item.note, deprecated=item.deprecated,
            removed=item.removed, **_source(read.sources, item.source, item.known),
        )  # fmt: skip
        replacements.update(dict.fromkeys(item.names, kept))
    behaviours = tuple(
        Behaviour(
            topic=item.topic, text=item.text, since="" if item.since == ALWAYS else item.since,
            names=tuple(item.names), **_source(read.sources, item.source, item.known),
        )
        for item in read.behaviours
    )  # fmt: skip
    flags = tuple(
        FlagChange(
            flag=flag, kind=ChangeKind(item.kind), since=item.since, write=item.write, note=item.note,
            **_source(read.sources, item.source, item.known),
        )
        for item in read.flags
        for flag in item.flags
    )  # fmt: skip
    return ChangeTable(replacements=replacements, behaviours=behaviours, flags=flags)


def _source(sources: Mapping[str, _Source], key: str, known: Known) -> dict[str, str]:
    found = sources[key]
    said = "" if known in {Known.READ, Known.MEASURED} or key == "recalled" else f" ({known.value})"
    return {"source": re.sub(r"\s+", " ", found.title) + said, "url": found.url}
