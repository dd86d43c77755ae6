"""The findings: each case at both versions, how it is known, what it does to the decision. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from trtmatrix.judge.calibration import NOT_CALIBRATED, Calibration
from trtmatrix.judge.confirm import CONFIRMING_BUILDS
from trtmatrix.judge.controls import Controls
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.judge import FLOORS, measured_in
from trtmatrix.judge.record import RAN
from trtmatrix.judge.words import cell_text
from trtmatrix.suite.model import Cause, Evidence, Exclusion, Gpu, Product, Verdict
from trtmatrix.suite.repros import Case, Expectation, Repro
from trtmatrix.upgrade.report import CaseLine, Change, FindingLine, Side, Source, Weight, WorkaroundLine

_BAD = frozenset({Verdict.FAIL, Verdict.FLAKY})
HEAVIEST = (Weight.AGAINST, Weight.LACKING, Weight.WORKAROUND, Weight.FOR, Weight.NOTE)
"""Which weight decides, where there are several."""
WORST = (
    Change.REGRESSED, Change.UNCHANGED_BAD, Change.FIXED, Change.UNCHANGED_GOOD, Change.UNKNOWN,
    Change.SAYS_NOTHING,
)  # fmt: skip
"""Which change a finding is told by, where its cases differ: the worst that is known, then what is not."""


class Entries:
    """The entries of one GPU, by case and version."""

    def __init__(self, entries: Sequence[Entry], calibration: Calibration = NOT_CALIBRATED) -> None:
        """Sort them once; controls are looked for among all."""
        self.all, self.calibration = tuple(entries), calibration
        self._by_key = {(e.cell.repro.id, e.cell.case.id, e.cell.version.name): e for e in entries}
        self._controls = Controls(entries)
        self._sides: dict[tuple[str, str, str], Side] = {}

    def at(self, repro: str, case: str, version: str) -> Entry | None:
        """Return what a case shows at a version; None where it is no case of that version's product."""
        return self._by_key.get((repro, case, version))

    def side(self, repro: str, case: str, version: str) -> Side:
        """Return the same as a side of a comparison."""
        key = (repro, case, version)
        if key not in self._sides:
            entry = self.at(*key)
            none = Side(version=version, verdict=None, evidence=Evidence.NONE, absent=True)
            self._sides[key] = self._make_side(entry) if entry else none
        return self._sides[key]

    def _make_side(self, entry: Entry) -> Side:
        invalid = entry.outcome is not None and entry.outcome.verdict is Verdict.INVALID
        doubted = invalid and self._controls.wrong_of(entry) is not None
        excluded = entry.excluded.why if entry.excluded else None
        unsupported = entry.record is None and excluded is Exclusion.UNSUPPORTED_GPU
        if unsupported or _names_no_version(entry):
            entry = replace(entry, evidence=Evidence.NONE, outcome=None)
        cell, outcome = entry.cell, entry.outcome
        absent = outcome is None and excluded in {Exclusion.COMPONENT_MISSING, Exclusion.UNSUPPORTED_GPU}
        feared, reason = None, outcome.reason if outcome else ""
        if absent and entry.excluded:
            reason = entry.excluded.detail or entry.excluded.why.value
        elif outcome is None and entry.expectation and entry.expectation.verdict in _BAD:
            feared = report_source(entry.expectation)
            reason = f"{entry.expected.value} is feared (assumed from {feared.title})"
        sources = tuple(Source(title=record.file or str(cell.id)) for record in entry.records)
        if not sources and entry.evidence is Evidence.REPORTED and entry.expectation is not None:
            sources = (report_source(entry.expectation),)
        return Side(
            version=cell.version.name, verdict=outcome.verdict if outcome else None, evidence=entry.evidence,
            word=cell_text(entry), reason=reason, builds=outcome.builds if outcome else 0,
            failed=outcome.failed if outcome else 0, floors=self._worst_floors(entry),
            driver=str(entry.record.gpu.get("driver") or "") if entry.record else "", cell=str(cell.id),
            sources=sources, cause=outcome.cause if outcome else None,
            counted=cell.version.product is Product.TENSORRT, doubted=doubted, absent=absent, feared=feared,
        )  # fmt: skip

    def _worst_floors(self, entry: Entry) -> float | None:
        """Return the worst error of all records in noise floors; NaN where one has it."""
        case, repro = entry.cell.case, entry.cell.repro
        ran = (record for record in entry.records if record.ended == RAN)
        found = [measured_in(record, FLOORS, case, repro, self.calibration) for record in ran]
        known = [value for value in found if value is not None]
        return max(known, key=lambda v: math.inf if math.isnan(v) else v, default=None)


def _names_no_version(entry: Entry) -> bool:
    """Whether a report is of no version in particular: what is expected everywhere was seen at few."""
    expectation = entry.expectation
    if entry.evidence is not Evidence.REPORTED or expectation is None:
        return False
    return not expectation.versions.text


def report_source(expectation: Expectation) -> Source:
    """Return where a report can be read; what this project measured once stands in the repro itself."""
    on = f", of {expectation.on}" if expectation.on else ""
    if not expectation.source:
        return Source(title=f"the repro's own note{on}")
    return Source(title=name_source(expectation.source) + on, url=expectation.source)


def name_source(url: str) -> str:
    """Return an address as people name it: ``NVIDIA/TensorRT#4333``, or its host with the last part."""
    if found := re.match(r"https://github\.com/([^/]+/[^/]+)/(?:issues|pull)/(\d+)", url):
        return f"{found.group(1)}#{found.group(2)}"
    parts = url.removeprefix("https://").rstrip("/").split("/")
    return "/".join(parts) if len(parts) < 3 else f"{parts[0]}/…/{parts[-1]}"


