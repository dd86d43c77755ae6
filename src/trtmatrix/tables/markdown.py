"""GitHub Markdown: its pieces, escaped, and the tables of the matrix, for a pull request or an issue."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from trtmatrix.common.text import one_line, printable
from trtmatrix.judge.entry import Entry, legend
from trtmatrix.tables.answer import count_all
from trtmatrix.tables.table import find_remarks, make_tables

MOST_CHARACTERS = 65_536
"""What GitHub takes in a comment or a pull request's text."""
_MOST_ITEMS = 40


def code(text: str) -> str:
    """Put a text into a code span, in which Markdown, mentions and references mean nothing."""
    return f"`{one_line(text).replace('`', chr(39)) or ' '}`"


def plain(text: str) -> str:
    """Escape what Markdown would read as markup, or GitHub as a mention; a ``_`` inside a word is none."""
    escaped = re.sub(r"([\\`*\[\]<>|~$&])", r"\\\1", one_line(text, 1000))
    escaped = re.sub(r"(?<!\w)([@#])(?=\w)", r"\1&#8203;", escaped)
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
    shown = printable(text)
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    bars = "`" * max(3, longest + 1)
    return f"{bars}sh\n{shown}\n{bars}"


def fold(summary: str, markup: str) -> str:
    """Return a part that folds open; ``summary`` is text."""
    shown = html.escape(one_line(summary, 1000), quote=False)
    return f"<details><summary>{shown}</summary>\n\n{markup}\n\n</details>"


def bullets(found: Iterable[str]) -> str:
    """Return markup as a list."""
    return "\n".join(f"- {item}" for item in found)


def render_markdown(entries: Sequence[Entry]) -> str:
    """Return the counts, what needs attention, and a table for each repro.

    Lists end after 40 items with a count of the rest: GitHub takes 65,536 characters a comment.
    Rows without any evidence are folded.
    """
    tables = make_tables(entries)
    marks = legend(entry for found in tables for entry in found.shown())
    parts = ["## TensorRT version matrix", bullets(map(plain, count_all(entries)))]
    for title, remarks in find_remarks(entries):
        more = [f"… and {len(remarks) - _MOST_ITEMS} more"] if len(remarks) > _MOST_ITEMS else []
        parts += [f"### {title}", bullets([*map(plain, remarks[:_MOST_ITEMS]), *more])]
    for found in tables:
        parts += [f"### {plain(found.title)}", plain(found.boards)]
        for section in found.sections:
            repro, (heads, *lines) = section.repro, section.lines(found.columns)
            parts.append(f"#### {code(repro.id)} {plain(repro.title)} · {link(repro.url, repro.upstream)}")
            if lines:  # a record's remark is a stranger's
                rows = ([plain(text) for text in line] for line in lines)
                parts += [f"figure: {code(section.repro.figure.label)}", table(["case", *heads[1:]], rows)]
            parts += [section.fold_line] if section.folded else []
    parts.append("; ".join(f"{code(mark)} {plain(meaning)}" for mark, meaning in marks))
    return "\n\n".join(part for part in parts if part) + "\n"
