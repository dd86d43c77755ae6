"""What changes for code, in an upgrade report: uses by file, behaviour, the difference of the surfaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trtmatrix.core.api import ApiChange, ApiUse, Behaviour, Certainty, ChangeKind
from trtmatrix.core.html.answers import capital, sources
from trtmatrix.core.html.pieces import Row, Words, chip, code, count, fold, items, lines, link, table, text
from trtmatrix.core.upgrade.report import ApiSection

KINDS = {
    ChangeKind.REMOVED: "bad",
    ChangeKind.CHANGED: "warn",
    ChangeKind.BEHAVIOUR: "warn",
    ChangeKind.DEPRECATED: "warn",
    ChangeKind.ADDED: "",
}


def render_api(api: ApiSection, before: str, after: str) -> Iterator[str]:
    """Yield the parts that there are: nothing of an API that was not looked at."""
    if api.lacking:
        yield f"<p>{chip('unsure', 'lacking')} {text(api.lacking)}</p>"
    if api.stands_in:
        yield f"<p>{chip('unsure', 'not read')} {text(api.stands_in)}</p>"
    yield from _uses(api)
    if api.unread:
        yield "<h3>Files that could not be read</h3>" + items(
            f"{code(file)}: {text(why)}" for file, why in api.unread
        )
    if api.behaviours:
        yield "<h3>Behaviour that changes under the same name</h3>" + items(map(_behaviour, api.behaviours))
    yield from _changes(api, before, after)
    if api.surfaces:
        yield f'<p class="small soft">Surfaces read from: {sources(api.surfaces)}</p>'


def _uses(api: ApiSection) -> Iterator[str]:
    if not api.code:
        return
    sure = [use for use in api.uses if use.certainty is Certainty.SURE]
    possible = len(api.uses) - len(sure)
    scanned = ", ".join(code(folder) for folder in api.code)
    found = ", ".join(
        f"{number} {kind.value}"
        for kind in ChangeKind
        if (number := sum(use.change.kind is kind for use in sure))
    )
    yield (
        f"<p>{count(api.files, 'file')} read in {scanned}: "
        f"<strong>{text(found) or 'no use of what changes'}</strong>"
        + (f", and {count(possible, 'possible use')}" if possible else "")
        + ".</p>"
    )
    by_file: dict[str, list[ApiUse]] = {}
    for use in api.uses:
        by_file.setdefault(use.file, []).append(use)
    for file, mine in by_file.items():
        label = f"{file}: {count(len(mine), 'use')}"
        heads = ["line", "use", "what happens", "instead", "source"]
        yield f"<h3>{code(file)}</h3>" + table(label, heads, [_use(use) for use in mine])


def _use(use: ApiUse) -> Row:
    change = use.change
    where = f"cell {use.cell}, {use.line}" if use.cell else str(use.line)
    name = f'{code(change.name)}<br><code class="line soft">{lines(use.text)}</code>'
    sure = "" if use.certainty is Certainty.SURE else f" {chip('unsure', use.certainty.value)}"
    why = f'<br><span class="small soft">{text(use.why)}</span>' if use.why else ""
    kind = f"{chip(KINDS[change.kind], change.kind.value)}{sure}{why}"
    return (text(where), Words(name), kind, Words(_instead(change)), _source(change))


def _instead(change: ApiChange) -> str:
    said = [code(change.replacement), text(change.note)]
    return "<br>".join(part for part in said if part) or '<span class="soft">not known</span>'


def _source(change: ApiChange | Behaviour) -> str:
    return f'<span class="small sources">{link(change.url, change.source)}</span>'


def _behaviour(found: Behaviour) -> str:
    about = f" ({', '.join(map(code, found.names))})" if found.names else ""
    return (
        f"<strong>{text(found.topic)}</strong>{about}: {text(found.text)} "
        f'<span class="soft small">{text(found.when)}</span> {_source(found)}'
    )


def _changes(api: ApiSection, before: str, after: str) -> Iterator[str]:
    """Yield each kind of the surfaces' difference, folded: there may be hundreds."""
    for kind in ChangeKind:
        found = [change for change in api.changes if change.kind is kind]
        if found:
            if kind is not next(k for k in ChangeKind if any(c.kind is k for c in api.changes)):
                title = ""
            else:
                title = f"<h3>The whole difference between {text(before)} and {text(after)}</h3>"
            yield title + fold(
                f"{capital(kind.value)}: {count(len(found), 'name')}", _difference(kind, found)
            )


def _difference(kind: ChangeKind, found: Sequence[ApiChange]) -> str:
    rows = (
        (code(change.name), Words(_signatures(change)), Words(_instead(change)), _source(change))
        for change in found
    )
    return table(f"{capital(kind.value)} names", ["name", "signatures", "instead", "source"], rows)


def _signatures(change: ApiChange) -> str:
    both = [
        f"{name} {code(value)}" for name, value in (("was", change.before), ("is", change.after)) if value
    ]
    return "<br>".join(both)
