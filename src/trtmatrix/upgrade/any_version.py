"""Which version to move to: the newest with nothing against it, and the nearest with a fix. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trtmatrix.upgrade.report import Change, Decision, FactLine, FindingLine, Upgrade, Weight
from trtmatrix.upgrade.standing import Standing, standing_of

_BEST_FIRST = (Decision.GO, Decision.GO_WITH_WORKAROUNDS, Decision.NOT_ENOUGH, Decision.DONT)
_GOOD = frozenset({Decision.GO, Decision.GO_WITH_WORKAROUNDS})


def choose_version(upgrades: Sequence[Upgrade], named: Sequence[str] = ()) -> Upgrade:
    """Return the report of the version to move to, with a reason for each other version.

    ``upgrades``: those to every newer version, oldest first, at least one. The newest with the answer go or
    go with work-arounds; else of those with the best answer the one of which most was seen to be right.
    ``named``: findings that the user asked about; the nearest version that fixes each is told.
    """
    good = [upgrade for upgrade in upgrades if upgrade.decision in _GOOD]
    best = min((upgrade.decision for upgrade in upgrades), key=_BEST_FIRST.index)
    rest = [upgrade for upgrade in upgrades if upgrade.decision is best]
    chosen = good[-1] if good else max(reversed(rest), key=_count_right)
    notes = [*_fixes(upgrades, named), *(_other(u) for u in reversed(upgrades) if u is not chosen)]
    what = f"{chosen.after} is the newest version with nothing against it."
    if not good:
        seen = "the one with most seen to be right" if _count_right(chosen) else "the newest"
        what = f"No newer version can be recommended yet; {chosen.after} is {seen} of the best answered."
    return replace(chosen, reasons=(*chosen.reasons, *notes), summary=f"{what} {chosen.summary}")


def _count_right(upgrade: Upgrade) -> int:
    """Return how many cases were seen to be right at a version, on however few builds."""
    lines = (line for finding in upgrade.findings for line in finding.cases)
    return sum(standing_of(line.after) in {Standing.GOOD, Standing.FEW} for line in lines)


def _other(upgrade: Upgrade) -> FactLine:
    """Return what was answered of another version, and why it is out where it is."""
    against = (reason for reason in upgrade.reasons if reason.weight is Weight.AGAINST)
    first = next(against, None) if upgrade.decision is Decision.DONT else None
    why = f": {first.topic}, {first.text}" if first else ""
    return FactLine(
        topic=upgrade.after, text=f"{upgrade.decision.value}{why}", weight=Weight.NOTE,
        known=first.known if first else "none", sources=first.sources if first else (),
    )  # fmt: skip


def _fixes(upgrades: Sequence[Upgrade], named: Sequence[str]) -> Iterator[FactLine]:
    """Yield the nearest version that fixes each finding that was named, and how that is known."""
    for name in named:
        lines = [(u.after, f) for u in upgrades for f in u.findings if f.repro == name]
        fixed = [(after, finding) for after, finding in lines if _is_fixed(finding)]
        sure = next(((after, f) for after, f in fixed if f.weight is Weight.FOR), None)
        after, finding = sure or next(iter(fixed), ("", None))
        if finding is None:
            text = f"{name}: no newer version is known to be right where {upgrades[0].before} is wrong"
            yield FactLine(topic="nearest fix", text=text, weight=Weight.NOTE, known="none")
            continue
        line = next(line for line in finding.cases if line.change is Change.FIXED)
        how = "" if sure else ", not confirmed"
        yield FactLine(
            topic="nearest fix", text=f"{name}: {after} ({line.before.word} → {line.after.word}){how}",
            weight=Weight.NOTE, known=line.after.evidence.value, sources=line.after.sources[:1],
        )  # fmt: skip


def _is_fixed(finding: FindingLine) -> bool:
    """Whether something of a finding is fixed and nothing of it is known to be bad."""
    changes = {line.change for line in finding.cases}
    return Change.FIXED in changes and not changes & {Change.REGRESSED, Change.UNCHANGED_BAD}
