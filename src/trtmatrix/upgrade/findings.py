"""The findings: each case at both versions, its work-arounds, and what they do to the decision. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trtmatrix.judge.confirm import CONFIRMING_BUILDS
from trtmatrix.judge.entry import Entry
from trtmatrix.suite.outcome import Evidence
from trtmatrix.suite.repros import Case, Repro, Workaround
from trtmatrix.upgrade.report import (
    CaseLine,
    Change,
    FindingLine,
    Side,
    Source,
    Weight,
    WorkaroundLine,
)
from trtmatrix.upgrade.sides import Entries, name_source
from trtmatrix.upgrade.standing import HEAVIEST, WORST, Standing, standing_of, weigh, weigh_own

WORKAROUND_CASES = "workaround-"
"""What the ids of cases begin with that try a work-around, also where FACTS names others for it."""

_WAS_RIGHT = frozenset({Standing.GOOD, Standing.FEW, Standing.SAID_GOOD})


def make_findings(entries: Entries, before: str, after: str) -> tuple[FindingLine, ...]:
    """Return one line a repro that was selected, what weighs most first."""
    selected: dict[str, list[Entry]] = {}
    for entry in entries.all:
        if entry.cell.version.name in {before, after} and not entry.cell.companion:
            selected.setdefault(entry.cell.repro.id, []).append(entry)
    lines = [_finding(mine, entries, before, after) for mine in selected.values()]
    return tuple(sorted((line for line in lines if line), key=_order))


def _order(line: FindingLine) -> tuple[int, int, str]:
    return HEAVIEST.index(line.weight), WORST.index(line.change), line.repro


def _finding(mine: Sequence[Entry], entries: Entries, before: str, after: str) -> FindingLine | None:
    repro = mine[0].cell.repro
    there = {e.cell.case.id for e in mine}
    cases = {case.id: case for case in repro.cases if case.id in there and case.control is None}
    workarounds = make_workarounds(repro, entries, after)
    tried = workaround_cases(repro)
    found = [make_case_line(repro.id, case, entries, before, after) for case in cases.values()]
    lines = [line for line in found if line.case not in tried or _is_lost(line)]
    lines = [_relieve(line, cases[line.case], workarounds, repro) for line in lines]
    if not lines:
        return None
    lines.sort(key=lambda line: (HEAVIEST.index(line.weight), WORST.index(line.change)))
    change = min((line.change for line in lines), key=WORST.index)
    weight = lines[0].weight
    return FindingLine(
        repro=repro.id, title=repro.title, upstream=repro.upstream, url=repro.url, change=change,
        weight=weight, why=_why_finding(lines), cases=tuple(lines), workarounds=workarounds,
    )  # fmt: skip


def workaround_cases(repro: Repro) -> frozenset[str]:
    """Return the cases that try a work-around: they are no finding by themselves."""
    named = {item.case for item in repro.workarounds if item.case}
    return frozenset(named | {case.id for case in repro.cases if case.id.startswith(WORKAROUND_CASES)})


def _is_lost(line: CaseLine) -> bool:
    """Whether a work-around was right before and is not after: whoever relies on it is worse off."""
    return line.change is Change.REGRESSED and standing_of(line.before) in _WAS_RIGHT


def make_workarounds(repro: Repro, entries: Entries, after: str) -> tuple[WorkaroundLine, ...]:
    """Return a repro's work-arounds with their own cases at the version moved to."""
    return tuple(_workaround(repro, item, entries, after) for item in repro.workarounds)


def _workaround(repro: Repro, item: Workaround, entries: Entries, after: str) -> WorkaroundLine:
    side = entries.side(repro.id, item.case, after) if item.case else None
    source = Source(title=name_source(item.source), url=item.source) if item.source else None
    return WorkaroundLine(
        what=item.what, case=item.case or "", after=side, source=source,
        counts=side is not None and standing_of(side) is Standing.GOOD,
    )  # fmt: skip


