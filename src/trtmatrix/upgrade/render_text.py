"""An upgrade report for a terminal: the answer on one screen, or all of the document. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from trtmatrix.suite.model import Evidence
from trtmatrix.tables.table import one_line
from trtmatrix.upgrade.document import (
    EVIDENCE,
    Block,
    Command,
    Document,
    Fold,
    Item,
    Lines,
    Row,
    Table,
    Words,
)
from trtmatrix.upgrade.report import Decision, Source, Upgrade, Weight, count

WIDTH = 100
"""Columns of the full report; that of one screen has those of the terminal, from 80 to 160."""
HEIGHT = 40
MOST_ROWS = 12
"""Rows of a table that are shown; the other formats have all."""
_MARGIN = 12
_COLOURS = {"good": "32", "warn": "33", "unsure": "33", "bad": "31"}


def render_text(document: Document, *, colour: bool = False) -> str:
    """Return the whole report; no line but an address is wider than 100 columns.

    ``colour`` adds ANSI colours, which never say more than the words do.
    """
    sources: dict[Source, None] = {}
    parts = [
        [*_wrap(f"{document.title} · {document.where}"), "", _verdict(document, colour),
         *_wrap(document.summary, 2, 2)],
        ["Why", *_show_block(document.reasons, sources)] if document.reasons.items else [],
    ]  # fmt: skip
    for section in document.sections:
        lines = [line for block in section.blocks for line in _show_block(block, sources)]
        parts += [[section.title, *lines]] if lines else []
    parts.append(list(_list_sources(sources)))
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _verdict(document: Document, colour: bool) -> str:
    line = f"{document.answer.upper()}  ({document.exit_code})"
    return f"\x1b[1;{_COLOURS[document.tone]}m{line}\x1b[0m" if colour else line


def _show_block(
    block: Block, sources: dict[Source, None], depth: int = 0, most: int | None = None
) -> Iterator[str]:
    """Yield a block's lines; ``most``: so many of its rows or sentences, for it is folded elsewhere."""
    match block:
        case Lines(items=items):
            for item in items[:most]:
                yield from _show_item(item, depth + item.depth)
        case Table(rows=rows):
            shown = MOST_ROWS if most is None else most
            if block.numbers:
                yield from _wrap(f"{block.label}:", 2 * depth + 2)
            for row in rows[:shown]:
                yield from _show_row(block, row, sources, depth)
            if len(rows) > shown:
                yield f"{'  ' * (depth + 1)}… {len(rows) - shown} more: -o report.html"
        case Fold(blocks=blocks, brief=brief):
            for inner in blocks if brief else ():
                yield from _show_block(inner, sources, depth + 1, brief)
        case Command(text=text):
            yield from _break_command(text, WIDTH, "    ") if text else ()
    sources |= dict.fromkeys(_sources_of(block))


def _show_item(item: Item, depth: int) -> Iterator[str]:
    text, indent = one_line(_join(item.words) + _evidence(item), 2000), 2 * (depth + 1)
    mark = one_line(item.mark.text) if item.mark else ""
    if mark and len(mark) < _MARGIN:
        yield from _wrap(f"{mark:<{_MARGIN}}{text}", indent, indent + _MARGIN, raw=True)
    else:
        yield from _wrap(f"{mark}: {text}" if mark else text, indent, indent + 2)


def _join(words: Words) -> str:
    """Return words as text, without what is soft."""
    return "".join(w if isinstance(w, str) else "" if w.soft else w.text for w in words).strip()


def _evidence(item: Item) -> str:
    """Return how a sentence is known and where that can be read; the last section has the addresses."""
    pages = (source for source in item.sources if not source.is_record)
    titles = list(dict.fromkeys(_brief_title(source) for source in pages))[:2]
    known = item.known if item.known != "none" or item.sources else ""
    said = ": ".join(part for part in (known, "; ".join(titles)) if part)
    return f" [{said}]" if said else ""


def _brief_title(source: Source) -> str:
    """Return a source's name without what was read there."""
    return one_line(source.title).split(": ")[0].split("; ")[0].split(", named ")[0]


def _show_row(table: Table, row: Row, sources: dict[Source, None], depth: int) -> Iterator[str]:
    """Yield a row as a sentence, and what unfolds below it."""
    head, *cells = (_join(cell) for cell in row.cells)
    if table.numbers:
        cells = [f"{name} {cell}" for name, cell in zip(table.heads[1:], cells, strict=True) if cell]
    yield from _wrap(f"{head}: {' · '.join(cell for cell in cells if cell)}", 2 * depth + 2, 2 * depth + 4)
    for fold in row.under:
        yield from _show_block(fold, sources, depth)


def _sources_of(block: Block) -> Iterator[Source]:
    match block:
        case Lines(items=items):
            yield from (source for item in items for source in item.sources)
        case Table(rows=rows):
            yield from (source for row in rows for fold in row.under for source in _sources_of(fold))
        case Fold(blocks=blocks):
            yield from (source for inner in blocks for source in _sources_of(inner))
        case Command():
            pass


def _list_sources(sources: Sequence[Source] | dict[Source, None]) -> Iterator[str]:
    """Yield where the report's lines can be read: pages by address, records by their folders."""
    pages = dict.fromkeys((_brief_title(s).split(", of ")[0], s.url) for s in sources if s.url)
    records = {"/".join(s.title.split("/")[:-3]) for s in sources if s.is_record}
    if pages or records:
        yield "Sources"
    for folder in sorted(records):
        yield f"  records: {folder}/<finding>/<case>/<run>.json"
    for title, url in pages:
        if len(title) + len(url) + 4 > WIDTH:
            yield from (f"  {title}", f"    {url}")
        else:
            yield f"  {title}: {url}"


