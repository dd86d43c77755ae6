"""The answer as plain text of at most 40 lines, as wide as the terminal from 80 to 160 columns."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from shutil import get_terminal_size

from trtmatrix.common.text import counted, join_some
from trtmatrix.judge.entry import MUST_FAIL
from trtmatrix.tables.answer import MUST_KNOW, Answer, Grid, News, State, short_names
from trtmatrix.tables.table import shorten

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
