"""The whole matrix as one HTML page: the answer, a filter, every cell with what is known of it, plots.

It is whole without its script, which filters what is there and adds the form for that. Nothing is loaded, all
text is escaped, and only ``https`` addresses become links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import dropwhile

from trtmatrix.judge.entry import Entry, cell_text, has_evidence, legend
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import Cause, Evidence, Verdict
from trtmatrix.tables.answer import make_answer, short_names
from trtmatrix.tables.html_page import is_safe, make_style, read_template, render_page, templates
from trtmatrix.tables.plots import Plot, render_figure
from trtmatrix.tables.remarks import describe, find_remarks
from trtmatrix.tables.summary import count_products, headline, why_not_run
from trtmatrix.tables.table import Row, Table, make_tables

TITLE = "TensorRT version matrix"


def render_html(
    entries: Sequence[Entry], plots: Sequence[Plot] = (), *, generated: str, again: str = ""
) -> str:
    """Return the page; ``generated`` is the time to show, ``again`` the command that makes it."""
    tables = make_tables(entries)
    values = {
        "title": TITLE, "generated": generated, "again": again, "answer": make_answer(entries),
        "tables": tables, "plots": [(plot, render_figure(plot)) for plot in plots],
        "parts": [part for number, table in enumerate(tables) for part in _parts(table, number)],
        "counts": [headline(counts) for counts in count_products(entries)],
        "remarks": [(title, [str(line) for line in lines]) for title, lines in find_remarks(entries)],
        "legend": legend(entry for table in tables for entry in table.shown()),
        "versions": [(table, list(_versions(table))) for table in tables],
        "coverage": [(table.title, Counter(entry.evidence for entry in table.entries())) for table in tables],
        "precisions": sorted({e.cell.case.precision for e in entries} - {""}),
        "evidence": list(Evidence), "verdicts": [verdict.value for verdict in Verdict],
    }  # fmt: skip
    functions = {
        "cell_text": cell_text, "has_evidence": has_evidence, "describe": _told,
        "is_safe": is_safe, "classes": _classes, "traits": _traits, "short_names": short_names,
    }  # fmt: skip
    body = templates().get_template("report.html").render(**values, **functions)
    style = make_style(read_template("matrix.css"))
    return render_page(TITLE, [body], style=style, script=read_template("filter.js"))


def _parts(table: Table, number: int) -> Iterator[tuple[int, bool, Table]]:
    """Yield a table's findings, then its controls, which are folded away; with its number."""
    for controls in (False, True):
        sections = []
        for section in table.sections:
            rows, folded = (
                tuple(row for row in some if bool(row.case.control) is controls)
                for some in (section.rows, section.folded)
            )
            if rows or folded:
                twins = () if controls else section.twins
                sections.append(replace(section, rows=rows, folded=folded, twins=twins))
        if sections:
            yield number, controls, replace(table, sections=tuple(sections))


def _told(entry: Entry) -> tuple[tuple[str, str], ...]:
    """Return what unfolds in a cell; of thousands of cells, without what goes without saying.

    A record is named by its file: its folder is the cell's.
    """
    facts = {**dict(describe(entry)), "record": f"{entry.record.run}.json" if entry.record else ""}
    if entry.expectation is None and not entry.surprise and entry.cell.case.control is None:
        facts["expected"] = ""
    if entry.verdict is Verdict.BUILT and not entry.surprise:
        facts = {name: facts.get(name, "") for name in ("reason", "evidence", "not run", "record")}
    return tuple((name, value) for name, value in facts.items() if value)


def _traits(row: Row) -> str:
    """Return what a case can be filtered by: that it was measured, that it went wrong after it was right."""
    known = [entry for entry in row.entries if entry is not None and entry.outcome]
    after_right = dropwhile(lambda entry: entry.verdict is not Verdict.PASS, known)
    went_wrong = any(entry.verdict in {Verdict.FAIL, Verdict.FLAKY} for entry in after_right)
    measured = "measured" if any(entry.evidence.is_record for entry in known) else ""
    return f"{measured} {'regression' if went_wrong and not row.case.control else ''}".strip()


def _versions(found: Table) -> Iterator[tuple[Version, Counter[Evidence], str]]:
    """Yield each version, how many of its cells are known how, and why others are not."""
    for number, version in enumerate(found.columns):
        column = [row.entries[number] for s in found.sections for row in (*s.rows, *s.folded)]
        cells = [entry for entry in column if entry is not None]
        reasons = Counter(why_not_run(entry) for entry in cells if entry.evidence is Evidence.NONE)
        why = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(3))
        yield version, Counter(entry.evidence for entry in cells), why


def _classes(entry: Entry) -> str:
    """Return what a cell looks like; the words in it say the same."""
    if entry.outcome is None:
        return "none"
    kinds = {Verdict.PASS: "pass", Verdict.FAIL: "fail", Verdict.BUILT: "none"}
    silent = entry.outcome.cause is Cause.UNSUPPORTED_BY_VERSION
    kind = "none" if silent else kinds.get(entry.outcome.verdict, "other")
    return f"{kind} {entry.evidence.value}{' surprise' if entry.surprise else ''}"
