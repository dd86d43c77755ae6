"""Every row and figure as plain text, in blocks of columns as wide as fit."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from trtmatrix.common.text import one_line
from trtmatrix.judge.entry import Entry, cell_text, has_evidence, legend
from trtmatrix.tables.answer import what_ran
from trtmatrix.tables.remarks import find_remarks
from trtmatrix.tables.summary import count_products, headline
from trtmatrix.tables.table import Row, Section, Table, TwinRow, fold_line, make_tables, shorten

_INDENT = "  "
_LEAST_WIDTH = 60
_CELL_WIDTH = 28  # of the widest column that a block must have room for


def render_text(entries: Sequence[Entry], *, width: int = 100) -> str:
    """Return the tables, a legend, and what there is to say about them.

    No line is wider than ``width`` (60 at least). Rows without any evidence are folded.
    """
    width = max(width, _LEAST_WIDTH)
    tables = make_tables(entries)
    parts = ["\n".join(_render_table(table, width)) for table in tables]
    shown, line = list[str](), ""
    for mark, meaning in legend(entry for table in tables for entry in table.shown()):
        item = f"{mark}: {meaning}"  # none is broken across lines
        if line and len(line) + 3 + len(item) > width:
            shown += _wrap(line, width)
            line = ""
        line = f"{line}   {item}" if line else item
    parts.append("\n".join(shown + _wrap(line, width)))
    for title, remarks in find_remarks(entries):
        lines = (line for item in remarks for line in _wrap(str(item), width, _INDENT))
        parts.append("\n".join([title, *lines]))
    said = [*map(headline, count_products(entries)), what_ran(entries)]
    parts.append("\n".join(line for text in said for line in _wrap(text, width)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _render_table(table: Table, width: int) -> Iterator[str]:
    """Yield a table's lines, in blocks of columns as wide as fit; every block has a column at least."""
    yield from _wrap(one_line(table.title), width)
    yield from _wrap(table.boards, width, _INDENT)
    sections = [_lines(section, width) for section in table.sections]
    lines = [line for mine in sections for line in mine]
    room = width - len(_INDENT) - max((len(line.label) for line in lines), default=0)
    blocks, used = [list[int]()], 0
    for column, version in enumerate(table.columns):
        name = min(len(version.name), _CELL_WIDTH)
        needed = 2 + max(name, *(len(line.texts[column]) for line in lines), 0)
        if blocks[-1] and used + needed > room:
            blocks.append([])
            used = 0
        used += needed
        blocks[-1].append(column)
    for number, columns in enumerate(blocks):
        if number:
            yield ""
        yield from _render_block(table, sections, columns, width, first=not number)


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A row or a finding's own figure over all columns; ``known``: where that is a reason to show it."""

    label: str
    texts: tuple[str, ...]
    known: tuple[bool, ...]
    is_row: bool


def _lines(section: Section, width: int) -> list[_Line]:
    """Return a section's lines. Rows of which nothing is known at a block's versions are folded there too."""
    most, found = width - _CELL_WIDTH - 2 * len(_INDENT), []
    lines: Sequence[Row | TwinRow] = (*section.rows, *section.twins)
    for item in lines:
        is_row = isinstance(item, Row)
        texts = map(cell_text, item.entries) if isinstance(item, Row) else item.texts
        known = map(has_evidence, item.entries) if isinstance(item, Row) else map(bool, item.texts)
        short = tuple(shorten(one_line(text), _CELL_WIDTH) for text in texts)
        label = shorten(one_line(item.label), most)
        found.append(_Line(label=label, texts=short, known=tuple(known), is_row=is_row))
    return found


def _render_block(
    table: Table, lines: Sequence[Sequence[_Line]], columns: Sequence[int], width: int, *, first: bool
) -> Iterator[str]:
    """Lay the lines of all sections out at once, so that columns align, then weave titles in."""
    kept = [[line for line in mine if any(line.known[n] for n in columns)] for mine in lines]
    body = [[line.label, *(line.texts[n] for n in columns)] for mine in kept for line in mine]
    names = ["", *(shorten(table.columns[column].name, _CELL_WIDTH) for column in columns)]
    text = tabulate([names, *body] if body else [], tablefmt="plain", disable_numparse=True).splitlines()
    laid = iter([_INDENT + line.rstrip() for line in text])
    if body:
        yield next(laid)
    for section, mine in zip(table.sections, kept, strict=True):
        if first or mine:
            title = one_line(f"{section.repro.id} — {section.repro.title} · {section.repro.upstream}")
            figure = section.figure if first and section.rows else ""
            if figure and len(title) + 3 + len(figure) <= width:
                yield title + figure.rjust(width - len(title))
            else:
                yield from (*_wrap(title, width), *_wrap(figure, width, _INDENT))
        yield from (next(laid) for _ in mine)
        shown = sum(line.is_row for line in mine)
        hidden = len(section.rows) + len(section.folded) - shown
        if hidden and (first or shown):
            yield _INDENT + fold_line(hidden, more=bool(shown))


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Break a text into lines; ids and URLs stay whole where they fit."""
    more = indent + _INDENT
    lines = textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=more, break_on_hyphens=False)
    return [line.rstrip() for line in lines]  # before a long word that is broken it leaves a space
