"""Small pieces of markup: escaped texts, links, tables in regions of their own, parts that fold open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from trtmatrix.tables.table import one_line

_LONGEST = 4000
GLYPHS = {"good": "✓", "bad": "✕", "warn": "!", "unsure": "?", "": "·"}
"""What stands beside a colour, so that colour is never all there is."""


def text(value: str) -> str:
    """Return a text as one line, escaped for an element or a quoted attribute."""
    return escape(one_line(value, _LONGEST), quote=True)


def lines(value: str) -> str:
    """Return a text with its line breaks, escaped; other control characters become spaces."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else " " for c in value)
    return escape(shown, quote=True)


def is_safe(url: str) -> bool:
    """Whether an address may become a link: https, and nothing that could end the attribute."""
    return url.startswith("https://") and url.isprintable() and not any(c.isspace() for c in url)


def link(url: str, words: str) -> str:
    """Return a link, or the words alone where the address is none that may be followed."""
    return f'<a href="{text(url)}">{text(words or url)}</a>' if is_safe(url) else text(words)


def code(value: str) -> str:
    """Return a text as code."""
    return f"<code>{text(value)}</code>" if value else ""


def chip(kind: str, words: str) -> str:
    """Return a word with the colour and the sign of its kind: good, bad, warn, unsure or none."""
    sign = f'<span aria-hidden="true">{GLYPHS[kind]}</span> ' if kind else ""
    return f'<span class="chip {kind}">{sign}{text(words)}</span>'.replace('chip "', 'chip"')


def items(found: Iterable[str], kind: str = "") -> str:
    """Return markup as a list, or nothing."""
    listed = "\n".join(f"<li>{item}</li>" for item in found)
    name = f' class="{kind}"' if kind else ""
    return f"<ul{name}>\n{listed}\n</ul>" if listed else ""


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names with markup as a list of terms, or nothing."""
    listed = "".join(f"<dt>{text(name)}</dt><dd>{value}</dd>" for name, value in pairs)
    return f'<dl class="facts">{listed}</dl>' if listed else ""


def region(label: str, markup: str) -> str:
    """Return what may be wider than the page, in a region that scrolls by itself, also by keyboard."""
    return f'<div class="wide" role="region" tabindex="0" aria-label="{text(label)}">\n{markup}\n</div>'


class Words(str):
    """A cell's markup that is prose, which is not squeezed."""

    __slots__ = ()


Row = Sequence[str]
"""A table's row as markup; its first cell is the row's head."""


def table(label: str, heads: Sequence[str], rows: Iterable[Row], *, numbers: bool = False) -> str:
    """Return a table in its region; ``heads`` and ``label`` are texts.

    ``numbers``: all but the row's head stand to the right. On a phone a cell stands below the other, with its
    head before it.
    """
    body = "\n".join(table_row(cells, heads, numbers=numbers) for cells in rows)
    bodies = f'<tbody role="rowgroup">\n{body}\n</tbody>'
    return region(label, whole_table(label, heads, bodies, numbers=numbers))


def whole_table(label: str, heads: Sequence[str], bodies: str, *, numbers: bool = False) -> str:
    """Return a table around the markup of its bodies.

    On a phone it is no table to a browser any more: its roles are written out, for those who hear it.
    """
    kind = ' class="num"' if numbers else ""
    top = "".join(
        f'<th scope="col" role="columnheader"{kind if number else ""}>{text(head)}</th>'
        for number, head in enumerate(heads)
    )
    return (
        f'<table class="stacked" role="table">\n<caption class="hear">{text(label)}</caption>\n'
        f'<thead role="rowgroup"><tr role="row">{top}</tr></thead>\n{bodies}\n</table>'
    )


def table_row(cells: Row, heads: Sequence[str], *, numbers: bool = False) -> str:
    """Return a row's markup."""
    first, *others = cells
    made = ""
    for cell, head in zip(others, heads[1:], strict=True):
        kind = "words" if isinstance(cell, Words) else "num" if numbers else ""
        named = f' class="{kind}"' if kind else ""
        shown = f"<div>{cell}</div>" if cell else ""
        made += f'<td{named} role="cell" data-label="{text(head)}">{shown}</td>'
    return f'<tr role="row"><th scope="row" role="rowheader">{first}</th>{made}</tr>'


def fold(summary: str, markup: str, *, opened: bool = False, printed: bool = True) -> str:
    """Return a part that folds open; ``printed``: on paper it is open."""
    kind = ' class="print"' if printed else ""
    return f"<details{kind}{' open' if opened else ''}><summary>{summary}</summary>\n{markup}\n</details>"


def section(name: str, title: str, *parts: str) -> str:
    """Return a section with its heading, or nothing where it has no parts."""
    shown = [part for part in parts if part]
    if not shown:
        return ""
    joined = "\n".join(shown)
    heading = f'<h2 id="{name}-h">{text(title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-h">\n{heading}\n{joined}\n</section>'


def command(value: str) -> str:
    """Return a command as it is to be typed; a page's script adds the button that copies it."""
    return f'<pre class="command"><code>{lines(value)}</code></pre>' if value else ""


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 case``, ``3 cases``."""
    return f"{number} {one if number == 1 else many or one + 's'}"
