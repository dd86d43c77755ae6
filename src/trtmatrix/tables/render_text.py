"""Plain text: the answer in at most 40 lines as wide as the terminal (80 to 160 columns), and every row."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size

from tabulate import tabulate

from trtmatrix.common.text import counted, join_some, one_line
from trtmatrix.judge.entry import MUST_FAIL, Entry, cell_text, has_evidence, legend
from trtmatrix.tables.answer import MUST_KNOW, Answer, Grid, News, State, short_names, what_ran
from trtmatrix.tables.remarks import count_products, find_remarks, headline
from trtmatrix.tables.table import Row, Section, Table, TwinRow, fold_line, make_tables, shorten

LINES = 40
NARROWEST, WIDEST = 80, 160
_MOST_LABEL, _LEAST_LABEL = 24, 20
_NOTE_LINES = 2
"""So many lines a thing to know may take."""
_LEGEND_LINES, _REASON_LINES = 4, 8


def terminal_width() -> int:
    """Return the columns to fill: those of the terminal within bounds, 80 where there is none."""
    columns = get_terminal_size().columns if sys.stdout.isatty() else NARROWEST
    return min(max(columns, NARROWEST), WIDEST)


def render_screen(answer: Answer, *, width: int = NARROWEST, details: Sequence[str] = ("--full",)) -> str:
    """Return the screen: a table for each GPU, what must be known, what was run, what to do next.

    ``details``: where there is more, such as the path of the page.
    """
    width = min(max(width, NARROWEST), WIDEST)
    foot = [
        *(line for text in answer.products for line in _note(text, width)),
        *_note(answer.ran, width),
        *(_note(f"Not run: {answer.not_run}", width, most=_REASON_LINES) if answer.not_run else ()),
        *_note(f"Next: {answer.next}", width, break_long=True),
        *_note(f"Details: {' · '.join(details)}", width, break_long=True),
    ]
    room = LINES - len(foot) - min(len(answer.news), 4) * _NOTE_LINES
    head: list[str] = []
    for number, grid in enumerate(answer.grids):
        more = len(answer.grids) - number
        left = room - len(head) - more + 1
        if left < 1:
            head.append(f"… {counted(more, 'more GPU')}: --full")
            break
        blocks = (list(_grid(grid, width, rows)) for rows in range(max(left - 4, 1), 0, -1))
        fitting = (block for block in blocks if len(block) <= left)
        head += next(fitting, [shorten(f"{grid.title}: --full shows it", width)])
    return "\n".join([*head, *_news(answer.news, width, LINES - len(head) - len(foot)), *foot]) + "\n"


def _grid(grid: Grid, width: int, most_rows: int) -> Iterator[str]:
    """Yield a table's title, its versions, a line a finding, and what the marks mean."""
    yield from _note(grid.title, width)
    if not grid.rows:
        return
    known = [row for row in grid.rows if any(mark.state is not State.UNKNOWN for mark in row[1])]
    rows = (known or list(grid.rows))[: max(most_rows, 0)]
    for names, columns, between, label in _looks(grid):
        lines = [["", *(names[n] for n in columns)]]
        lines += [[shorten(r.id, label), *(grid.text(marks[n]) for n in columns)] for r, marks in rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        if sum(widths) + len(between) * len(columns) <= width:
            break
    for line in lines:
        yield between.join(f"{text:<{room}}" for text, room in zip(line, widths, strict=True)).rstrip()
    legend = list(grid.legend(marks[n] for _, marks in rows for n in columns))
    bad, harmless = list[str](), list[str]()
    for n in (n for n in range(len(grid.columns)) if n not in columns):
        marks = [marks[n] for _, marks in grid.rows if marks[n].state in MUST_KNOW]
        worst = min(marks, key=lambda mark: list(State).index(mark.state), default=None)
        name = grid.columns[n].name
        (bad if worst else harmless).append(f"{name} ({grid.text(worst)})" if worst else name)
    if left_out := bad + harmless:
        legend.insert(0, f"{counted(len(left_out), 'version')} not shown: {join_some(left_out, 3)}")
    if len(rows) < len(known):
        legend.insert(0, f"{counted(len(known) - len(rows), 'finding')} not shown")
    if known and (silent := [repro.id for repro, _ in grid.rows if repro not in [r for r, _ in known]]):
        legend.append(f"nothing known of {join_some(silent)}")
    yield from _note("; ".join(legend), width, first="  ", most=_LEGEND_LINES)


def _looks(grid: Grid) -> Iterator[tuple[list[str], list[int], str, int]]:
    """Yield looks, the roomiest first: names, columns, what stands between, a label's most letters.

    After shorter names, narrower columns and shorter labels, columns are left out one by one: first versions
    of which nothing is known, then additions that were not measured, then the oldest.
    """
    short, columns = short_names(grid.columns), list(range(len(grid.columns)))
    yield [version.name for version in grid.columns], columns, "  ", _MOST_LABEL
    yield short, columns, "  ", _MOST_LABEL
    yield short, columns, " ", _MOST_LABEL

    def importance(n: int) -> int:
        known = [marks[n] for _, marks in grid.rows if marks[n].state is not State.UNKNOWN]
        if not known:
            return 0
        return 1 if grid.columns[n].addition and all(mark.reported for mark in known) else 2

    order, names = sorted(columns, key=importance), [shorten(name, 16) for name in short]
    for count in range(len(columns)):
        yield names, [n for n in columns if n not in order[:count]], " ", _LEAST_LABEL


def _news(news: Sequence[News], width: int, room: int) -> Iterator[str]:
    """Yield a line or two a thing to know, the most urgent first; what has no room is counted."""
    used, longest = 0, max((len(item.word) for item in news), default=0)
    for number, item in enumerate(news):
        lines = _note(f"{item.word:<{longest}}  {item.text}", width, first="  ")
        left = len(news) - number - 1
        if used + len(lines) + bool(left) > room:
            if room > used:
                yield f"  … {left + 1} more to know: --full"
            return
        used += len(lines)
        yield from lines


def _note(
    text: str, width: int, first: str = "", *, break_long: bool = False, most: int = _NOTE_LINES
) -> list[str]:
    """Return a text on at most two lines, or so many; of one to ``break_long``, a command, nothing is cut."""
    more = f"{first}  "
    lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=more, break_on_hyphens=False)
    if len(lines) > most and not break_long:
        lines = [*lines[: most - 1], lines[most - 1][: width - 2].rstrip() + " …"]
    return lines


_COLOURS = (
    (r"\b(ok|PASS)\b|^GO  .*", "green"),
    (r"\b(BAD|FAIL|CHECK)\b|^DON'T  .*", "bold red"),
    (r"\b(slow|flaky|FLAKY|err)\b|^(GO WITH|NOT ENOUGH) .*", "yellow"),
)


def print_text(text: str) -> None:
    """Print tables or a report; in a terminal with colours, which say no more than the words.

    NO_COLOR turns them off. Lines of what is broken on purpose stay plain.
    """
    if not sys.stdout.isatty():
        print(text, end="", flush=True)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in text.splitlines():
        shown = Text(line)
        for words, style in () if MUST_FAIL in line else _COLOURS:
            shown.highlight_regex(words, style)
        console.print(shown)


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
