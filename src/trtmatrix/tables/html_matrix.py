"""The whole matrix as markup: counts, an overview, remarks, the legend, and the tables with their details."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from trtmatrix.judge.entry import Entry
from trtmatrix.judge.words import VERDICT_WORDS, cell_text, has_evidence, legend
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import Cause, Verdict
from trtmatrix.suite.outcome import Evidence
from trtmatrix.tables.board_kinds import kind_lines
from trtmatrix.tables.details import describe
from trtmatrix.tables.html_pieces import chip, code, is_safe, items, link, region, table, text
from trtmatrix.tables.remarks import find_remarks
from trtmatrix.tables.summary import count_lines, count_products, why_not_run
from trtmatrix.tables.table import Row, Section, Table
from trtmatrix.tables.twins import TwinRow

MATRIX_STYLE = """
@media (min-width: 601px) { #overview .name { min-width: 11rem; }
  #overview td, #overview thead th:not(:first-child) { padding: .4rem .35rem; } }
.matrix { overflow: auto; max-height: 88vh; }
.matrix table { width: auto; min-width: 100%; font-size: .875rem; }
.matrix th, .matrix td { padding: .2rem .6rem; white-space: nowrap; }
.matrix thead th { position: sticky; top: 0; z-index: 2; }
.matrix tbody th[scope=row] { position: sticky; left: 0; background: var(--page); }
.matrix tbody th[scope=rowgroup] { background: var(--card); white-space: normal; }
.matrix tbody th[scope=rowgroup] > div { position: sticky; left: .6rem; max-width: min(74rem, 82vw); }
.matrix thead th:first-child { left: 0; z-index: 3; }
.pass { background: var(--good-back); } .fail { background: var(--bad-back); }
.other { background: var(--warn-back); } .recorded { font-style: italic; }
.reported, .none { color: var(--soft); } .pass.reported, .fail.reported, .other.reported { color: inherit; }
.surprise { font-weight: bold; outline: 2px solid currentColor; outline-offset: -2px; }
.matrix summary { list-style: none; padding: 0; }
.matrix summary::-webkit-details-marker { display: none; }
.matrix dl { margin: .3rem 0; max-width: 26rem; white-space: normal; font-weight: normal;
  font-style: normal; color: var(--ink); overflow-wrap: anywhere; }
.matrix dt { color: var(--soft); font-size: .85em; } .matrix dd { margin: 0 0 .2rem; }
.matrix .soft { font-size: .95em; }
@media (max-width: 600px) { .matrix tbody th[scope=row] { position: static; } }
@media print { .matrix { overflow: visible; max-height: none; } .matrix table { font-size: 6.5pt; }
  .matrix th, .matrix td { padding: .1rem .2rem; white-space: normal; } }
"""


def render_counts(entries: Sequence[Entry]) -> str:
    """Return each product's counts as a list."""
    return items(_counts(entries))


def _counts(entries: Sequence[Entry]) -> Iterator[str]:
    for counts in count_products(entries):
        first, *more = count_lines(counts)
        soft = "".join(f'<br><span class="soft">{text(line)}</span>' for line in more)
        yield f"<strong>{text(first)}</strong>{soft}"


def render_remarks(entries: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    """Yield what needs attention: a title and a list."""
    for title, found in find_remarks(entries):
        yield title, items(map(text, found))


def render_legend(tables: Sequence[Table]) -> str:
    """Return the marks and words that occur in some tables, each with its meaning."""
    found = legend(entry for table in tables for entry in table.shown())
    words = (f"<strong>{text(mark)}</strong>&nbsp;{text(meaning)}" for mark, meaning in found)
    return f"<p>{'; '.join(words)}</p>" if found else ""


def render_overview(found: Table, *, linked: bool = False) -> str:
    """Return a row a finding, a column a version that anything is known of: how its cases came out.

    Controls are left out: theirs is known beforehand. ``linked``: a version is a link that filters by it.
    """
    known = [
        number for number, _ in enumerate(found.columns)
        if any(has_evidence(row.entries[number]) for section in found.sections for row in section.rows)
    ]  # fmt: skip
    if not known:
        return ""
    rows = []
    for section in found.sections:
        cells = [_tally(section, number, found.columns[number].name, linked) for number in known]
        if any(cells):
            title = f'{code(section.repro.id)}<br><span class="soft small">{text(section.repro.title)}</span>'
            rows.append((f'<div class="name">{title}</div>', *cells))
    heads = ["finding", *(found.columns[number].name for number in known)]
    return table(f"Overview: {found.title}", heads, rows)


_TALLIED = (Verdict.FAIL, Verdict.FLAKY, Verdict.PASS, Verdict.INVALID, Verdict.BUILT, Verdict.NO_VERDICT)
_KINDS = {Verdict.FAIL: "bad", Verdict.FLAKY: "bad", Verdict.PASS: "good", Verdict.INVALID: "unsure"}


def _tally(section: Section, number: int, version: str, linked: bool) -> str:
    cells = [row.entries[number] for row in section.rows if row.case.control is None]
    known = [entry for entry in cells if entry is not None and has_evidence(entry)]
    counts = Counter(entry.outcome.verdict for entry in known if entry.outcome is not None)
    surprises = sum(entry.surprise for entry in known)
    reported = known and all(entry.evidence is Evidence.REPORTED for entry in known)
    shown = [
        _linked(chip(_KINDS.get(verdict, ""), f"{counts[verdict]} {VERDICT_WORDS[verdict]}"),
                f"finding={section.repro.id}&version={version}&verdict={verdict.value}", linked)
        for verdict in _TALLIED
        if counts[verdict]
    ]  # fmt: skip
    soft = ["reported"] if reported else []
    soft += [f"{surprises} not as expected"] if surprises else []
    return " ".join(shown) + (f'<br><span class="soft small">{", ".join(soft)}</span>' if soft else "")


def _linked(markup: str, fragment: str, linked: bool) -> str:
    return f'<a class="tally" href="#{text(fragment)}">{markup}</a>' if linked else markup


def render_versions(found: Table) -> str:
    """Return a row a version: how many of its cells are known how, and why others are not."""
    rows = []
    for number, version in enumerate(found.columns):
        column = [row.entries[number] for s in found.sections for row in (*s.rows, *s.folded)]
        cells = [entry for entry in column if entry is not None]
        how = Counter(entry.evidence for entry in cells)
        reasons = Counter(why_not_run(entry) for entry in cells if entry.evidence is Evidence.NONE)
        why = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(3))
        counts = (str(how[evidence] or "") for evidence in Evidence)
        note = f'<br><span class="soft small">{text(version.note)}</span>' if version.note else ""
        rows.append((f"{text(version.name)}{note}", *counts, text(why)))
    heads = ["version", *(evidence.value for evidence in Evidence), "why nothing is known of cells"]
    return table(f"Versions: {found.title}", heads, rows)


def render_table(found: Table, number: int) -> str:
    """Return a table: findings as groups of rows, cells that fold open to all that is known of them."""
    heads = "".join(_column(version) for version in found.columns)
    boards = "".join(f'<br><span class="soft small">{text(line)}</span>' for line in kind_lines(found.boards))
    markup = "\n".join(
        (
            f'<table id="t{number}" data-gpu="{text(found.title)}">',
            f"<caption>{text(found.title)}{boards}</caption>",
            f'<thead><tr><th scope="col">case</th>{heads}</tr></thead>',
            *(_section(section, len(found.columns)) for section in found.sections),
            "</table>",
        )
    )
    return region(found.title, markup).replace('class="wide"', 'class="wide matrix"', 1)


def _column(version: Version) -> str:
    note = f' title="{text(version.note)}"' if version.note else ""
    return f'<th scope="col"{note}>{text(version.name)}</th>'


def _section(section: Section, columns: int) -> str:
    repro = section.repro
    heading = (
        f"<div>{text(repro.id)} — {text(repro.title)} · {link(repro.url, repro.upstream)} "
        f'<span class="soft">· {text(section.figure)}</span></div>'
    )
    rows = [f'<tr class="head"><th scope="rowgroup" colspan="{columns + 1}">{heading}</th></tr>']
    rows += [_row(row) for row in section.rows]
    rows += [_twin(twin) for twin in section.twins]
    if section.folded:
        cell = f'<td class="none" colspan="{columns + 1}">{_folded(section)}</td>'
        rows.append(f'<tr class="folded" data-count="{len(section.folded)}">{cell}</tr>')
    return "\n".join((f'<tbody data-finding="{text(repro.id)}">', *rows, "</tbody>"))


def _folded(section: Section) -> str:
    names = "<br>".join(text(row.label) for row in section.folded)
    return f"<details><summary>{text(section.fold_line)}</summary>{names}</details>"


def _row(row: Row) -> str:
    cells = "".join(_cell(entry) for entry in row.entries)
    return f'<tr class="case"><th scope="row">{text(row.label)}</th>{cells}</tr>'


def _twin(twin: TwinRow) -> str:
    cells = "".join(f"<td>{text(words)}</td>" for words in twin.texts)
    return f'<tr class="twin soft"><th scope="row">{text(twin.label)}</th>{cells}</tr>'


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return "<td></td>"
    if not has_evidence(entry):
        return f'<td class="none">{text(cell_text(entry))}</td>'
    terms = "".join(
        f"<dt>{name}<dd>{link(value, value) if is_safe(value) else text(value)}"
        for name, value in describe(entry)
    )
    verdict = f' data-v="{text(entry.outcome.verdict.value)}"' if entry.outcome else ""
    return (
        f'<td class="{_classes(entry)}"{verdict}><details>'
        f"<summary>{text(cell_text(entry))}</summary><dl>{terms}</dl></details></td>"
    )


def _classes(entry: Entry) -> str:
    """Return what a cell looks like; the words in it say the same."""
    kind = "none"
    if has_evidence(entry) and entry.outcome is not None:
        kind = {Verdict.PASS: "pass", Verdict.FAIL: "fail"}.get(entry.outcome.verdict, "other")
        kind = "none" if entry.outcome.verdict is Verdict.BUILT or _silent(entry) else kind
        kind += f" {entry.evidence.value}"
    return kind + (" surprise" if entry.surprise else "")


def _silent(entry: Entry) -> bool:
    """Whether a version has nothing to say here, which is no trouble."""
    return entry.outcome is not None and entry.outcome.cause is Cause.UNSUPPORTED_BY_VERSION