def _wrap(text: str, first: int = 0, later: int = 2, *, width: int = WIDTH, raw: bool = False) -> list[str]:
    """Break a text into lines; ids and addresses stay whole where they fit."""
    return textwrap.wrap(
        text if raw else one_line(text, 2000), width, initial_indent=" " * first,
        subsequent_indent=" " * later, break_on_hyphens=False,
    )  # fmt: skip


def _break_command(command: str, width: int, indent: str) -> Iterator[str]:
    """Break a command at its options, and a long list at its commas, so that it can be pasted."""
    line = ""
    for number, word in enumerate(command.split(" --")):
        part = f"--{word}" if number else word
        if line and len(indent) + len(line) + len(part) + 3 > width:
            yield f"{indent}{line} \\"
            line, indent = "", f"{indent}  " if number == 1 or not indent.endswith("      ") else indent
        line = f"{line} {part}".strip()
        while len(indent) + len(line) + 2 > width and "," in line[: width - len(indent) - 1]:
            end = line.rindex(",", 0, width - len(indent) - 1) + 1
            yield f"{indent}{line[:end]}\\"
            line, indent = line[end:], ""  # a blank would end the word
    yield f"{indent}{line}"


def render_screen(upgrade: Upgrade, document: Document, width: int, *, colour: bool = False) -> str:
    """Return the answer on one screen: at most 40 lines of ``width`` columns.

    The verdict and its reasons come first, then what it rests on, then the commands that would settle it;
    the verdict comes again last.
    """
    verdict = _verdict(document, colour)
    head = [*_cut(_wrap(f"{document.title} · {document.where}", width=width), 2, width), "", verdict]
    head += _cut(_wrap(document.summary, 2, 2, width=width), 4, width)
    rests = ["", "What it rests on", *_cut(_wrap(_count_evidence(upgrade), 2, 4, width=width), 3, width)]
    if upgrade.not_looked_at:
        left = f"Not looked at: {' '.join(upgrade.not_looked_at)}"
        rests += _cut(_wrap(left, 2, 4, width=width), 2, width)
    steps = _list_steps(upgrade, width)
    last = ["", "All of it: --full, or -o report.html (.md, .json)", verdict]
    room = HEIGHT - sum(map(len, (head, rests, steps, last)))
    return "\n".join([*head, *_list_reasons(document, width, room), *rests, *steps, *last]) + "\n"


def _cut(lines: list[str], most: int, width: int) -> list[str]:
    """Return the first lines, the last of which says where it was cut."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], lines[most - 1][: width - 2] + " …"]


def _list_reasons(document: Document, width: int, room: int) -> list[str]:
    told = []
    for item in document.reasons.items:
        mark = item.mark.text if item.mark else ""
        mark = "work-around" if mark == Weight.WORKAROUND.value else mark
        text = one_line(_join(item.words) + (f" [{item.known}]" if item.known != "none" else ""), 2000)
        lines = _wrap(f"{mark:<{_MARGIN}}{text}", 2, 2 + _MARGIN, width=width, raw=True)
        told.append(_cut(lines, 2, width))
    return _fill("Why", told, room, "more reason")


def _fill(title: str, entries: list[list[str]], room: int, rest: str) -> list[str]:
    """Return as many entries below a title as there is room for, and how many are left."""
    lines = ["", title] if entries else []
    for number, entry in enumerate(entries):
        left = len(entries) - number
        if len(lines) + len(entry) > room - (left > 1):
            return [*lines, f"  … {count(left, rest)}: --full"]
        lines += entry
    return lines


def _count_evidence(upgrade: Upgrade) -> str:
    """Say how the cases are known at both versions, and what of the user's own was looked at."""
    lines = [line for finding in upgrade.findings for line in finding.cases]
    said = []
    for version, sides in (
        (upgrade.before, [line.before for line in lines]), (upgrade.after, [line.after for line in lines]),
    ):  # fmt: skip
        kinds = [side.evidence for side in sides]
        counts = ", ".join(f"{kinds.count(kind)} {EVIDENCE[kind]}" for kind in Evidence if kind in kinds)
        said.append(f"{count(len(sides), 'case')} at {version}: {counts or 'no evidence'}")
    model = (
        f"your model {upgrade.model.name}: {upgrade.model.floor}" if upgrade.model else "no model of yours"
    )
    files = f"{count(upgrade.api.files, 'file')} of your code" if upgrade.api.code else "no code of yours"
    return "; ".join([*said, model, files]) + "."


def _list_steps(upgrade: Upgrade, width: int, room: int = 15) -> list[str]:
    """Return the commands that would settle it, as many as there is room for; of a go what to do first."""
    go = upgrade.decision in {Decision.GO, Decision.GO_WITH_WORKAROUNDS}
    if not upgrade.lacking:
        rebuild = [_wrap(line.text, 2, 4, width=width) for line in upgrade.engines[: 1 if go else 0]]
        return _fill("Before you move", rebuild, room, "more thing")
    last = next((n for n, item in enumerate(upgrade.lacking, 1) if item.whole), len(upgrade.lacking))
    told = []
    for item in upgrade.lacking[:last]:
        command = _break_command(item.command, width, "    ") if item.command else ()
        told.append([*_cut(_wrap(item.what, 2, 4, width=width), 2, width), *command])
    return _fill("To settle it", told, room, "more command")
