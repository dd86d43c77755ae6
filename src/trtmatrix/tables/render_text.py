"""Tables as plain text for a terminal: narrow enough to read, right also in black and white."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from tabulate import tabulate

from trtmatrix.judge.entry import Entry
from trtmatrix.judge.words import cell_text, has_evidence, legend
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import Verdict
from trtmatrix.tables.board_kinds import kind_lines
from trtmatrix.tables.remarks import find_remarks
from trtmatrix.tables.summary import count_lines, count_products
from trtmatrix.tables.table import Row, Section, Table, fold_line, make_tables, one_line
from trtmatrix.tables.twins import TwinRow

_INDENT = "  "
_LEAST_WIDTH = 60
_CELL_WIDTH = 28  # of the widest column that a block must have room for
_RED, _GREEN, _BOLD, _RESET = "31", "32", "1", "\x1b[0m"


def render_text(
    entries: Sequence[Entry], *, width: int = 100, colour: bool = False, all_rows: bool = False
) -> str:
    """Return the tables, a legend, and what there is to say about them.

    No line is wider than ``width`` (60 at least). ``colour`` adds ANSI colours, which never say
    more than the words do. Rows without any evidence are folded, unless ``all_rows``.
    """
    width = max(width, _LEAST_WIDTH)
    tables = make_tables(entries, all_rows=all_rows)
    parts = ["\n".join(_render_table(table, width, colour, fold=not all_rows)) for table in tables]
    parts.append("\n".join(_legend(tables, width)))
    parts += ["\n".join(lines) for lines in _remarks(entries, width)]
    parts.append("\n".join(_counts(entries, width)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _render_table(table: Table, width: int, colour: bool, *, fold: bool) -> Iterator[str]:
    yield from _wrap(one_line(table.title), width)
    for line in kind_lines(table.boards):
        yield from _wrap(line, width, _INDENT)
    blocks = _split(table, width)
    for number, columns in enumerate(blocks):
        if number:
            yield ""
        yield from _render_block(table, columns, width, colour, first=not number, fold=fold)


def _render_block(
    table: Table, columns: Sequence[int], width: int, colour: bool, *, first: bool, fold: bool
) -> Iterator[str]:
    """Lay the rows of every repro out at once, so that columns align, then weave titles in.

    Rows of which nothing is known at a block's versions are folded there too.
    """
    kept = {
        section.repro.id: [row for row in section.rows if not fold or _known(row, columns)]
        for section in table.sections
    }
    lines = {
        section.repro.id: list(_lines(section, kept[section.repro.id], columns, width, colour))
        for section in table.sections
    }
    body = [line for mine in lines.values() for line in mine]
    headers = _headers([table.columns[column] for column in columns]) if body else []
    text = tabulate([*headers, *body], tablefmt="plain", disable_numparse=True).splitlines()
    laid = iter([_INDENT + line.rstrip() for line in text])
    yield from (next(laid) for _ in headers)
    for section in table.sections:
        shown = kept[section.repro.id]
        if first or lines[section.repro.id]:
            yield from _heading(section, width, first=first)
        yield from (next(laid) for _ in lines[section.repro.id])
        hidden = len(section.rows) + len(section.folded) - len(shown)
        if hidden and (first or shown):
            yield _INDENT + fold_line(hidden, more=bool(shown))


def _lines(
    section: Section, rows: Sequence[Row], columns: Sequence[int], width: int, colour: bool
) -> Iterator[list[str]]:
    """Yield a label with a block's cells for each row, then for the finding's own figures."""
    for row in rows:
        yield [_label(row.label, width), *(_cell(row.entries[column], colour) for column in columns)]
    for twin in section.twins:
        texts = [_shorten(twin.texts[column], _CELL_WIDTH) for column in columns]
        if any(texts):
            yield [_label(twin.label, width), *texts]


def _known(row: Row, columns: Sequence[int]) -> bool:
    return any(has_evidence(row.entries[column]) for column in columns)


def _heading(section: Section, width: int, *, first: bool) -> Iterator[str]:
    repro = section.repro
    title = one_line(f"{repro.id} — {repro.title} · {repro.upstream}")
    if not first or not section.rows:
        yield from _wrap(title, width)
    elif len(title) + 3 + len(section.figure) <= width:
        yield title + section.figure.rjust(width - len(title))
    else:
        yield from _wrap(title, width)
        yield from _wrap(section.figure, width, _INDENT)


def _headers(versions: Sequence[Version]) -> list[list[str]]:
    """Return the columns' names; a product stands once, above the releases that are its own."""
    names = [_header(version) for version in versions]
    before = ["", *(product for product, _ in names)]
    products = [product if product != last else "" for (product, _), last in zip(names, before, strict=False)]
    releases = [release for _, release in names]
    return [["", *products], ["", *releases]] if any(products) else [["", *releases]]


