"""The API part of an upgrade report in a few lines: counts, what of it the user's code uses and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trtmatrix.core.api import ApiChange, ApiUse, Certainty, ChangeKind
from trtmatrix.core.upgrade.report import ApiSection

MOST_NAMES = 20
MOST_PLACES = 6
MOST_UNREAD = 5
_ORDER = (
    ChangeKind.REMOVED,
    ChangeKind.CHANGED,
    ChangeKind.BEHAVIOUR,
    ChangeKind.DEPRECATED,
    ChangeKind.ADDED,
)


def render_api_lines(api: ApiSection, before: str, after: str) -> Iterator[str]:
    """Yield what changed, what of it the user's code uses, and how to see all; sentences, not wrapped."""
    if api.lacking:
        yield f"No difference to show: {api.lacking}"
        return
    if api.stands_in:
        yield api.stands_in
    counts = {kind: sum(change.kind is kind for change in api.changes) for kind in _ORDER}
    words = ", ".join(f"{count} {kind.value}" for kind, count in counts.items() if count)
    yield f"{words or 'nothing changed'}: nox -s upgrade -- --from {before} --to {after} --api tells each"
    # What belongs to one release whatever the two are, the engines' own section says.
    topics = [behaviour.topic for behaviour in api.behaviours if behaviour.since]
    if topics:
        yield f"what names do not show: {'; '.join(topics)}"
    if not api.code:
        return
    yield f"{', '.join(api.code)}: {api.files} files read, {len(api.uses)} uses of what changes"
    yield from _uses(api.uses)
    for file, why in api.unread[:MOST_UNREAD]:
        yield f"{file} could not be read: {why}"
    if len(api.unread) > MOST_UNREAD:
        yield f"… {len(api.unread) - MOST_UNREAD} more files could not be read: -o report.html"


def _uses(uses: Sequence[ApiUse]) -> Iterator[str]:
    """Yield each name that is used with the places where it is, the surest and worst first."""
    places: dict[tuple[ApiChange, Certainty], list[ApiUse]] = {}
    for use in sorted(uses, key=_weight):
        places.setdefault((use.change, use.certainty), []).append(use)
    for (change, certainty), mine in list(places.items())[:MOST_NAMES]:
        yield _name(change, certainty, mine)
    if len(places) > MOST_NAMES:
        yield f"… {len(places) - MOST_NAMES} more names: -o report.html"


def _weight(use: ApiUse) -> tuple[bool, int, str, int, int]:
    sure = use.certainty is Certainty.SURE
    return not sure, _ORDER.index(use.change.kind), use.file, use.cell, use.line


def _name(change: ApiChange, certainty: Certainty, uses: Sequence[ApiUse]) -> str:
    kind = change.kind.value if certainty is Certainty.SURE else f"possibly {change.kind.value}"
    instead = f", instead {change.replacement}" if change.replacement else ""
    source = f" [{change.source}]" if change.source else ""
    where = ", ".join(f"{u.file}{f' cell {u.cell}' if u.cell else ''}:{u.line}" for u in uses[:MOST_PLACES])
    more = f" and {len(uses) - MOST_PLACES} more" if len(uses) > MOST_PLACES else ""
    why = f" ({uses[0].why})" if uses[0].why else ""
    return f"{change.name}, {kind}: {where}{more}{why}{instead}{source}"
