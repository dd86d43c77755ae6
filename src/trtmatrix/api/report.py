"""What changes for code as text, and as SARIF 2.1.0, which code scanning shows in a pull request."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from functools import partial
from posixpath import join, normpath, relpath
from typing import Any
from urllib.parse import quote

from trtmatrix import __version__
from trtmatrix.api.types import WORST_FIRST, ApiChange, ApiSection, ApiUse, ChangeKind
from trtmatrix.common.text import one_line, printable, to_json

WIDTH = 98
"""Columns; an upgrade report indents them by two."""
_quote = partial(quote, errors="surrogateescape")  # a file's name may be no UTF-8
BY_NAME = "searched by name only"
"""How the scan begins to say that files of a language were not read."""
LEFT_OUT = "left out"
"""How it begins to say that a folder is no code of the user's."""
Line = tuple[int, str]
"""How far a line is indented, and its text, of any length."""

SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"
"""The folder that the command ran in; code scanning takes it for the repository's root."""


def count_uses(section: ApiSection) -> str:
    """Say how many uses must change, should, and are only possible; never 0 where code was not read."""
    named, must = named_uses(section), len(section.must_change)
    possible = sum(not use.sure for use in named)
    unread = [file for file, why in section.unread if why.startswith(BY_NAME)]
    head = f"{must} use{'s' * (must != 1)} must change"
    if not must and not all(why.startswith(LEFT_OUT) for _, why in section.unread):
        head += " in what was read"
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
    """Return what changes in the API as text: the uses in code where code was named, else the difference.

    Texts are broken at blanks, code excepted; an address that is longer stays whole.
    """
    sources: dict[str, int] = {}
    lines = [*(_uses(section, sources) if section.code else _changes(section, sources))]
    if section.lacking:
        lines = [(0, f"No difference to show: {section.lacking}")]
    found = [(each, [use for use in section.uses if use.change == each]) for each in section.behaviours]
    met = [(each, places) for each, places in found if places or not each.names or not section.code]
    lines += [(0, ""), (0, "BEHAVIOUR that changes under the same names")] if met else []
    for each, places in met:
        where = f" First in {places[0].file}, {_place(places[0])}." if places else ""
        when = f"since {each.since}" if each.since else "at every move"
        lines += [(2, f"{each.name} ({when}): {each.note}{where}{_number(each, sources)}")]
    for title, texts in (
        ("Not read, or not all of it:", [f"{file}: {why}" for file, why in section.unread]),
        ("Sources", [f"[{number}] {text}" for text, number in sources.items()]),
        ("Read from NVIDIA's own bindings:", section.surfaces),
    ):
        lines += [(0, ""), (0, title), *((2, text) for text in texts)] if texts else []
    wrapped = list[str]()
    for depth, text in lines:
        wrapped += textwrap.wrap(
            text if text.startswith("| ") else " ".join(text.split()), WIDTH,
            initial_indent=" " * depth, subsequent_indent=" " * (depth + 2),
            break_long_words=False, break_on_hyphens=False,
        ) or [""]  # fmt: skip
    return printable("\n".join(wrapped)) + "\n"


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
        if mine and kind is ChangeKind.ADDED:
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


def _number(told: ApiChange, sources: dict[str, int]) -> str:
    """Return `` [3]`` for the source of what is told, which is listed once; nothing for none."""
    text = f"{told.source} {told.url}".strip()
    return f" [{sources.setdefault(text, len(sources) + 1)}]" if text else ""


def _place(use: ApiUse) -> str:
    return f"cell {use.cell}, line {use.line}" if use.cell else f"line {use.line}"


def render_sarif(section: ApiSection, before: str, after: str, root: str) -> str:
    """Return a log with a rule a changed name; ``root``: the folder that the command ran in, absolute.

    What must change is an error, changed behaviour a note, all else a warning; what was not read is a
    notification. A line of a notebook's cell is no line of its file: there the first line stands, and the
    cell in the message. Addresses are relative to the root; those of files outside of it are whole.
    """
    rules = dict[str, dict[str, Any]]()
    for change in (use.change for use in section.uses):
        instead = f"Instead: {change.replacement}. " if change.replacement else ""
        rules[_id(change)] = {
            "id": _id(change), "shortDescription": {"text": f"{change.name}: {change.kind.value}"},
            "help": {"text": f"{instead}{change.note}".strip() or change.source or change.name},
            **({"helpUri": change.url} if change.url else {}),
        }  # fmt: skip
    index = list(rules)
    results = [
        {**_result(use, _locate(use.file, root)), "ruleIndex": index.index(_id(use.change))}
        for use in sorted(section.uses, key=lambda use: use.rank)
    ]
    unread = []
    for file, why in section.unread:
        where = {"physicalLocation": {"artifactLocation": _locate(file, root)}}
        located = {} if why.startswith(BY_NAME) else {"locations": [where]}
        unread.append({"level": "warning", "message": {"text": one_line(f"{file}: {why}", 1000)}, **located})
    run = {
        "tool": {"driver": {"name": "trtmatrix", "version": __version__, "rules": list(rules.values())}},
        "automationDetails": {"id": f"TensorRT {before} to {after}"},
        "invocations": [{"executionSuccessful": not section.lacking, "toolExecutionNotifications": unread}],
        "originalUriBaseIds": {ROOT: {"uri": f"file://{_quote(root)}/"}},
        "results": results,
    }
    return to_json({"$schema": SARIF, "version": "2.1.0", "runs": [run]})


def _id(change: ApiChange) -> str:
    return f"{change.kind.value}/{change.name}"


def _result(use: ApiUse, artifact: dict[str, str]) -> dict[str, Any]:
    change, cell = use.change, f"Cell {use.cell}, line {use.line}: " if use.cell else ""
    text = "; ".join(filter(None, (f"{cell}{change.name}: {say_kind(use)}", use.why, change.note)))
    text += f". Instead: {change.replacement}" if change.replacement else ""
    minor = "note" if change.kind is ChangeKind.BEHAVIOUR else "warning"
    region = {"startLine": 1 if use.cell else use.line, "snippet": {"text": use.text}}
    return {
        "ruleId": _id(change), "level": "error" if use.must_change else minor, "message": {"text": text},
        "locations": [{"physicalLocation": {"artifactLocation": artifact, "region": region}}],
    }  # fmt: skip


def _locate(file: str, root: str) -> dict[str, str]:
    """Return where a file is, by its path from the root where it lies below."""
    whole = normpath(join(root, file))
    if not whole.startswith(f"{normpath(root)}/"):
        return {"uri": f"file://{_quote(whole)}"}
    return {"uri": _quote(relpath(whole, root)), "uriBaseId": ROOT}
