"""An upgrade report as files: GitHub Markdown for a pull request, and one HTML page that loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from trtmatrix.common.words import short
from trtmatrix.tables.html_page import COPY, GLYPHS, is_safe, make_style
from trtmatrix.tables.html_page import render_page as render_shell
from trtmatrix.tables.markdown import MOST_CHARACTERS, bullets, code, fence, fold, link, plain, table
from trtmatrix.tables.plots import Plot, render_figure
from trtmatrix.tables.table import one_line
from trtmatrix.upgrade.document import (
    Block,
    Command,
    Document,
    Figure,
    Fold,
    Item,
    Lines,
    Span,
    Table,
    Words,
)
from trtmatrix.upgrade.report import count

_STYLE = """
.name { min-width: 15rem; }
.bars { list-style: none; padding: 0; max-width: 66rem; } .bars li { margin: .6rem 0; }
.bar { display: grid; grid-template-columns: 5rem 1fr 15rem; gap: .6rem; align-items: center; }
.bar svg { width: 100%; height: 1rem; } .bar rect { fill: var(--mark-line); }
.bar .bad { fill: var(--mark-bad); } .bar .good { fill: var(--mark-good); }
.bar path { stroke: var(--ink); stroke-width: 2; vector-effect: non-scaling-stroke; }
@media (max-width: 40rem) { .bar { grid-template-columns: 1fr; gap: 0; } }
.in1 { margin-left: 1.2rem; } .in2 { margin-left: 2.4rem; } .in3 { margin-left: 3.6rem; }
"""

_MOST = 60
"""So many rows of a table are shown; a pull request is not the place for more."""

_CUT = "… {} left out: GitHub takes no longer text; the HTML page and the JSON have them."


def render_markdown(document: Document) -> str:
    """Return the report; parts that would make it longer than GitHub takes are left out, and that is told."""
    parts = [f"## {plain(document.title)}: {document.answer}"]
    parts += [f"**{plain(document.summary)}**"] if document.summary else []
    parts += [plain(document.where)] if document.where else []
    parts += _render_block(document.reasons)
    for section in document.sections:
        blocks = [part for block in section.blocks for part in _render_block(block)]
        parts += [f"### {section.title}", *blocks]
    parts += [f"Made by\n\n{fence(document.command)}"] if document.command else []
    parts += [f"Generated {plain(document.generated)}."] if document.generated else []
    return _fit(parts)


def _fit(parts: Sequence[str]) -> str:
    """Join what fits: what is folded yields first, the longest of it first of all."""
    room = MOST_CHARACTERS - len(_CUT) - 8
    shortest = sorted(range(len(parts)), key=lambda number: (_folds(parts[number]), len(parts[number])))
    if any(not _folds(part) and len(part) > room for part in parts):
        shortest = list(range(len(parts)))
    kept, left = set(), room
    for number in shortest:
        if len(parts[number]) + 2 <= left:
            left -= len(parts[number]) + 2
            kept.add(number)
    gone = [part for number, part in enumerate(parts) if number not in kept]
    noun = "fold" if all(map(_folds, gone)) else "part"
    told = [_CUT.format(count(len(gone), noun))] if gone else []
    return "\n\n".join([*(part for number, part in enumerate(parts) if number in kept), *told]) + "\n"


def _folds(part: str) -> bool:
    return part.startswith("<details>")


def _render_block(block: Block, *, inner: bool = False) -> Iterator[str]:
    """Yield a block's parts; what unfolds under a row follows its table, once: not inside a fold."""
    match block:
        case Lines(items=items):
            more = f"\n- … and {len(items) - 4 * _MOST} more" if len(items) > 4 * _MOST else ""
            if items:
                yield bullets(map(_render_item, items[: 4 * _MOST])) + more
        case Table(rows=rows):
            more = f"\n\n… and {len(rows) - _MOST} more" if len(rows) > _MOST else ""
            if block.numbers:
                yield f"{plain(block.label)}:"
            yield table(block.heads, ([_render_words(c) for c in row.cells] for row in rows[:_MOST])) + more
            if not inner:
                for row in rows[:_MOST]:
                    under = [f for f in row.under if f.title != "evidence"]
                    yield from (part for f in under for part in _render_block(f))
        case Fold(title=title, blocks=blocks):
            yield fold(title, "\n\n".join(part for b in blocks for part in _render_block(b, inner=True)))
        case Command(text=text) if text:
            yield fence(text)
        case Figure(plot=plot):
            yield fold(f"{plot.title} ({plot.unit})", _render_plot(plot))
        case _:
            pass


def _render_item(item: Item) -> str:
    known = item.known if item.known != "none" else ""
    cited = "; ".join(
        link(s.url, s.title) if s.url else code(s.title) for s in item.sources if s.title + s.url
    )
    how = " · ".join(part for part in (plain(known), cited) if part)
    mark = f"**{plain(item.mark.text)}**: " if item.mark else ""
    return f"{'  ' * item.depth}{mark}{_render_words(item.words)}" + (f" ({how})" if how else "")


def _render_words(words: Words) -> str:
    return "".join(map(_render_span, words)).strip()


def _render_span(word: str | Span) -> str:
    """Return words escaped; the blanks around them stay outside of their marks."""
    span = Span(word) if isinstance(word, str) else word
    text = span.text.strip()
    if not text:
        return " " if span.text else ""
    before, after = (" " if blank else "" for blank in (span.text[0] == " ", span.text[-1] == " "))
    if span.url:
        shown = link(span.url, text)
    elif span.kind == "code":
        shown = code(text)
    else:
        shown = f"**{plain(text)}**" if span.kind in {"strong", "chip"} else plain(text)
    return f"{before}{shown}{after}"


def _render_plot(plot: Plot) -> str:
    """Return a plot's values as a table."""
    rows = []
    for line in plot.series[:_MOST]:
        at = {p.version: p.word or short(p.value) for p in line.points if p.value is not None}
        rows.append([code(line.label), *(plain(at.get(version, "")) for version in plot.versions)])
    return table(["", *plot.versions], rows)


def render_page(document: Document) -> str:
    """Return the page; what the report does not have is not shown."""
    body = _template().render(doc=document, figure=_figure, glyphs=GLYPHS)
    title = f"{document.title}: {document.answer.lower()}"
    return render_shell(title, [body], style=make_style(_STYLE), script=COPY)


@cache
def _template() -> Template:
    """Return the template; everything is escaped, and a wrong name is an error."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=StrictUndefined,
    )  # fmt: skip
    environment.filters["line"] = _line
    environment.filters["typed"] = _typed
    environment.tests["safe_link"] = is_safe
    return environment.get_template("report.html")


def _line(text: str) -> str:
    """Return a text as one line; blanks at its ends, which part it from its neighbours, stay."""
    words = one_line(text, 4000)
    return f"{' ' * text.startswith(' ')}{words}{' ' * text.endswith(' ')}"


def _typed(text: str) -> str:
    """Return a text with its line breaks; other control characters become spaces."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def _figure(plot: Plot) -> Markup:
    return Markup(render_figure(plot))  # noqa: S704 - made of escaped texts
