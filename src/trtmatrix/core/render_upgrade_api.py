"""The API part of an upgrade report in a few lines: counts, the uses in the user's code."""

from __future__ import annotations

from collections.abc import Iterator

from trtmatrix.core.api import ApiUse, Certainty, ChangeKind
from trtmatrix.core.upgrade.report import ApiSection

MOST_USES = 20
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
    counts = {kind: sum(change.kind is kind for change in api.changes) for kind in _ORDER}
    words = ", ".join(f"{count} {kind.value}" for kind, count in counts.items() if count)
    yield f"{words or 'nothing changed'}: nox -s upgrade -- --from {before} --to {after} --api lists them"
    for behaviour in api.behaviours:
        yield f"{behaviour.topic} (since {behaviour.since}): {behaviour.text} [{behaviour.source}]"
    if not api.code:
        return
    yield f"{', '.join(api.code)}: {api.files} files read, {len(api.uses)} uses of what changes"
    uses = sorted(api.uses, key=_weight)
    yield from (_use(use) for use in uses[:MOST_USES])
    if len(uses) > MOST_USES:
        yield f"… {len(uses) - MOST_USES} more uses: -o report.html"
    for file, why in api.unread:
        yield f"{file} could not be read: {why}"


def _weight(use: ApiUse) -> tuple[bool, int, str, int, int]:
    sure = use.certainty is Certainty.SURE
    return not sure, _ORDER.index(use.change.kind), use.file, use.cell, use.line


def _use(use: ApiUse) -> str:
    cell = f" cell {use.cell}" if use.cell else ""
    kind = use.change.kind.value if use.certainty is Certainty.SURE else f"possibly {use.change.kind.value}"
    instead = f": write {use.change.replacement}" if use.change.replacement else ""
    source = f" [{use.change.source}]" if use.change.source else ""
    why = f" ({use.why})" if use.why else ""
    return f"{use.file}{cell}:{use.line}: {use.change.name}, {kind}{instead}{why}{source}"
