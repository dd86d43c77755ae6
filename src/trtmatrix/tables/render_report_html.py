"""The whole matrix as one HTML page with plots, and a filter by GPU, version, finding and verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trtmatrix.judge.entry import Entry
from trtmatrix.tables.html_filtering import FILTER, FILTER_STYLE, render_filter
from trtmatrix.tables.html_matrix import (
    MATRIX_STYLE,
    render_counts,
    render_legend,
    render_overview,
    render_remarks,
    render_table,
    render_versions,
)
from trtmatrix.tables.html_page import render_page
from trtmatrix.tables.html_pieces import command, count, fold, items, section, text
from trtmatrix.tables.html_style import make_style
from trtmatrix.tables.matrix_plots import MatrixPlot
from trtmatrix.tables.plots import render_figure
from trtmatrix.tables.render_html import TITLE
from trtmatrix.tables.table import Table, make_tables


def render_report_html(
    entries: Sequence[Entry], plots: Sequence[MatrixPlot], *, generated: str, again: str = ""
) -> str:
    """Return the page; ``again`` is the command that made it.

    It is whole without its script, which filters what is there and adds the form for that. Nothing is
    loaded; the state of the filter is in the address behind the ``#``.
    """
    tables = make_tables(entries)
    parts = [part for part in _sections(entries, tables, plots) if part[2]]
    contents = items(f'<a href="#{name}">{text(title)}</a>' for name, title, _ in parts)
    made = f"<p>Generated {text(generated)}{' by' if again else ''}</p>{command(again)}"
    body = [
        '<a class="skip" href="#summary">To the summary</a>',
        f"<header>\n<h1>{TITLE}</h1>\n</header>\n<main>",
        f'<nav aria-label="Contents">\n{contents}\n</nav>',
        *(section(*part) for part in parts),
        f'</main>\n<footer class="soft small">{made}</footer>',
    ]
    style = make_style(MATRIX_STYLE, FILTER_STYLE)
    return render_page(TITLE, body, style=style, script=FILTER)


_TOLD = {"Surprises", "Set aside", "Facts of matrix.yaml that images contradict"}
_FEW = 12
"""What is open at once, and up to how many lines."""


def _sections(
    entries: Sequence[Entry], tables: Sequence[Table], plots: Sequence[MatrixPlot]
) -> Iterator[tuple[str, str, str]]:
    """Yield the sections: id, title, markup."""
    yield "summary", "Summary", render_counts(entries)
    yield "overview", "Overview", "\n".join(_overviews(tables))
    remarks = list(render_remarks(entries))
    yield "remarks", "What needs attention", "\n".join(_remark(title, found) for title, found in remarks)
    shown = "\n".join(render_table(table, number) for number, table in enumerate(tables))
    yield "tables", "Tables", f"{render_filter(tables)}\n{render_legend(tables)}\n{shown}" if tables else ""
    yield "plots", "Over the versions", "\n".join(_figure(plot) for plot in plots)
    yield "versions", "Versions", "\n".join(f"<h3>{text(t.title)}</h3>{render_versions(t)}" for t in tables)


def _overviews(tables: Sequence[Table]) -> Iterator[str]:
    for found in tables:
        if overview := render_overview(found, linked=True):
            yield f"<h3>{text(found.title)}</h3>\n{overview}"


def _remark(title: str, found: str) -> str:
    number = found.count("<li>")
    return fold(f"{text(title)}: {count(number, 'line')}", found, opened=title in _TOLD and number <= _FEW)


def _figure(found: MatrixPlot) -> str:
    where = f'data-plot="{found.table}" data-finding="{text(found.finding)}"'
    return f"<div {where}>{render_figure(found.plot)}</div>"
