"""Tables as one HTML page that needs nothing else: no network, no script, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from trtmatrix.core.config import Version
from trtmatrix.core.details import describe
from trtmatrix.core.entry import Entry
from trtmatrix.core.model import Cause, Verdict
from trtmatrix.core.remarks import (
    find_contradicted,
    find_overruled,
    find_silent,
    find_surprises,
    find_unanswered,
)
from trtmatrix.core.summary import count_lines, count_products
from trtmatrix.core.table import Row, Section, Table, make_tables, one_line
from trtmatrix.core.twins import TwinRow
from trtmatrix.core.words import cell_text, has_evidence, legend

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1c1f23; --soft: #5a626b; --line: #d3d8de;
  --head: #eef1f4; --pass: #dff3e3; --fail: #fbdcdc; --other: #fff0c9; --link: #0757b0; }
@media (prefers-color-scheme: dark) {
  :root { --page: #15181c; --ink: #e7eaee; --soft: #a3acb6; --line: #3a4149; --head: #232930;
    --pass: #163d22; --fail: #571d20; --other: #4a3b0d; --link: #86b9f5; } }
body { margin: 1.5rem; background: var(--page); color: var(--ink); font: 15px/1.45 system-ui,
  sans-serif; }
a { color: var(--link); }
code { overflow-wrap: anywhere; }
.soft { color: var(--soft); font-weight: normal; }
.wide { overflow: auto; max-height: 92vh; border: 1px solid var(--line); margin: 1.5rem 0; }
table { border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: bold; padding: .5rem .6rem; }
th, td { text-align: left; vertical-align: top; padding: .2rem .6rem; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
thead th { position: sticky; top: 0; z-index: 2; background: var(--head); }
tbody th[scope=row] { position: sticky; left: 0; background: var(--page); font-weight: normal; }
tbody th[scope=rowgroup] { background: var(--head); white-space: normal; }
thead th:first-child { left: 0; z-index: 3; }
.pass { background: var(--pass); } .fail { background: var(--fail); }
.other { background: var(--other); } .recorded { font-style: italic; }
.reported, .none { color: var(--soft); }
.surprise { font-weight: bold; outline: 2px solid currentColor; outline-offset: -2px; }
summary { cursor: pointer; list-style: none; }
summary::-webkit-details-marker { display: none; }
summary:focus-visible { outline: 2px solid var(--link); }
dl { margin: .3rem 0; max-width: 26rem; white-space: normal; font-weight: normal;
  font-style: normal; color: var(--ink); overflow-wrap: anywhere; }
dt { color: var(--soft); font-size: .85em; } dd { margin: 0 0 .2rem; }
@media print { .wide { overflow: visible; max-height: none; } thead th { position: static; } }
""".strip()


def render_html(entries: Sequence[Entry], *, generated: str, all_rows: bool = False) -> str:
    """Return the page. ``generated`` is the time to show; folded rows are listed by their ids.

    The page has no script, and its policy forbids to load anything. All text is escaped, and only
    ``https`` addresses become links.
    """
    tables = make_tables(entries, all_rows=all_rows)
    body = [
        "<h1>TensorRT version matrix</h1>",
        f'<p class="soft">Generated {_text(generated)}</p>',
        _list(_counts(entries)),
        *_remarks(entries),
        _legend(tables),
        *(_table(table) for table in tables),
    ]
    return "\n".join((*_head(), "<body>", *body, "</body>", "</html>")) + "\n"


def _head() -> tuple[str, ...]:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<title>TensorRT version matrix</title>",
        f"<style>\n{_STYLE}\n</style>",
        "</head>",
    )


def _text(text: str) -> str:
    """Return a text as one line, escaped for an element or a quoted attribute."""
    return escape(one_line(text, 2000), quote=True)


