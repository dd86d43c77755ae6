"""Small pieces of GitHub Markdown: escaped texts, code, links, tables, parts that fold open."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from trtmatrix.tables.table import one_line

MOST_CHARACTERS = 65_536
"""What GitHub takes in a comment or a pull request's text."""


def code(text: str) -> str:
    """Put a text into a code span, in which Markdown, mentions and references mean nothing."""
    return f"`{one_line(text).replace('`', chr(39)) or ' '}`"


def plain(text: str) -> str:
    """Escape what Markdown would read as markup; a ``_`` inside a word or URL is none."""
    escaped = re.sub(r"([\\`*\[\]<>|~$&])", r"\\\1", one_line(text, 1000))
    return re.sub(r"(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])", r"\\_", escaped)


def link(url: str, text: str) -> str:
    """Return a link, or the text alone where the address is none that may be followed."""
    safe = re.fullmatch(r"https://[^\s<>()\\\x00-\x1f]+", url)
    return f"[{plain(text or url)}]({url})" if safe and url.isprintable() else plain(text)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of markup; its columns are not padded, as GitHub counts characters.

    A bar would end a cell: in text it becomes a reference, in a code span it is escaped, as only there GitHub
    takes the escape away (https://github.github.com/gfm/#example-200).
    """
    lines = [[_in_cell(plain(head)) for head in heads], ["---"] * len(heads)]
    lines += [[_in_cell(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _in_cell(markup: str) -> str:
    return markup.replace("\\|", "&#124;").replace("|", "\\|")


def fence(text: str) -> str:
    """Return lines as a block of code; its fence is longer than any in them."""
    shown = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    bars = "`" * max(3, longest + 1)
    return f"{bars}sh\n{shown}\n{bars}"


def fold(summary: str, markup: str) -> str:
    """Return a part that folds open; ``summary`` is text."""
    shown = (
        plain(summary).replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\&", "&amp;").replace("\\", "")
    )
    return f"<details><summary>{shown}</summary>\n\n{markup}\n\n</details>"


def bullets(found: Iterable[str]) -> str:
    """Return markup as a list."""
    return "\n".join(f"- {item}" for item in found)
