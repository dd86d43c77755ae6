"""Tables as one HTML page that needs nothing else: no network, no script, light and dark."""

from __future__ import annotations

from collections.abc import Sequence

from trtmatrix.judge.entry import Entry
from trtmatrix.tables.html_matrix import (
    MATRIX_STYLE,
    render_counts,
    render_legend,
    render_remarks,
    render_table,
)
from trtmatrix.tables.html_page import render_page
from trtmatrix.tables.html_pieces import text
from trtmatrix.tables.html_style import make_style
from trtmatrix.tables.table import make_tables

TITLE = "TensorRT version matrix"


def render_html(entries: Sequence[Entry], *, generated: str, all_rows: bool = False) -> str:
    """Return the page. ``generated`` is the time to show; folded rows are listed by their ids.

    The page has no script, and its policy forbids to load anything. All text is escaped, and only
    ``https`` addresses become links.
    """
    tables = make_tables(entries, all_rows=all_rows)
    body = [
        f'<header class="full">\n<h1>{TITLE}</h1>',
        f'<p class="soft">Generated {text(generated)}</p>\n</header>',
        '<main class="full">',
        render_counts(entries),
        *(f"<h2>{title}</h2>\n{found}" for title, found in render_remarks(entries)),
        render_legend(tables),
        *(render_table(table, number) for number, table in enumerate(tables)),
        "</main>",
    ]
    return render_page(TITLE, body, style=make_style(MATRIX_STYLE))