def make_case_line(
    repro: str, case: Case, entries: Entries, before: str, after: str, *, own: bool = False
) -> CaseLine:
    """Return a case at both versions. ``own``: it is of the user's own model, whose silence is lacking."""
    was, will = entries.side(repro, case.id, before), entries.side(repro, case.id, after)
    change, weight = (weigh_own if own else weigh)(standing_of(was), standing_of(will))
    return CaseLine(
        repro=repro, case=case.id, change=change, weight=weight, before=was, after=will,
        why=explain_line(was, will) + _drivers(was, will),
    )  # fmt: skip


def _drivers(before: Side, after: Side) -> str:
    """Say where both sides were measured with different drivers: the difference may be theirs."""
    if not before.driver or not after.driver or before.driver == after.driver:
        return ""
    return f"; measured with driver {before.driver} before, {after.driver} after"


def explain_line(before: Side, after: Side) -> str:
    """Say in a phrase what is known at the version moved to, and why it is not enough where it is not."""
    match standing_of(after):
        case Standing.GOOD:
            known = "right now" if standing_of(before) not in _WAS_RIGHT else "right at both"
            return f"{known}, {_engines(after)}" if after.counted else known
        case Standing.FEW:
            return f"right, but {_engines(after)}: {CONFIRMING_BUILDS} are wanted"
        case Standing.SAID_GOOD:
            return f"only reported to be right: {_reports(after)}"
        case Standing.SAID_BAD:
            return f"reported to be wrong: {_reports(after)}"
        case Standing.BAD:
            return f"{after.reason or 'wrong'} ({_engines(after)})" if after.builds else after.reason
        case Standing.BUILT:
            return "parsed and built, not run: nothing is known of its numbers"
        case Standing.UNKNOWN:
            return f"no evidence{f'; {after.reason}' if after.reason else ''}"
        case Standing.ABSENT:
            return after.reason or "no such case there"
        case Standing.BROKEN | Standing.UNSUPPORTED:
            cause = after.cause.value if after.cause else ""
            return ": ".join(part for part in (cause, after.reason) if part)
        case Standing.DOUBTED | Standing.VOID:
            return after.reason


def _engines(side: Side) -> str:
    return "1 build" if side.builds == 1 else f"{side.builds} builds"


def _reports(side: Side) -> str:
    return ", ".join(source.title for source in side.sources) or "by the repro"


def _relieve(line: CaseLine, case: Case, workarounds: Sequence[WorkaroundLine], repro: Repro) -> CaseLine:
    """Return a case that is bad now as needing a work-around, where one of the finding's passed there."""
    if line.weight is not Weight.AGAINST or line.case in workaround_cases(repro):
        return line
    helping = [item for item in workarounds if item.counts]
    if not helping:
        return line
    tried = {c.id: c.precision for c in repro.cases}
    others = {tried.get(item.case, "") for item in helping} - {""}
    beside = f", tried in {', '.join(sorted(others))}" if others and case.precision not in others else ""
    return replace(line, weight=Weight.WORKAROUND, why=f"{line.why}; a work-around passed{beside}")


def _why_finding(lines: Sequence[CaseLine]) -> str:
    """Count a finding's cases by change, then say what the weightiest of them says."""
    counts = [(change, sum(line.change is change for line in lines)) for change in WORST]
    words = [f"{count} {_CHANGE_WORDS[change]}" for change, count in counts if count]
    few = sum(standing_of(line.after) is Standing.FEW for line in lines)
    said = sum(line.after.evidence is Evidence.REPORTED for line in lines)
    words += [f"{few} right on fewer than {CONFIRMING_BUILDS} builds"] if few else []
    words += [f"{said} only reported"] if said else []
    return ", ".join(words)


_CHANGE_WORDS = {
    Change.REGRESSED: "worse", Change.UNCHANGED_BAD: "bad at both", Change.FIXED: "fixed",
    Change.UNCHANGED_GOOD: "right", Change.UNKNOWN: "unknown", Change.SAYS_NOTHING: "can say nothing",
}  # fmt: skip


def fixed_word(finding: FindingLine) -> str:
    """Say how a fixed finding is known, where that is not well enough; nothing of one that is not fixed."""
    fixed = [line for line in finding.cases if line.change is Change.FIXED]
    if finding.change is not Change.FIXED or finding.weight is not Weight.LACKING:
        return ""
    said = all(line.after.evidence is Evidence.REPORTED for line in fixed)
    return "reported to be fixed" if said else "fixed, not confirmed"
