"""Plain text: the answer in at most 40 lines as wide as the terminal (80 to 160 columns), and every row."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from shutil import get_terminal_size

from tabulate import tabulate

from trtmatrix.common.text import counted, join_some, one_line
from trtmatrix.judge.entry import MUST_FAIL, Entry, legend
from trtmatrix.suite.matrix import Version
from trtmatrix.tables.answer import MUST_KNOW, Answer, Grid, State, count_all, short_names
from trtmatrix.tables.table import Section, find_remarks, make_tables, shorten

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
    foot = [line for text in (*answer.products, answer.ran) for line in wrap(text, width, most=_NOTE_LINES)]
    foot += wrap(f"Not run: {answer.not_run}", width, most=_REASON_LINES) if answer.not_run else []
    foot += [*wrap(f"Next: {answer.next}", width), *wrap(f"Details: {' · '.join(details)}", width)]
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
    word = max((len(item.word) for item in answer.news), default=0)
    news = (wrap(n.text, width, f"  {n.word:<{word}}  ", "    ", _NOTE_LINES) for n in answer.news)
    room = LINES - len(head) - len(foot)
    return "\n".join([*head, *fill(news, room, "more to know"), *foot]) + "\n"


def _grid(grid: Grid, width: int, most_rows: int) -> Iterator[str]:
    """Yield a table's title, its versions, a line a finding, and what the marks mean."""
    yield from wrap(grid.title, width, most=_NOTE_LINES)
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
    yield from wrap("; ".join(legend), width, "  ", "    ", _LEGEND_LINES)


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


def fill(entries: Iterable[Sequence[str]], room: int, rest: str) -> Iterator[str]:
    """Yield the lines of as many entries as there is room for, and how many are left: ``more reason{s}``."""
    waiting, used = list(entries), 0
    while waiting:
        if used + len(waiting[0]) > room - (len(waiting) > 1):
            if used < room:
                yield f"  … {len(waiting)} {rest.format(s='s' * (len(waiting) > 1))}: --full"
            return
        used += len(waiting[0])
        yield from waiting.pop(0)


def wrap(text: str, width: int, first: str = "", later: str = "  ", most: int | None = None) -> list[str]:
    """Break a text into lines, at most so many; ids and addresses stay whole where they fit.

    ``first`` and ``later``: what the first line begins with, and the others.
    """
    text = text if text.isprintable() else one_line(text, 4000)
    lines = textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=later, break_on_hyphens=False, max_lines=most,
        placeholder=" …",
    )  # fmt: skip
    return [line.rstrip() for line in lines]  # before a long word that is broken it leaves a space


_COLOURS = (
    (r"\b(ok|PASS)\b|^GO  .*", "green"),
    (r"\b(BAD|FAIL|CHECK)\b|^DON'T  .*", "bold red"),
    (r"\b(slow|flaky|FLAKY|err)\b|^(GO WITH|NOT ENOUGH) .*", "yellow"),
)


def print_text(text: str, *, markdown: bool = False) -> None:
    """Print tables or a report; in a terminal with colours, which say no more than the words.

    NO_COLOR turns them off. Lines of what is broken on purpose stay plain. ``markdown``: a terminal shows it
    laid out, with links to follow.
    """
    if not sys.stdout.isatty():
        print(text, end="", flush=True)
        return
    from rich import markdown as md
    from rich.console import Console
    from rich.text import Text

    class Cell(md.TableDataElement):
        """A cell that breaks a long name where rich would leave its end out."""

        def on_text(self, context: md.MarkdownContext, text: str | Text) -> None:
            super().on_text(context, text)
            self.content.overflow = "fold"

    console = Console(highlight=False, soft_wrap=not markdown)
    if markdown:
        md.Markdown.elements["td_open"] = Cell
        console.print(md.Markdown(re.sub("<details><summary>(.*)</summary>", r"**\1**", text)))
        return
    for line in text.splitlines():
        shown = Text(line)
        for words, style in () if MUST_FAIL in line else _COLOURS:
            shown.highlight_regex(words, style)
        console.print(shown)


_WIDTH = 100
_CELL_WIDTH = 28  # of the widest column that a block must have room for


def render_text(entries: Sequence[Entry]) -> str:
    """Return the tables, a legend, and what there is to say about them, in at most 100 columns."""
    width, tables = _WIDTH, make_tables(entries)
    parts: list[list[str]] = []
    for table in tables:
        parts.append([*wrap(table.title, width), *wrap(table.boards, width, "  ", "    ")])
        for section in table.sections:
            parts[-1] += _render_section(section, table.columns, width)
    marks = legend(entry for table in tables for entry in table.shown())
    parts.append(wrap("; ".join(f"{mark}: {meaning}" for mark, meaning in marks), width))
    for title, remarks in find_remarks(entries):
        parts.append([title, *(line for text in remarks for line in wrap(text, width, "  ", "    "))])
    parts.append([line for text in count_all(entries) for line in wrap(text, width)])
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _render_section(section: Section, columns: Sequence[Version], width: int) -> Iterator[str]:
    """Yield a finding's rows at the versions of which anything is known, as many side by side as fit."""
    repro, figure = section.repro, f" · {section.figure}" if section.rows else ""
    yield from wrap(f"{repro.id} — {repro.title} · {repro.upstream}{figure}", width)
    most = (width - _CELL_WIDTH - 4, *[_CELL_WIDTH] * len(columns))
    lines = [
        [shorten(one_line(text), limit) for text, limit in zip(line, most, strict=False)]
        for line in section.lines(columns)
    ]
    widest = max((len(text) for _, *texts in lines for text in texts), default=0)
    fitting = max(1, (width - 2 - max(len(line[0]) for line in lines)) // (widest + 2))
    for start in range(1, len(lines[0]), fitting):
        block = [[line[0], *line[start : start + fitting]] for line in lines]
        text = tabulate(block, tablefmt="plain", disable_numparse=True)
        yield from (f"  {line}".rstrip() for line in text.splitlines())
    yield from [f"  {section.fold_line}"] if section.folded else []
