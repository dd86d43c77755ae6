"""Lines of an upgrade report for a terminal: wrapped, hanging, a case. Shared by its parts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from trtmatrix.tables.table import one_line
from trtmatrix.upgrade.report import CaseLine

WIDTH = 100
LONGEST = 160
"""Characters of a reason that are shown; the other formats have all."""
_MARGIN = 12


def hanging(word: str, text: str) -> Iterator[str]:
    """Put a word into the margin of a text."""
    if len(word) > _MARGIN - 1:
        yield from wrap(f"{word}: {text}", "  ", "    ")
        return
    yield from wrap(f"{word:<{_MARGIN}}{one_line(text, 2000)}", "  ", " " * (_MARGIN + 2), raw=True)


def wrap(text: str, first: str = "", later: str = "  ", *, raw: bool = False) -> list[str]:
    """Break a text into lines; ids and addresses stay whole where they fit."""
    line = text if raw else one_line(text, 2000)
    return textwrap.wrap(
        line, WIDTH, initial_indent=first, subsequent_indent=later, break_on_hyphens=False,
        drop_whitespace=True,
    )  # fmt: skip


def case_lines(line: CaseLine, said: str = "") -> Iterator[str]:
    """Yield a case at both versions with what that means; ``said``: why of the line above, not said twice."""
    why = "the same" if said and line.why == said else one_line(line.why, LONGEST)
    words = f"{line.before.word or '·'} → {line.after.word or '·'}"
    yield from wrap(f"{line.case}: {words}, {why}", "      ", "        ")
