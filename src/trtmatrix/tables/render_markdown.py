"""Tables as GitHub Markdown, to be pasted into a pull request or an issue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tabulate import tabulate

from trtmatrix.judge.entry import Entry
from trtmatrix.judge.words import cell_text, legend
from trtmatrix.tables.board_kinds import kind_lines
from trtmatrix.tables.markdown import bullets, code, link, plain
from trtmatrix.tables.remarks import find_remarks
from trtmatrix.tables.summary import count_lines, count_products
from trtmatrix.tables.table import Section, Table, make_tables

_MOST_ITEMS = 40


def render_markdown(entries: Sequence[Entry], *, all_rows: bool = False) -> str:
    """Return the counts, what needs attention, and a table for each repro.

    Lists end after 40 items with a count of the rest: GitHub takes 65,536 characters a comment.
    Rows without any evidence are folded, unless ``all_rows``.
    """
    tables = make_tables(entries, all_rows=all_rows)
    marks = legend(entry for table in tables for entry in table.shown())
    parts = ["## TensorRT version matrix", "\n".join(_counts(entries)), *_remarks(entries)]
    parts += [part for table in tables for part in _table(table)]
    parts.append("; ".join(f"{code(mark)} {plain(meaning)}" for mark, meaning in marks))
    return "\n\n".join(part for part in parts if part) + "\n"


def _counts(entries: Sequence[Entry]) -> Iterator[str]:
    for counts in count_products(entries):
        first, *more = count_lines(counts)
        yield "<br>".join((f"- **{plain(first)}**", *map(plain, more)))


def _remarks(entries: Sequence[Entry]) -> Iterator[str]:
    for title, remarks in find_remarks(entries):
        yield f"### {title}"
        more = len(remarks) - _MOST_ITEMS
        shown = [
            item.styled(plain, code, lambda seen: f"**{plain(seen)}**") for item in remarks[:_MOST_ITEMS]
        ]
        yield bullets(shown + ([f"… and {more} more"] if more > 0 else []))


def _table(table: Table) -> Iterator[str]:
    yield f"### {plain(table.title)}"
    if lines := kind_lines(table.boards):
        yield "<br>".join(map(plain, lines))
    headers = ["case", *(version.name for version in table.columns)]
    for section in table.sections:
        repro = section.repro
        yield f"#### {code(repro.id)} {plain(repro.title)} · {link(repro.url, repro.upstream)}"
        if section.rows:
            yield f"figure: {code(repro.figure.label)}"
            yield tabulate(_body(section), headers, tablefmt="github", disable_numparse=True)
        if section.folded:
            yield section.fold_line


def _body(section: Section) -> list[list[str]]:
    rows = [[row.label, *(_cell(entry) for entry in row.entries)] for row in section.rows]
    # A bar is a cell's end to GitHub, escaped or in a code span.
    return rows + [[plain(twin.label).replace("\\|", "&#124;"), *twin.texts] for twin in section.twins]


def _cell(entry: Entry | None) -> str:
    text = plain(cell_text(entry)).replace("\\|", "&#124;")  # a record's remark is a stranger's
    return f"**{text}**" if entry is not None and entry.surprise else text
