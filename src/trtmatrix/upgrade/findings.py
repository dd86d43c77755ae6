"""The findings: each case at both versions, its work-arounds, and what they do to the decision. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trtmatrix.judge.confirm import CONFIRMING_BUILDS
from trtmatrix.judge.entry import Entry
from trtmatrix.suite.outcome import Evidence
from trtmatrix.suite.repros import Case, Repro
from trtmatrix.upgrade.report import CaseLine, Change, FindingLine, Side, Source, Weight, WorkaroundLine
from trtmatrix.upgrade.sides import (
    HEAVIEST,
    WORST,
    Entries,
    Standing,
    name_source,
    standing_of,
    weigh,
    weigh_own,
)

WORKAROUND_CASES = "workaround-"
"""What the ids of cases begin with that try a work-around, also where FACTS names others for it."""

_WAS_RIGHT = frozenset({Standing.GOOD, Standing.FEW, Standing.SAID_GOOD})
_CHANGE_WORDS = {
    Change.REGRESSED: "worse", Change.UNCHANGED_BAD: "bad at both", Change.FIXED: "fixed",
    Change.UNCHANGED_GOOD: "right", Change.UNKNOWN: "unknown", Change.SAYS_NOTHING: "can say nothing",
}  # fmt: skip


def make_findings(entries: Entries, before: str, after: str) -> tuple[FindingLine, ...]:
    """Return one line a repro that was selected, what weighs most first."""
    selected: dict[str, list[Entry]] = {}
    for entry in entries.all:
        if entry.cell.version.name in {before, after} and not entry.cell.companion:
            selected.setdefault(entry.cell.repro.id, []).append(entry)
    lines = [_make_finding(mine, entries, before, after) for mine in selected.values()]
    found = (line for line in lines if line)
    return tuple(sorted(found, key=lambda f: (HEAVIEST.index(f.weight), WORST.index(f.change), f.repro)))


def _make_finding(mine: Sequence[Entry], entries: Entries, before: str, after: str) -> FindingLine | None:
    """Return a finding of all its cases but controls, and but those that try a work-around.

    A work-around that was right before and is not after counts all the same: whoever relies on it loses.
    """
    repro, there = mine[0].cell.repro, {e.cell.case.id for e in mine}
    workarounds = tuple(_make_workarounds(repro, entries, after))
    tries = {item.case for item in repro.workarounds if item.case}
    tries |= {case.id for case in repro.cases if case.id.startswith(WORKAROUND_CASES)}
    lines = []
    for case in repro.cases:
        if case.id not in there or case.control is not None:
            continue
        line = make_case_line(repro.id, case, entries, before, after)
        if case.id not in tries:
            lines.append(_relieve(line, case, workarounds, repro))
        elif line.change is Change.REGRESSED and standing_of(line.before) in _WAS_RIGHT:
            lines.append(line)
    if not lines:
        return None
    lines.sort(key=lambda line: (HEAVIEST.index(line.weight), WORST.index(line.change)))
    return FindingLine(
        repro=repro.id, title=repro.title, upstream=repro.upstream, url=repro.url,
        change=min((line.change for line in lines), key=WORST.index), weight=lines[0].weight,
        why=_count_cases(lines), cases=tuple(lines), workarounds=workarounds,
    )  # fmt: skip


def _make_workarounds(repro: Repro, entries: Entries, after: str) -> list[WorkaroundLine]:
    """Return a repro's work-arounds with their own cases at the version moved to."""
    lines = []
    for item in repro.workarounds:
        side = entries.side(repro.id, item.case, after) if item.case else None
        source = Source(title=name_source(item.source), url=item.source) if item.source else None
        counts = side is not None and standing_of(side) is Standing.GOOD
        lines.append(
            WorkaroundLine(what=item.what, case=item.case or "", after=side, source=source, counts=counts)
        )
    return lines


def _relieve(line: CaseLine, case: Case, workarounds: Sequence[WorkaroundLine], repro: Repro) -> CaseLine:
    """Return a case that is bad now as needing a work-around, where one of the finding's passed there."""
    helping = [item.case for item in workarounds if item.counts]
    if line.weight is not Weight.AGAINST or not helping:
        return line
    others = {c.precision for c in repro.cases if c.id in helping} - {""}
    beside = f", tried in {', '.join(sorted(others))}" if others and case.precision not in others else ""
    return replace(line, weight=Weight.WORKAROUND, why=f"{line.why}; a work-around passed{beside}")


def make_case_line(
    repro: str, case: Case, entries: Entries, before: str, after: str, *, own: bool = False
) -> CaseLine:
    """Return a case at both versions. ``own``: it is of the user's own model, whose silence is lacking."""
    was, will = entries.side(repro, case.id, before), entries.side(repro, case.id, after)
    change, weight = (weigh_own if own else weigh)(standing_of(was), standing_of(will))
    why = _explain(was, will)
    if was.driver and will.driver and was.driver != will.driver:
        why += f"; measured with driver {was.driver} before, {will.driver} after"
    return CaseLine(repro=repro, case=case.id, change=change, weight=weight, before=was, after=will, why=why)


def _explain(before: Side, after: Side) -> str:
    """Say in a phrase what is known at the version moved to, and why it is not enough where it is not."""
    engines = "1 build" if after.builds == 1 else f"{after.builds} builds"
    reports = ", ".join(source.title for source in after.sources) or "by the repro"
    match standing_of(after):
        case Standing.GOOD:
            known = "right at both" if standing_of(before) in _WAS_RIGHT else "right now"
            return f"{known}, {engines}" if after.counted else known
        case Standing.FEW:
            return f"right, but {engines}: {CONFIRMING_BUILDS} are wanted"
        case Standing.SAID_GOOD:
            return f"only reported to be right: {reports}"
        case Standing.SAID_BAD:
            return f"reported to be wrong: {reports}"
        case Standing.BAD:
            return f"{after.reason or 'wrong'} ({engines})" if after.builds else after.reason
        case Standing.BUILT:
            return "parsed and built, not run: nothing is known of its numbers"
        case Standing.UNKNOWN:
            return f"no evidence{f'; {after.reason}' if after.reason else ''}"
        case Standing.ABSENT:
            return after.reason or "no such case there"
        case Standing.BROKEN | Standing.UNSUPPORTED:
            return ": ".join(
                part for part in (after.cause.value if after.cause else "", after.reason) if part
            )
        case Standing.DOUBTED | Standing.VOID:
            return after.reason


def _count_cases(lines: Sequence[CaseLine]) -> str:
    """Count a finding's cases by change, then those that are not known well enough."""
    counts = [(sum(line.change is change for line in lines), _CHANGE_WORDS[change]) for change in WORST]
    few = sum(standing_of(line.after) is Standing.FEW for line in lines)
    counts += [(few, f"right on fewer than {CONFIRMING_BUILDS} builds")]
    counts += [(sum(line.after.evidence is Evidence.REPORTED for line in lines), "only reported")]
    return ", ".join(f"{count} {words}" for count, words in counts if count)


def fixed_word(finding: FindingLine) -> str:
    """Say how a fixed finding is known, where that is not well enough; nothing of one that is not fixed."""
    if finding.change is not Change.FIXED or finding.weight is not Weight.LACKING:
        return ""
    fixed = [line for line in finding.cases if line.change is Change.FIXED]
    said = all(line.after.evidence is Evidence.REPORTED for line in fixed)
    return "reported to be fixed" if said else "fixed, not confirmed"
