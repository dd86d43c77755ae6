"""The API part of an upgrade report as text of at most 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby

from trtmatrix.core.api import ApiChange, ApiUse, Certainty, ChangeKind
from trtmatrix.core.upgrade.report import ApiSection

WIDTH = 100
_ORDER = (
    ChangeKind.REMOVED, ChangeKind.CHANGED, ChangeKind.DEPRECATED, ChangeKind.BEHAVIOUR, ChangeKind.ADDED,
)  # fmt: skip
_MUST = {ChangeKind.REMOVED, ChangeKind.CHANGED}
MOST_ADDED = 6
"""New names of a class that are listed; of more their number."""


def render_api_text(section: ApiSection) -> str:
    """Return what changes in the API: the uses in code where code was named, else the difference itself."""
    if section.lacking:
        return "\n".join(_wrapped(f"API: {section.lacking}", "")) + "\n"
    sources = _Sources()
    head = [*_wrapped(section.stands_in, ""), ""] if section.stands_in else []
    lines = _uses(section, sources) if section.code else _changes(section, sources)
    lines += _behaviours(section, sources)
    lines += sources.listed()
    if section.surfaces:
        lines += ["", "Read from NVIDIA's own bindings:"]
        lines += [line for source in section.surfaces for line in _wrapped(source.title, "  ")]
    return "\n".join([*head, *lines]) + "\n"


def count_uses(uses: Iterable[ApiUse]) -> tuple[int, int, int]:
    """Return how many uses must change, should, and are only possibly such uses."""
    must = should = possible = 0
    for use in uses:
        if use.certainty is Certainty.POSSIBLE:
            possible += 1
        elif use.change.kind in _MUST:
            must += 1
        else:
            should += 1
    return must, should, possible


class _Sources:
    """Numbers sources as they are named; one that many lines share is printed once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, source: str, url: str) -> str:
        """Return ``[3]`` for a source; nothing for none."""
        text = " ".join(part for part in (source, url) if part)
        return f"[{self.numbers.setdefault(text, len(self.numbers) + 1)}]" if text else ""

    def listed(self) -> list[str]:
        """Return the sources with their numbers."""
        lines = ["", "Sources"] if self.numbers else []
        for text, number in self.numbers.items():
            lines += _wrapped(f"[{number}] {text}", "  ")
        return lines


# Uses in code


def _uses(section: ApiSection, sources: _Sources) -> list[str]:
    must, should, possible = count_uses(section.uses)
    read = f"{section.files} file{'s' * (section.files != 1)} read"
    lines = [f"{must} use{'s' * (must != 1)} must change, {should} should, {possible} possible ({read})"]
    if not section.uses:
        lines.append("No use of a name that changes was found.")
    by_file = sorted(
        section.uses, key=lambda use: (use.file, _rank(use), use.cell, use.line, use.change.name)
    )
    files = [(file, list(uses)) for file, uses in groupby(by_file, key=lambda use: use.file)]
    for file, uses in sorted(files, key=lambda pair: (_rank(pair[1][0]), pair[0])):
        lines += ["", file]
        shown: set[str] = set()
        for use in uses:
            lines += _use(use, sources, explain=use.change.name not in shown)
            shown.add(use.change.name)
    if section.unread:
        lines += ["", "Not read:"]
        lines += [line for file, why in section.unread for line in _wrapped(f"{file}: {why}", "  ")]
    return lines


def _rank(use: ApiUse) -> tuple[int, int]:
    return int(use.certainty is Certainty.POSSIBLE), _ORDER.index(use.change.kind)


def _use(use: ApiUse, sources: _Sources, *, explain: bool) -> list[str]:
    """Return a use's lines; replacement and source once a file and name."""
    where = f"cell {use.cell}, line {use.line}" if use.cell else f"line {use.line}"
    kind = use.change.kind.value
    word = kind.upper() if use.certainty is Certainty.SURE else f"possibly {kind}"
    lines = [_short(f"  {where}: {word} {use.change.name}"), _short(f"      | {use.text}")]
    if use.why:
        lines += _wrapped(f"possible: {use.why}", "      ")
    return lines + (_explained(use.change, "      ", sources) if explain else [])


def _explained(change: ApiChange, indent: str, sources: _Sources) -> list[str]:
    """Return what to write instead, what else is known, and the number of the source."""
    number = sources.number(change.source, change.url)
    parts = [f"instead: {change.replacement}"] if change.replacement else []
    if change.kind is ChangeKind.CHANGED:
        parts += [f"before: {each}" for each in change.before.splitlines() if change.after]
        parts += [f"after: {each}" for each in change.after.splitlines()]
    parts += [change.note] if change.note else []
    if number:
        parts = [*parts[:-1], f"{parts[-1]} {number}"] if parts else [f"no replacement is known {number}"]
    return [line for part in parts for line in _wrapped(part, indent)]


# The difference of two surfaces


def _changes(section: ApiSection, sources: _Sources) -> list[str]:
    counts = {kind: sum(change.kind is kind for change in section.changes) for kind in _ORDER}
    told = ", ".join(f"{count} {kind.value}" for kind, count in counts.items() if count)
    lines = [f"API: {told or 'no difference'}"]
    for kind in _ORDER:
        chosen = [change for change in section.changes if change.kind is kind]
        if chosen:
            lines += ["", kind.value.upper()]
            lines += _listed(chosen, sources)
    return lines


def _listed(changes: Sequence[ApiChange], sources: _Sources) -> list[str]:
    """Return changes of one kind by class; the module's own names first, trtexec's options last."""
    lines: list[str] = []
    for owner, members in groupby(sorted(changes, key=_place), key=_owner):
        listed = list(members)
        if owner:
            lines.append(f"  {owner}")
        indent = "    " if owner else "  "
        if listed[0].kind is ChangeKind.ADDED:
            lines += _added(listed, indent)
            continue
        for change in listed:
            lines.append(_short(f"{indent}{_own_name(change)}"))
            lines += _explained(change, f"{indent}    ", sources)
    return lines


def _added(listed: Sequence[ApiChange], indent: str) -> list[str]:
    names = [_own_name(change) for change in listed]
    more = f" and {len(names) - MOST_ADDED} more" if len(names) > MOST_ADDED and indent == "    " else ""
    return _wrapped(", ".join(names[:MOST_ADDED] if more else names) + more, indent)


def _owner(change: ApiChange) -> str:
    if change.name.startswith("trtexec "):
        return "trtexec"
    return change.name.rpartition(".")[0]


def _own_name(change: ApiChange) -> str:
    return change.name.removeprefix("trtexec ") if " " in change.name else change.name.rpartition(".")[2]


def _place(change: ApiChange) -> tuple[bool, str, str]:
    return change.name.startswith("trtexec "), _owner(change), change.name


def _behaviours(section: ApiSection, sources: _Sources) -> list[str]:
    if not section.behaviours:
        return []
    lines = ["", "BEHAVIOUR that changes under the same names"]
    for each in section.behaviours:
        number = sources.number(each.source, each.url)
        lines += _wrapped(f"{each.topic} ({each.when}): {each.text} {number}", "  ")
    return lines


def _wrapped(text: str, indent: str) -> list[str]:
    """Break a text at blanks; an address that is longer stays whole."""
    return textwrap.wrap(
        " ".join(text.split()), WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _short(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"
