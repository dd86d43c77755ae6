"""What changes for code as a part of an HTML page: the lines of the text as headings and lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from trtmatrix.api.report import Line, count_changes, tell_api
from trtmatrix.api.types import ApiSection
from trtmatrix.tables.html_pieces import code, fold, items, link, text


def render_api(api: ApiSection, before: str, after: str) -> Iterator[str]:
    """Yield what is told of code, if any was named, and the whole difference, folded: it may be long."""
    if api.code or api.lacking:
        yield f"<p>{', '.join(map(code, api.code))}</p>" + _render(tell_api(api))
    if api.changes:
        difference = ApiSection(changes=api.changes, surfaces=api.surfaces)
        if not api.code:
            difference = replace(api, unread=())
        title = f"The whole difference between {before} and {after}: {count_changes(api.changes)}"
        yield fold(text(title), _render(tell_api(difference)))


def _render(told: Iterable[Line]) -> str:
    """Return lines as markup: what stands at the margin is a heading, what is indented an item below it."""
    parts: list[str] = []
    entries: list[str] = []
    for depth, said in [*told, (0, "")]:
        if depth == 0:
            parts += [items(entries), f"<h3>{text(said)}</h3>" if said else ""]
            entries = []
        elif depth == 2 or not entries:
            entries.append(_line(said))
        else:
            entries[-1] += f"<br>{code(said[2:]) if said.startswith('| ') else _line(said)}"
    return "\n".join(part for part in parts if part)


def _line(said: str) -> str:
    """Return a line as markup; the address at the end of a source is a link."""
    source = re.fullmatch(r"(\[\d+\] .*?)(https://\S+)", said)
    return text(source[1]) + link(source[2], source[2]) if source else text(said)
