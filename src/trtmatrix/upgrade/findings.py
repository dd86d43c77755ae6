"""The findings: each case at both versions, how it is known, what it does to the decision. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from trtmatrix.common.text import counted, name_source
from trtmatrix.judge.compare import CONFIRMING_BUILDS
from trtmatrix.judge.controls import Controls
from trtmatrix.judge.entry import Entry, cell_text
from trtmatrix.judge.noise import NOT_CALIBRATED, Calibration
from trtmatrix.suite.model import Cause, Evidence, Exclusion, Outcome, Product, Verdict
from trtmatrix.suite.repros import Case, Expectation
from trtmatrix.tables.answer import State, state_of
from trtmatrix.tables.page import floors_of
from trtmatrix.upgrade.report import CaseLine, Change, FindingLine, Side, Source, Weight, WorkaroundLine

NOT_FUSED = ("right, but", "right, not fused")
"""What the reason begins with of a case that is right and was not fused: such a FAIL is slow, not wrong."""
WORKAROUND_CASES = "workaround-"
"""What the ids of cases begin with that try a work-around, also where FACTS names others for it."""


class Entries:
    """The entries of one GPU, by case and version."""

    def __init__(self, entries: Sequence[Entry], calibration: Calibration = NOT_CALIBRATED) -> None:
        """Sort them once; controls are looked for among all."""
        self.all, self.calibration = tuple(entries), calibration
        self._by_key = {(e.cell.repro.id, e.cell.case.id, e.cell.version.name): e for e in entries}
        self._controls = Controls(entries)

    def at(self, repro: str, case: str, version: str) -> Entry | None:
        """Return what a case shows at a version; None where it is no case of that version's product."""
        return self._by_key.get((repro, case, version))

    def side(self, repro: str, case: str, version: str) -> Side:
        """Return the same as a side of a comparison."""
        entry = self.at(repro, case, version)
        if entry is None:
            return Side(version=version, verdict=None, evidence=Evidence.NONE, absent=True)
        doubted = entry.verdict is Verdict.INVALID and bool(self._controls.control_problem(entry))
        cell, said, excluded = entry.cell, entry.expectation, entry.excluded
        why = excluded.why if excluded else None
        # What is reported of no version in particular was seen at few, and is no evidence of this one.
        vague = entry.evidence is Evidence.REPORTED and said is not None and not said.versions
        if vague or (entry.record is None and why is Exclusion.UNSUPPORTED_GPU):
            entry = replace(entry, evidence=Evidence.NONE, outcome=None)
        outcome, feared = entry.outcome or Outcome(verdict=Verdict.NO_VERDICT), None
        absent = entry.outcome is None and why in {Exclusion.COMPONENT_MISSING, Exclusion.UNSUPPORTED_GPU}
        reason = outcome.reason
        if absent and excluded:
            reason = excluded.detail or excluded.why.value
        elif entry.outcome is None and said and said.verdict in {Verdict.FAIL, Verdict.FLAKY}:
            feared = _report_source(said)
            reason = f"{entry.expected.value} is feared (assumed from {feared.title})"
        elif state_of(entry) is State.SLOW and not reason.startswith(NOT_FUSED):
            reason = ": ".join(filter(None, ("right, but not fused", reason)))
        sources = tuple(Source(title=record.file or str(cell.id)) for record in entry.records)
        if not sources and entry.evidence is Evidence.REPORTED and said is not None:
            sources = (_report_source(said),)
        return Side(
            version=version, verdict=entry.verdict, evidence=entry.evidence, word=cell_text(entry),
            reason=reason, builds=outcome.builds, cause=outcome.cause, cell=str(cell.id), sources=sources,
            floors=floors_of(entry, self.calibration),
            driver=str(entry.record.gpu.get("driver") or "") if entry.record else "",
            counted=cell.version.product is Product.TENSORRT, doubted=doubted, absent=absent, feared=feared,
        )  # fmt: skip


def _report_source(expectation: Expectation) -> Source:
    """Return where a report can be read; what this project measured once stands in the repro itself."""
    on = f", of {expectation.on}" if expectation.on else ""
    if not expectation.source:
        return Source(title=f"the repro's own note{on}")
    return Source(title=name_source(expectation.source) + on, url=expectation.source)