def _header(version: Version) -> tuple[str, str]:
    """Return a column's name in two parts: the product, where it is named, and the release."""
    prefix = f"{version.product.value}-"
    product = prefix[:-1] if version.name.startswith(prefix) else ""
    return product, _shorten(version.name.removeprefix(prefix), _CELL_WIDTH)


def _label(text: str, width: int) -> str:
    return _shorten(one_line(text), width - _CELL_WIDTH - 2 * len(_INDENT))


def _shorten(text: str, limit: int) -> str:
    """Leave out the middle of a text that is too long."""
    if len(text) <= limit:
        return text
    end = limit // 2
    return text[: limit - end - 1] + "…" + text[-end:]


def _cell(entry: Entry | None, colour: bool) -> str:
    text = _shorten(one_line(cell_text(entry)), _CELL_WIDTH)
    if not colour or entry is None or entry.outcome is None:
        return text
    colours = {Verdict.PASS: _GREEN, Verdict.FAIL: _RED}
    codes = [_BOLD] if entry.surprise else []
    codes += [colours[entry.outcome.verdict]] if entry.outcome.verdict in colours else []
    return f"\x1b[{';'.join(codes)}m{text}{_RESET}" if codes else text


def _split(table: Table, width: int) -> list[list[int]]:
    """Split the columns into as few blocks as fit, of about the same width."""
    rows = [row for section in table.sections for row in section.rows]
    twins = [twin for section in table.sections for twin in section.twins]
    labels = [_label(text, width) for text in (*(row.label for row in rows), *(twin.label for twin in twins))]
    room = width - len(_INDENT) - max(map(len, labels), default=0)
    widths = list(_widths(table, rows, twins))
    fewest = _pack(widths, room)
    tried = (_pack(widths, less) for less in range(max(max(both) for both in widths), room))
    return next((blocks for blocks in tried if len(blocks) == len(fewest)), fewest)


def _widths(table: Table, rows: Sequence[Row], twins: Sequence[TwinRow]) -> Iterator[tuple[int, int]]:
    """Yield each column's width at the start of a block and after the column before it."""
    last = ""
    for column, version in enumerate(table.columns):
        product, release = _header(version)
        texts = [release, *(_cell(row.entries[column], colour=False) for row in rows)]
        texts += [_shorten(twin.texts[column], _CELL_WIDTH) for twin in twins]
        least = max(len(text) for text in texts)
        full = max(least, len(product))
        yield 2 + full, 2 + (least if product == last else full)
        last = product


def _pack(widths: Sequence[tuple[int, int]], room: int) -> list[list[int]]:
    """Fill blocks one after another; every block has a column at least."""
    blocks: list[list[int]] = [[]]
    used = 0
    for column, (first, later) in enumerate(widths):
        if blocks[-1] and used + later > room:
            blocks.append([])
            used = 0
        used += later if blocks[-1] else first
        blocks[-1].append(column)
    return blocks


def _legend(tables: Sequence[Table], width: int) -> Iterator[str]:
    """Lay the legend's entries side by side, none broken across lines."""
    line = ""
    for mark, meaning in legend(entry for table in tables for entry in table.shown()):
        item = f"{mark}: {meaning}"
        if line and len(line) + 3 + len(item) > width:
            yield from _wrap(line, width)
            line = ""
        line = f"{line}   {item}" if line else item
    yield from _wrap(line, width)


def _remarks(entries: Sequence[Entry], width: int) -> Iterator[list[str]]:
    """Yield what needs attention: a heading with a line each."""
    for title, items in find_remarks(entries):
        yield [title, *(line for item in items for line in _wrap(item, width, _INDENT))]


def _counts(entries: Sequence[Entry], width: int) -> Iterator[str]:
    for counts in count_products(entries):
        first, *more = count_lines(counts)
        yield from _wrap(first, width)
        for line in more:
            yield from _wrap(line, width, _INDENT)


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Break a text into lines; ids and URLs stay whole where they fit."""
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent + _INDENT,
        break_on_hyphens=False,
    )  # fmt: skip