def reported_elsewhere(entry: Entry, gpu: Gpu) -> str:
    """Return the GPU that an entry's only evidence is reported of, where it is another; else nothing."""
    if entry.evidence is not Evidence.REPORTED or entry.expectation is None or _names_no_version(entry):
        return ""
    on = entry.expectation.on
    return "" if not on or on.lower().split()[-1] in gpu.name.lower().split() else on


class Standing(str, Enum):
    """What is known of a case at one version."""

    GOOD = "right"
    FEW = "right, of fewer engines than are wanted"
    SAID_GOOD = "reported to be right"
    BAD = "wrong"
    SAID_BAD = "reported to be wrong"
    BROKEN = "it could not be built, crashed, took too long or too much memory"
    UNSUPPORTED = "the version does not support it"
    BUILT = "built, not run"
    VOID = "it ran, and is inconclusive"
    DOUBTED = "it ran, and a control beside it came out wrong"
    ABSENT = "it cannot be tried at this version: a component is missing, or the GPU is not supported"
    UNKNOWN = "no evidence, or trouble with the machinery"


_BY_CAUSE = {
    Cause.UNSUPPORTED_BY_VERSION: Standing.UNSUPPORTED,
    Cause.COMPONENT_MISSING: Standing.ABSENT, Cause.UNSUPPORTED_GPU: Standing.ABSENT,
    Cause.BUILD_FAILED: Standing.BROKEN, Cause.CRASHED: Standing.BROKEN,
    Cause.TIME_OUT: Standing.BROKEN, Cause.OUT_OF_GPU_MEMORY: Standing.BROKEN,
}  # fmt: skip


def standing_of(side: Side) -> Standing:
    """Return the word for a side's evidence."""
    if side.absent:
        return Standing.ABSENT
    reported = side.evidence is Evidence.REPORTED
    match side.verdict:
        case None:
            return Standing.UNKNOWN
        case Verdict.PASS:
            enough = not side.counted or side.builds >= CONFIRMING_BUILDS
            return Standing.SAID_GOOD if reported else Standing.GOOD if enough else Standing.FEW
        case Verdict.FAIL | Verdict.FLAKY:
            return Standing.SAID_BAD if reported else Standing.BAD
        case Verdict.INVALID:
            return Standing.DOUBTED if side.doubted else Standing.VOID
        case Verdict.BUILT:
            return Standing.BUILT
        case Verdict.NO_VERDICT:
            return _BY_CAUSE.get(side.cause, Standing.UNKNOWN) if side.cause else Standing.UNKNOWN


_WAS_BAD = frozenset({Standing.BAD, Standing.SAID_BAD, Standing.BROKEN, Standing.UNSUPPORTED})
_HAD_BUILT = frozenset(
    {Standing.GOOD, Standing.FEW, Standing.SAID_GOOD, Standing.BUILT, Standing.VOID, Standing.DOUBTED}
)
_REGRESSED = (Change.REGRESSED, Weight.AGAINST)
_STILL_BAD = (Change.UNCHANGED_BAD, Weight.NOTE)
_UNKNOWN = (Change.UNKNOWN, Weight.LACKING)
_SILENT = (Change.SAYS_NOTHING, Weight.NOTE)


def weigh(before: Standing, after: Standing) -> tuple[Change, Weight]:
    """Return what a finding's case does to the decision, for any two standings: the whole table.

    A case that is bad after counts against the move unless it was bad before: nobody loses by that. A right
    one counts for it only on enough engines. Nothing known, or only reported, is lacking.
    """
    improved = Change.FIXED if before in _WAS_BAD else Change.UNCHANGED_GOOD
    match after:
        case Standing.GOOD:
            return improved, Weight.FOR
        case Standing.FEW | Standing.SAID_GOOD:
            return improved, Weight.LACKING
        case Standing.BAD | Standing.SAID_BAD:
            return _REGRESSED if before not in _WAS_BAD else _STILL_BAD
        case Standing.BROKEN:
            if before in _WAS_BAD:
                return _STILL_BAD
            # What cannot be tried before can never be told to have been so already; what was not tried, can.
            return _UNKNOWN if before is Standing.UNKNOWN else _REGRESSED
        case Standing.UNSUPPORTED:
            if before in _HAD_BUILT:
                return _REGRESSED
            if before in {Standing.BAD, Standing.SAID_BAD}:
                return _STILL_BAD
            return _UNKNOWN if before is Standing.UNKNOWN else _SILENT
        case Standing.VOID | Standing.ABSENT:
            return _SILENT
        case Standing.BUILT | Standing.DOUBTED | Standing.UNKNOWN:
            return _UNKNOWN


def weigh_own(before: Standing, after: Standing) -> tuple[Change, Weight]:
    """Return what a case of the user's own model does: as :func:`weigh`, but silence about it is lacking.

    A version that cannot take the model is out, whatever was before; a model that is wrong at both is no
    worse off, and no reason to go either.
    """
    if after in {Standing.BROKEN, Standing.UNSUPPORTED}:
        return (Change.UNCHANGED_BAD if before in _WAS_BAD else Change.REGRESSED), Weight.AGAINST
    change, weight = weigh(before, after)
    return (change, Weight.LACKING) if change is Change.SAYS_NOTHING else (change, weight)


WORKAROUND_CASES = "workaround-"
"""What the ids of cases begin with that try a work-around, also where FACTS names others for it."""

_WAS_RIGHT = frozenset({Standing.GOOD, Standing.FEW, Standing.SAID_GOOD})
_CHANGE_WORDS = {
    Change.REGRESSED: "worse", Change.UNCHANGED_BAD: "bad at both", Change.FIXED: "fixed",
    Change.UNCHANGED_GOOD: "right", Change.UNKNOWN: "unknown", Change.SAYS_NOTHING: "inconclusive",
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