class Standing(str, Enum):
    """What is known of a case at one version, as a report words it."""

    GOOD = "right"
    FEW = f"right on fewer than {CONFIRMING_BUILDS} builds"
    SAID_GOOD = "only reported to be right"
    BAD = "wrong"
    SAID_BAD = "reported to be wrong"
    BROKEN = "ended without a result"
    UNSUPPORTED = "not supported by the version"
    BUILT = "built, not run: nothing is known of its numbers"
    VOID = "inconclusive"
    DOUBTED = "inconclusive beside a control that came out wrong"
    ABSENT = "cannot be tried"
    UNKNOWN = "no evidence"


def standing_of(side: Side) -> Standing:
    """Return what is known of a case at one version."""
    reported = side.evidence is Evidence.REPORTED
    match side.verdict:
        case _ if side.absent:
            return Standing.ABSENT
        case Verdict.PASS:
            enough = not side.counted or side.builds >= CONFIRMING_BUILDS
            return Standing.SAID_GOOD if reported else Standing.GOOD if enough else Standing.FEW
        case Verdict.FAIL | Verdict.FLAKY:
            return Standing.SAID_BAD if reported else Standing.BAD
        case Verdict.INVALID:
            return Standing.DOUBTED if side.doubted else Standing.VOID
        case Verdict.BUILT:
            return Standing.BUILT
    match side.cause if side.verdict is Verdict.NO_VERDICT else None:
        case Cause.UNSUPPORTED_BY_VERSION:
            return Standing.UNSUPPORTED
        case Cause.COMPONENT_MISSING | Cause.UNSUPPORTED_GPU:
            return Standing.ABSENT
        case Cause.BUILD_FAILED | Cause.CRASHED | Cause.TIME_OUT | Cause.OUT_OF_GPU_MEMORY:
            return Standing.BROKEN
        case _:
            return Standing.UNKNOWN


_WAS_RIGHT = frozenset({Standing.GOOD, Standing.FEW, Standing.SAID_GOOD})
_WAS_BAD = frozenset({Standing.BAD, Standing.SAID_BAD, Standing.BROKEN, Standing.UNSUPPORTED})
_HARDLY_KNOWN = frozenset({Standing.BUILT, Standing.DOUBTED, Standing.UNKNOWN, Standing.BROKEN})
_HAD_BUILT = _WAS_RIGHT | {Standing.BUILT, Standing.VOID, Standing.DOUBTED}


def weigh(before: Standing, after: Standing) -> tuple[Change, Weight]:
    """Return what a finding's case does to the decision, for any two standings: the whole table.

    A case that is bad after counts against the move unless it was bad before: nobody loses by that. A right
    one counts for it only on enough engines. Nothing known, or only reported, is lacking, but for what the
    version before cannot try: nobody leans on that yet.
    """
    improved = Change.FIXED if before in _WAS_BAD else Change.UNCHANGED_GOOD
    match after:
        case Standing.GOOD:
            return improved, Weight.FOR
        case Standing.FEW | Standing.SAID_GOOD:
            return improved, Weight.LACKING
        case Standing.VOID | Standing.ABSENT:
            return Change.SAYS_NOTHING, Weight.NOTE
        case _ if before is Standing.ABSENT and after in _HARDLY_KNOWN:
            return Change.SAYS_NOTHING, Weight.NOTE
        case Standing.BUILT | Standing.DOUBTED | Standing.UNKNOWN:
            return Change.UNKNOWN, Weight.LACKING
        case Standing.BROKEN | Standing.UNSUPPORTED if before is Standing.UNKNOWN:
            return Change.UNKNOWN, Weight.LACKING  # it may have been so already
        case Standing.UNSUPPORTED if before not in _HAD_BUILT | {Standing.BAD, Standing.SAID_BAD}:
            return Change.SAYS_NOTHING, Weight.NOTE
        case _ if before in _WAS_BAD:
            return Change.UNCHANGED_BAD, Weight.NOTE
        case _:
            return (Change.REGRESSED if before in _WAS_RIGHT else Change.BAD_AFTER), Weight.AGAINST


