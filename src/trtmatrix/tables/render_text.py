"""Every row and figure as plain text, in blocks of columns as wide as fit."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from tabulate import tabulate

from trtmatrix.judge.entry import Entry
from trtmatrix.judge.words import cell_text, has_evidence, legend
from trtmatrix.suite.matrix import Version
from trtmatrix.tables.board_kinds import kind_lines
from trtmatrix.tables.remarks import find_remarks
from trtmatrix.tables.summary import count_lines, count_products
from trtmatrix.tables.table import Row, Section, Table, fold_line, make_tables, one_line, shorten

_INDENT = "  "
_LEAST_WIDTH = 60
_CELL_WIDTH = 28  # of the widest column that a block must have room for


def render_text(entries: Sequence[Entry], *, width: int = 100, all_rows: bool = False) -> str:
    """Return the tables, a legend, and what there is to say about them.

    No line is wider than ``width`` (60 at least). Rows without any evidence are folded, unless ``all_rows``.
    """
    width = max(width, _LEAST_WIDTH)
    tables = make_tables(entries, all_rows=all_rows)
    parts = ["\n".join(_render_table(table, width, fold=not all_rows)) for table in tables]
    parts.append("\n".join(_legend(tables, width)))
    for title, remarks in find_remarks(entries):
        parts.append(
            "\n".join([title, *(line for item in remarks for line in _wrap(str(item), width, _INDENT))])
        )
    parts.append("\n".join(_counts(entries, width)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _render_table(table: Table, width: int, *, fold: bool) -> Iterator[str]:
    yield from _wrap(one_line(table.title), width)
    for line in kind_lines(table.boards):
        yield from _wrap(line, width, _INDENT)
    for number, columns in enumerate(_split(table, width)):
        if number:
            yield ""
        yield from _render_block(table, columns, width, first=not number, fold=fold)


def _render_block(
    table: Table, columns: Sequence[int], width: int, *, first: bool, fold: bool
) -> Iterator[str]:
    """Lay the rows of every repro out at once, so that columns align, then weave titles in.

    Rows of which nothing is known at a block's versions are folded there too.
    """
    kept = [
        [row for row in section.rows if not fold or any(has_evidence(row.entries[n]) for n in columns)]
        for section in table.sections
    ]
    lines = [
        list(_lines(section, rows, columns, width))
        for section, rows in zip(table.sections, kept, strict=True)
    ]  # fmt: skip
    body = [line for mine in lines for line in mine]
    headers = _headers([table.columns[column] for column in columns]) if body else []
    text = tabulate([*headers, *body], tablefmt="plain", disable_numparse=True).splitlines()
    laid = iter([_INDENT + line.rstrip() for line in text])
    yield from (next(laid) for _ in headers)
    for section, rows, mine in zip(table.sections, kept, lines, strict=True):
        if first or mine:
            yield from _heading(section, width, first=first)
        yield from (next(laid) for _ in mine)
        hidden = len(section.rows) + len(section.folded) - len(rows)
        if hidden and (first or rows):
            yield _INDENT + fold_line(hidden, more=bool(rows))


def _lines(section: Section, rows: Sequence[Row], columns: Sequence[int], width: int) -> Iterator[list[str]]:
    """Yield a label with a block's cells for each row, then for the finding's own figures."""
    for row in rows:
        yield [_label(row.label, width), *(_cell(row.entries[column]) for column in columns)]
    for twin in section.twins:
        texts = [shorten(twin.texts[column], _CELL_WIDTH) for column in columns]
        if any(texts):
            yield [_label(twin.label, width), *texts]


def _heading(section: Section, width: int, *, first: bool) -> Iterator[str]:
    repro = section.repro
    title = one_line(f"{repro.id} — {repro.title} · {repro.upstream}")
    figure = section.figure if first and section.rows else ""
    if figure and len(title) + 3 + len(figure) <= width:
        yield title + figure.rjust(width - len(title))
        return
    yield from _wrap(title, width)
    yield from _wrap(figure, width, _INDENT)


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
    return product, shorten(version.name.removeprefix(prefix), _CELL_WIDTH)


def _label(text: str, width: int) -> str:
    return shorten(one_line(text), width - _CELL_WIDTH - 2 * len(_INDENT))


def _cell(entry: Entry | None) -> str:
    return shorten(one_line(cell_text(entry)), _CELL_WIDTH)


def _split(table: Table, width: int) -> list[list[int]]:
    """Split the columns into as few blocks as fit, of about the same width."""
    rows = [(row.label, [_cell(entry) for entry in row.entries]) for s in table.sections for row in s.rows]
    rows += [(t.label, [shorten(x, _CELL_WIDTH) for x in t.texts]) for s in table.sections for t in s.twins]
    room = width - len(_INDENT) - max((len(_label(label, width)) for label, _ in rows), default=0)
    widths, last = list[tuple[int, int]](), ""  # at the start of a block, and after the column before
    for column, version in enumerate(table.columns):
        product, release = _header(version)
        least = max(len(release), *(len(texts[column]) for _, texts in rows), 0)
        full = max(least, len(product))
        widths.append((2 + full, 2 + (least if product == last else full)))
        last = product
    fewest = _pack(widths, room)
    tried = (_pack(widths, less) for less in range(max(max(both) for both in widths), room))
    return next((blocks for blocks in tried if len(blocks) == len(fewest)), fewest)


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
