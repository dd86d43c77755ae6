"""What changes for code as text: in full, and as a part of an upgrade report."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from trtmatrix.api.types import WORST_FIRST, ApiChange, ApiSection, ApiUse, Behaviour, ChangeKind

WIDTH = 98
"""Columns; an upgrade report indents them by two."""
BY_NAME = "searched by name only"
"""How the scan begins to say that files of a language were not read."""
Line = tuple[int, str]
"""How far a line is indented, and its text, of any length."""


def count_uses(section: ApiSection) -> str:
    """Say how many uses must change, should, and are only possible; never 0 where C++ was not read."""
    named, must = named_uses(section), len(section.must_change)
    possible = sum(not use.sure for use in named)
    unread = [file for file, why in section.unread if why.startswith(BY_NAME)]
    head = f"{must} use{'s' * (must != 1)} must change"
    if unread and not must:
        head = "In what was read no use must change"
    tail = "".join(f"; {file} {BY_NAME}" for file in unread)
    files = f"{section.files} file{'s' * (section.files != 1)} looked at"
    return f"{head}, {len(named) - must - possible} should, {possible} possible ({files}{tail})"


def count_changes(changes: Iterable[ApiChange]) -> str:
    """Return how many names are removed, changed, deprecated and added."""
    kinds = [change.kind for change in changes]
    counted = ((kinds.count(kind), kind.value) for kind in WORST_FIRST)
    return ", ".join(f"{count} {kind}" for count, kind in counted if count) or "no difference"


def named_uses(section: ApiSection) -> list[ApiUse]:
    """Return the uses of names that change, the worst first; what changes behaviour is told apart."""
    uses = (use for use in section.uses if use.change.kind is not ChangeKind.BEHAVIOUR)
    return sorted(uses, key=lambda use: use.rank)


def say_kind(use: ApiUse) -> str:
    """Say what happens to a use, and whether that is sure."""
    return f"{'' if use.sure else 'possibly '}{use.change.kind.value}"


def render_api_text(section: ApiSection) -> str:
    """Return what changes in the API as text."""
    return "\n".join(_wrap(tell_api(section))) + "\n"


def tell_api(section: ApiSection) -> list[Line]:
    """Return what changes in the API: the uses in code where code was named, else the difference itself."""
    if section.lacking:
        return [(0, f"No difference to show: {section.lacking}")]
    sources: dict[str, int] = {}
    lines = [*(_uses(section, sources) if section.code else _changes(section, sources))]
    found = [
        (each, [use for use in section.uses if use.change == each.change]) for each in section.behaviours
    ]
    met = [(each, places) for each, places in found if places or not each.names or not section.code]
    lines += [(0, ""), (0, "BEHAVIOUR that changes under the same names")] if met else []
    for each, places in met:
        where = f" First in {places[0].file}, {_place(places[0])}." if places else ""
        lines += [(2, f"{each.topic} ({each.when}): {each.text}{where}{_number(each, sources)}")]
    for title, texts in (
        ("Not read, or not all of it:", [f"{file}: {why}" for file, why in section.unread]),
        ("Sources", [f"[{number}] {text}" for text, number in sources.items()]),
        ("Read from NVIDIA's own bindings:", section.surfaces),
    ):
        lines += [(0, ""), (0, title), *((2, text) for text in texts)] if texts else []
    return lines


def _uses(section: ApiSection, sources: dict[str, int]) -> Iterator[Line]:
    """Yield the uses by file, the file with the worst first; all that is known of a name once a report."""
    yield 0, count_uses(section)
    named, told = named_uses(section), set[ApiChange]()
    if not named:
        yield 0, "No use of a name that changes was found."
    files: dict[str, dict[tuple[ApiChange, str, str], list[ApiUse]]] = {}
    for use in named:
        alike = files.setdefault(use.file, {})
        alike.setdefault((use.change, say_kind(use), use.why), []).append(use)
    for file, alike in files.items():
        yield from ((0, ""), (0, file))
        for (change, kind, why), uses in alike.items():
            lines = [str(use.line) for use in uses if not use.cell]
            plain = [f"line{'s' * (len(lines) > 1)} {', '.join(lines)}"] if lines else []
            where = ", ".join([*plain, *(_place(use) for use in uses if use.cell)])
            yield 2, f"{where}: {kind.upper() if uses[0].sure else kind} {change.name}"
            shown = uses[0].text
            yield 6, f"| {shown if len(shown) <= WIDTH - 8 else shown[: WIDTH - 9] + '…'}"
            if why:
                yield 6, f"possible: {why}"
            if change not in told:
                yield from _explain(change, sources)
            elif change.replacement:
                yield 6, f"instead: {change.replacement}"
            told.add(change)


def _changes(section: ApiSection, sources: dict[str, int]) -> Iterator[Line]:
    """Yield the difference by kind, names in their order; new names are only listed."""
    yield 0, f"API: {count_changes(section.changes)}"
    for kind in WORST_FIRST:
        mine = sorted((c for c in section.changes if c.kind is kind), key=lambda change: change.name)
        if mine:
            yield from ((0, ""), (0, kind.value.upper()))
        if kind is ChangeKind.ADDED:
            yield 2, ", ".join(change.name for change in mine)
            continue
        for change in mine:
            yield 2, change.name
            yield from _explain(change, sources)


def _explain(change: ApiChange, sources: dict[str, int]) -> Iterator[Line]:
    """Yield what to write instead, what else is known, and the number of the source."""
    parts = [f"instead: {change.replacement}"] if change.replacement else []
    if change.kind is ChangeKind.CHANGED:
        parts += [f"before: {each}" for each in dict.fromkeys(change.before.splitlines()) if change.after]
        parts += [f"after: {each}" for each in dict.fromkeys(change.after.splitlines())]
    parts += [change.note] if change.note else []
    if number := _number(change, sources):
        parts = [*parts[:-1], f"{parts[-1] if parts else 'no replacement is known'}{number}"]
    yield from ((6, part) for part in parts)


def _number(told: ApiChange | Behaviour, sources: dict[str, int]) -> str:
    """Return `` [3]`` for the source of what is told, which is listed once; nothing for none."""
    text = f"{told.source} {told.url}".strip()
    return f" [{sources.setdefault(text, len(sources) + 1)}]" if text else ""


def _place(use: ApiUse) -> str:
    return f"cell {use.cell}, line {use.line}" if use.cell else f"line {use.line}"


def _wrap(lines: Iterable[Line]) -> list[str]:
    """Break texts at blanks, code excepted; an address that is longer stays whole."""
    wrapped: list[str] = []
    for depth, text in lines:
        wrapped += textwrap.wrap(
            text if text.startswith("| ") else " ".join(text.split()), WIDTH,
            initial_indent=" " * depth, subsequent_indent=" " * (depth + 2),
            break_long_words=False, break_on_hyphens=False,
        ) or [""]  # fmt: skip
    return wrapped