def weigh_own(before: Standing, after: Standing) -> tuple[Change, Weight]:
    """Return what a case of the user's own model does: as :func:`weigh`, but silence about it is lacking.

    A version that cannot take the model is out, whatever was before; a model that is wrong at both is no
    worse off, and no reason to go either.
    """
    if after in {Standing.BROKEN, Standing.UNSUPPORTED}:
        bad = Change.REGRESSED if before in _WAS_RIGHT else Change.BAD_AFTER
        return (Change.UNCHANGED_BAD if before in _WAS_BAD else bad), Weight.AGAINST
    change, weight = weigh(before, after)
    return change, Weight.LACKING if change is Change.SAYS_NOTHING else weight


def rank(line: CaseLine | FindingLine) -> tuple[int, int, bool]:
    """Return what lines are sorted by: the weightiest, the worst, and what is feared first."""
    feared = isinstance(line, CaseLine) and line.after.feared is not None
    return list(Weight).index(line.weight), list(Change).index(line.change), not feared


_CHANGE_WORDS = {
    Change.REGRESSED: "worse", Change.BAD_AFTER: "bad where nothing was known",
    Change.UNCHANGED_BAD: "bad at both", Change.FIXED: "fixed", Change.UNCHANGED_GOOD: "right",
    Change.UNKNOWN: "unknown", Change.SAYS_NOTHING: "not comparable",
}  # fmt: skip


def _describe_change(line: CaseLine) -> str:
    """Say how a case changed: also that it was not supported before, or is right and only not fused."""
    slow = tuple(side.reason.startswith(NOT_FUSED) for side in (line.before, line.after))
    new = f" (not supported at {line.before.version})"
    match line.change:
        case Change.FIXED | Change.UNCHANGED_BAD if standing_of(line.before) is Standing.UNSUPPORTED:
            return ("new" if line.change is Change.FIXED else "bad") + new
        case Change.FIXED if slow[0]:
            return "now fused"
        case Change.UNCHANGED_BAD if all(slow):
            return "right but not fused at both"
        case Change.REGRESSED | Change.BAD_AFTER if slow[1]:
            return "right but not fused" + " any more" * (line.change is Change.REGRESSED)
    return _CHANGE_WORDS[line.change]


def make_findings(entries: Entries, before: str, after: str) -> tuple[FindingLine, ...]:
    """Return one line a repro that was selected, what weighs most first."""
    selected: dict[str, list[Entry]] = {}
    for entry in entries.all:
        if entry.cell.version.name in {before, after} and not entry.cell.companion:
            selected.setdefault(entry.cell.repro.id, []).append(entry)
    found = (_make_finding(mine, entries, before, after) for mine in selected.values())
    return tuple(sorted(filter(None, found), key=lambda line: (rank(line), line.repro)))


def _make_finding(mine: Sequence[Entry], entries: Entries, before: str, after: str) -> FindingLine | None:
    """Return a finding of all its cases but controls, and but those that try a work-around.

    A work-around that was right before and is not after counts all the same: whoever relies on it loses.
    """
    repro, there = mine[0].cell.repro, {entry.cell.case.id for entry in mine}
    workarounds = []
    for item in repro.workarounds:
        side = entries.side(repro.id, item.case, after) if item.case else None
        source = Source(title=name_source(item.source), url=item.source) if item.source else None
        counts = side is not None and standing_of(side) is Standing.GOOD
        workarounds.append(WorkaroundLine(
            what=item.what, case=item.case or "", after=side, source=source, counts=counts
        ))  # fmt: skip

    def helping(case: str) -> list[WorkaroundLine]:
        """Return the work-arounds for a case that passed."""
        both = zip(repro.workarounds, workarounds, strict=True)
        return [line for item, line in both if line.counts and item.is_for(case)]

    tries, lines = {item.case for item in workarounds}, []
    for case in repro.cases:
        if case.id not in there or case.control is not None:
            continue
        line = make_case_line(repro.id, case, entries, before, after)
        if case.id in tries or case.id.startswith(WORKAROUND_CASES):
            lines += [line] if line.change is Change.REGRESSED else []
        elif line.weight is Weight.AGAINST and (passed := helping(case.id)):
            why = f"{line.why}; what helps: {_describe_help(passed)}"
            lines.append(replace(line, weight=Weight.WORKAROUND, why=why))
        elif line.weight is Weight.AGAINST and any(item.counts for item in workarounds):
            lines.append(replace(line, why=f"{line.why}; no work-around for it has passed"))
        else:
            lines.append(line)
    if not lines:
        return None
    lines.sort(key=rank)
    # What helps against a measured failure is needed, whatever its untested siblings would show.
    if lines[0].weight is Weight.LACKING:
        lines.sort(key=lambda line: line.weight is not Weight.WORKAROUND)
    return FindingLine(
        repro=repro.id, title=repro.title, source=Source(title=repro.upstream, url=repro.url),
        change=min((line.change for line in lines), key=list(Change).index), weight=lines[0].weight,
        why=_explain(lines, helping(lines[0].case), tried=bool(workarounds)), cases=tuple(lines),
        workarounds=tuple(workarounds),
    )  # fmt: skip