def _list(items: Iterable[str]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{item}</li>" for item in items) + "\n</ul>"


def _link(url: str, text: str) -> str:
    return f'<a href="{_text(url)}">{_text(text)}</a>' if _safe(url) else _text(text)


def _safe(url: str) -> bool:
    return url.startswith("https://") and not any(c.isspace() for c in url)


def _counts(entries: Sequence[Entry]) -> Iterator[str]:
    for counts in count_products(entries):
        first, *more = count_lines(counts)
        soft = "".join(f'<br><span class="soft">{_text(line)}</span>' for line in more)
        yield f"<strong>{_text(first)}</strong>{soft}"


def _remarks(entries: Sequence[Entry]) -> Iterator[str]:
    remarks = (
        ("Surprises", [str(item) for item in find_surprises(entries)]),
        ("Says nothing", [str(item) for item in find_silent(entries)]),
        ("No verdict", [str(item) for item in find_unanswered(entries)]),
        ("Set aside", find_overruled(entries)),
        ("Facts of matrix.yaml that images contradict", find_contradicted(entries)),
    )
    for title, items in remarks:
        if items:
            yield f"<h2>{title}</h2>\n" + _list(_text(item) for item in items)


def _legend(tables: Sequence[Table]) -> str:
    items = legend(entry for table in tables for entry in table.shown())
    words = (f"<strong>{_text(mark)}</strong>&nbsp;{_text(meaning)}" for mark, meaning in items)
    return f"<p>{'; '.join(words)}</p>" if items else ""


def _table(table: Table) -> str:
    heads = "".join(_column(version) for version in table.columns)
    return "\n".join(
        (
            f'<div class="wide" role="region" aria-label="{_text(table.title)}" tabindex="0">',
            f"<table>\n<caption>{_text(table.title)}</caption>",
            f'<thead><tr><th scope="col">case</th>{heads}</tr></thead>',
            *(_section(section, len(table.columns)) for section in table.sections),
            "</table>\n</div>",
        )
    )


def _column(version: Version) -> str:
    note = f' title="{_text(version.note)}"' if version.note else ""
    return f'<th scope="col"{note}>{_text(version.name)}</th>'


def _section(section: Section, columns: int) -> str:
    repro = section.repro
    heading = (
        f"{_text(repro.id)} — {_text(repro.title)} · {_link(repro.url, repro.upstream)} "
        f'<span class="soft">· {_text(section.figure)}</span>'
    )
    rows = [f'<tr><th scope="rowgroup" colspan="{columns + 1}">{heading}</th></tr>']
    rows += [_row(row) for row in section.rows]
    rows += [_twin(twin) for twin in section.twins]
    if section.folded:
        rows.append(f'<tr><td class="none" colspan="{columns + 1}">{_folded(section)}</td></tr>')
    return "\n".join(("<tbody>", *rows, "</tbody>"))


def _folded(section: Section) -> str:
    names = "<br>".join(_text(row.label) for row in section.folded)
    return f"<details><summary>{_text(section.fold_line)}</summary>{names}</details>"


def _row(row: Row) -> str:
    cells = "".join(_cell(entry) for entry in row.entries)
    return f'<tr><th scope="row">{_text(row.label)}</th>{cells}</tr>'


def _twin(twin: TwinRow) -> str:
    cells = "".join(f"<td>{_text(text)}</td>" for text in twin.texts)
    return f'<tr class="soft"><th scope="row">{_text(twin.label)}</th>{cells}</tr>'


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return "<td></td>"
    facts = [(name, _text(value), _safe(value)) for name, value in describe(entry)]
    title = "&#10;".join(f"{name}: {text}" for name, text, _ in facts)
    terms = "".join(
        f'<dt>{name}</dt><dd><a href="{text}">{text}</a></dd>' if safe else f"<dt>{name}</dt><dd>{text}</dd>"
        for name, text, safe in facts
    )
    return (
        f'<td class="{_classes(entry)}" title="{title}"><details>'
        f"<summary>{_text(cell_text(entry))}</summary><dl>{terms}</dl></details></td>"
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