def make_case_line(
    repro: str, case: Case, entries: Entries, before: str, after: str, *, own: bool = False
) -> CaseLine:
    """Return a case at both versions. ``own``: it is of the user's own model, whose silence is lacking."""
    was, will = entries.side(repro, case.id, before), entries.side(repro, case.id, after)
    slow = will.reason.startswith(NOT_FUSED)  # which says more than that it is wrong
    before_it, after_it = standing_of(was), standing_of(will)
    if was.reason.startswith(NOT_FUSED) and after_it in _WAS_BAD and not slow:
        before_it = Standing.GOOD  # it was right
    change, weight = (weigh_own if own else weigh)(before_it, after_it)
    said = ["" if slow else standing_of(will).value, will.cause.value if will.cause else "", will.reason]
    if change is Change.SAYS_NOTHING and was.absent and not will.absent:
        said = [f"cannot be tried at {before}", was.reason, *(said if will.verdict else ())]
    said += [counted(will.builds, "build")] if will.builds and will.counted else []
    if was.driver and will.driver and was.driver != will.driver:
        said += [f"measured with driver {was.driver} before, {will.driver} after"]
    why = "; ".join(part for part in said if part)
    return CaseLine(repro=repro, case=case.id, change=change, weight=weight, before=was, after=will, why=why)


def _describe_help(passed: Sequence[WorkaroundLine]) -> str:
    """Return work-arounds in words, each with the case that shows it."""
    return "; or ".join(f"{item.what} ({item.case} passed)" for item in passed)


def _explain(lines: Sequence[CaseLine], helping: Sequence[WorkaroundLine], *, tried: bool) -> str:
    """Say of a finding how its worst case changed, how many cases are how, and what helps.

    ``helping``: the work-arounds for that case that passed; ``tried``: there are some for the finding.
    """
    first, parts = lines[0], []
    if worse := first.weight in {Weight.AGAINST, Weight.WORKAROUND}:
        was = first.before.word if first.before.verdict is not None else "unknown"
        parts = [f"{first.case} {was} → {first.after.word}"]
    # What speaks for the move begins where the finding does.
    order = [Change.FIXED, Change.UNCHANGED_GOOD] if first.weight is Weight.FOR else []
    ordered = sorted(lines, key=lambda line: [*order, *Change].index(line.change))
    counts = Counter(map(_describe_change, ordered))
    for standing in (Standing.FEW, Standing.SAID_GOOD, Standing.SAID_BAD):
        said = [line.after for line in lines if standing_of(line.after) is standing]
        slow = sum(side.reason.startswith(NOT_FUSED) for side in said)
        counts[standing.value] += len(said) - slow
        counts["reported not to be fused"] += slow
    counts["of them expected to fail"] += sum(line.after.feared is not None for line in lines)
    (word, count), *others = [(word, count) for word, count in counts.items() if count]
    parts += [", ".join([f"{counted(count, 'case')} {word}", *(f"{n} {each}" for each, n in others)])]
    if worse and helping:
        parts += [f"what helps: {_describe_help(helping)}"]
    elif worse and tried:
        parts += [f"no work-around for {first.case} has passed"]
    return "; ".join(parts)
