"""Why the answer is what it is: one line for each thing that weighs, the weightiest first. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trtmatrix.api.report import count_changes
from trtmatrix.api.types import MUST_CHANGE
from trtmatrix.judge.confirm import CONFIRMING_BUILDS
from trtmatrix.judge.factors import PASS_FACTOR
from trtmatrix.judge.noise import NO_FLOOR, NO_FLOOR_OF
from trtmatrix.model.outcomes import CheckOutcome
from trtmatrix.suite.model import Basis, Evidence
from trtmatrix.tables.table import one_line
from trtmatrix.upgrade.findings import HEAVIEST, Standing, fixed_word, standing_of
from trtmatrix.upgrade.performance import summarise_performance
from trtmatrix.upgrade.question import Own, Question, describe_lack
from trtmatrix.upgrade.report import (
    CaseLine,
    Change,
    FactLine,
    FindingLine,
    PerformanceLine,
    Source,
    Weight,
    count,
)
from trtmatrix.upgrade.samples import FLOORS

MODEL, CHECK, CODE = "your model", "your acceptance", "your code"
"""Topics of what is the user's own."""

PERFORMANCE = "performance"

LONGEST = 120
"""Characters of a case's own reason; the findings below have all of it."""

SOURCES = 3
"""Sources that a reason names; the findings below have all."""


def make_reasons(
    question: Question, findings: Sequence[FindingLine], hardware: Sequence[FactLine],
    mine: Sequence[PerformanceLine], performance: Sequence[PerformanceLine],
) -> tuple[FactLine, ...]:  # fmt: skip
    """Return the reasons; with the user's own model what is unknown of the findings is no reason."""
    lines = [line for line in hardware if line.weight is Weight.AGAINST]
    lines += _tell_model(question.own) if question.own else ()
    told = [line for finding in findings for line in _tell_finding(question, finding)]
    told += _tell_unknown(question, findings)
    if question.own is not None:
        told = [replace(r, weight=Weight.NOTE) if r.weight is Weight.LACKING else r for r in told]
    lines += [*told, *_tell_code(question)]
    lines += _tell_performance(question, mine, MODEL, Weight.AGAINST)
    lines += _tell_performance(question, performance, PERFORMANCE, Weight.NOTE)
    return tuple(sorted(lines, key=_rank))


def _tell_performance(
    question: Question, lines: Sequence[PerformanceLine], topic: str, weight: Weight
) -> Iterator[FactLine]:
    """Yield each measure that is beyond the limit, which weighs ``weight``; then what is not comparable.

    Of what is not comparable only a latency whose ratio is beyond the limit is told.
    """
    limit = question.max_slowdown or math.inf
    for each in summarise_performance(lines):
        if each.beyond:
            worst = each.beyond[0]
            text = (
                f"{each.measure}: {len(each.beyond)} of {count(each.cases, 'case')} significantly beyond "
                f"{limit:g}×, most {worst.repro}/{worst.case} ({worst.ratio or 0:.2f}×)"
            )
            yield _reason(topic, text, weight, Evidence.RECORDED.value)
        silent = [x for x in each.not_compared if (x.ratio or 0) > limit]
        if silent and each.measure == "latency":
            worst = silent[0]
            text = (
                f"{each.measure}: {count(len(silent), 'case')} beyond {limit:g}× not comparable, most "
                f"{worst.repro}/{worst.case} ({worst.ratio or 0:.2f}×): {worst.why_not}"
            )
            yield _reason(PERFORMANCE, text, Weight.NOTE, Evidence.RECORDED.value)


def _rank(line: FactLine) -> int:
    """Return a reason's place: the weightiest first; notes on the user's own come before what is well."""
    own = line.weight is Weight.NOTE and line.topic == MODEL
    return HEAVIEST.index(Weight.FOR if own else line.weight)


def _reason(
    topic: str, text: str, weight: Weight, known: str = Evidence.NONE.value, sources: Sequence[Source] = ()
) -> FactLine:
    return FactLine(topic=topic, text=text, weight=weight, known=known, sources=tuple(sources))


def _tell_model(own: Own) -> Iterator[FactLine]:
    """Yield what the model's cases and its deployer's check say."""
    for line in sorted(own.section.cases, key=lambda line: HEAVIEST.index(line.weight)):
        weight, text = (
            line.weight,
            f"{line.case}: {line.change.value}, {line.before.word or '·'} → {line.after.word or '·'}",
        )
        text += f" ({line.why})" if line.why else ""
        if standing_of(line.after) is Standing.VOID and (instead := _speaks_instead(own, line)):
            enough = not line.after.counted or line.after.builds >= CONFIRMING_BUILDS
            weight = Weight.FOR if enough else Weight.LACKING
            text += f"; by itself that says nothing, {instead}"
        yield _reason(MODEL, text, weight, line.after.evidence.value, line.after.sources[:1])
    if not own.section.cases:
        yield _reason(MODEL, "; ".join(own.section.troubles) or "it did not run", Weight.LACKING)
    if own.section.check is not None:
        yield _tell_check(own.section.check)
    passed = own.section.cases and all(line.weight is Weight.FOR for line in own.section.cases)
    for node in own.section.nodes:  # what the model itself did is the better witness
        weight = Weight.NOTE if passed else node.weight
        yield replace(node, topic=MODEL, text=f"{node.topic}: {node.text}", weight=weight)


def _speaks_instead(own: Own, line: CaseLine) -> str:
    """Say what decides where the model by itself says nothing, or nothing.

    That is the deployer's acceptance, or integers that are equal at both versions where all other outputs
    are within their floors.
    """
    if own.section.check is not None and own.section.check.passed:
        return "your acceptance decides"
    settled = [item.output for item in own.section.differences if item.is_settled]
    within = {
        item.output for item in own.section.samples
        if item.version == line.after.version and item.unit == FLOORS and item.worst <= PASS_FACTOR
    }  # fmt: skip
    others = [item for item in own.section.differences if item.output not in {*settled, *within}]
    if others or not settled or not line.after.reason.startswith((NO_FLOOR, NO_FLOOR_OF)):
        return ""
    return f"but {', '.join(settled)}: equal at both versions"


def _tell_check(check: CheckOutcome) -> FactLine:
    figure = f", {check.label or 'figure'} {check.figure:g}" if check.figure is not None else ""
    text, weight = {
        None: (f"{check.script} did not answer: {check.error}", Weight.LACKING),
        True: (f"{check.script} accepts the outputs{figure}", Weight.FOR),
        False: (f"{check.script} refuses the outputs{figure}", Weight.AGAINST),
    }[check.passed]
    return _reason(CHECK, text, weight, Evidence.MEASURED.value)


def _tell_finding(question: Question, finding: FindingLine) -> Iterator[FactLine]:
    """Yield what a finding says, but for one of which nothing is known at the version moved to."""
    if finding.weight is Weight.LACKING and not _has_evidence(finding):
        return
    after = question.after.name
    lines = [line for line in finding.cases if line.weight is finding.weight]
    match finding.weight:
        case Weight.AGAINST:
            untried = "; no work-around of it has passed there" if finding.workarounds else ""
            text = f"{_tell_worse(lines, after)}{untried}"
        case Weight.WORKAROUND:
            helping = next(item for item in finding.workarounds if item.counts)
            text = f"{_tell_worse(lines, after)}. What helps there: {helping.what} ({helping.case} passed)"
        case Weight.LACKING:
            known = f"{fixed_word(finding)}: " if fixed_word(finding) else ""
            known = "bad at both; beside that " if finding.change is Change.UNCHANGED_BAD else known
            text = f"{known}{describe_lack(lines, after)}"
        case Weight.FOR:
            builds = f", each on {CONFIRMING_BUILDS} builds or more" if lines[0].after.counted else ""
            text = f"{finding.why}{builds}"
        case Weight.NOTE:
            if finding.change is not Change.UNCHANGED_BAD:
                return
            text = f"no worse than before: {finding.why}"
    kinds = {line.after.evidence for line in lines}
    best = next((kind for kind in Evidence if kind in kinds), Evidence.NONE)
    sources = dict.fromkeys(s for line in lines for side in (line.after, line.before) for s in side.sources)
    yield _reason(finding.repro, text, finding.weight, best.value, tuple(sources)[:SOURCES])


def _has_evidence(finding: FindingLine) -> bool:
    return any(standing_of(c.after) not in {Standing.UNKNOWN, Standing.ABSENT} for c in finding.cases)


def _tell_worse(lines: Sequence[CaseLine], after: str) -> str:
    first = lines[0]
    was = first.before.word if first.before.verdict is not None else "unknown"
    more = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
    why = f" ({one_line(first.why, LONGEST)})" if first.after.evidence is not Evidence.REPORTED else ""
    return f"worse at {after}: {first.case} {was} → {first.after.word}{why}{more}"


def _tell_unknown(question: Question, findings: Sequence[FindingLine]) -> Iterator[FactLine]:
    """Yield what is feared of findings of which nothing is known, then one line for all others of those."""
    after, others = question.after.name, []
    for finding in findings:
        if finding.weight is not Weight.LACKING or _has_evidence(finding):
            continue
        feared = [line.after.feared for line in finding.cases if line.after.feared is not None]
        if not feared:
            others.append(finding.repro)
            continue
        which = f"{len(feared)} of {len(finding.cases)} cases"
        text = f"not tested at {after}; {which} are expected to fail there"
        sources = tuple(dict.fromkeys(feared))[:SOURCES]
        yield _reason(finding.repro, text, Weight.LACKING, Basis.ASSUMED.value, sources)
    if others:
        yield _reason("untested", f"{', '.join(others)} at {after}", Weight.LACKING)


def _tell_code(question: Question) -> Iterator[FactLine]:
    """Yield what the API's changes do: removed calls in the user's code must be changed first."""
    api = question.api
    surfaces = tuple(Source(title=title) for title in api.surfaces)
    if not question.code:
        if api.changes and not api.lacking:
            text = f"of the Python API {count_changes(api.changes)}; no code was named (--code DIR)"
            yield _reason("API", text, Weight.NOTE, "read", surfaces)
        return
    if api.lacking:
        yield _reason(CODE, f"the code could not be checked: {api.lacking}", Weight.LACKING)
        return
    if not api.files:
        why = api.unread[0][1] if api.unread else "none is Python, a notebook, shell or a Dockerfile"
        yield _reason(CODE, f"no file was read: {why}", Weight.LACKING)
        return
    sure = {(use.file, use.cell, use.line) for use in api.must_change}
    unsure = (use for use in api.uses if not use.sure and use.change.kind in MUST_CHANGE)
    possible = {(use.file, use.cell, use.line) for use in unsure} - sure
    if sure:
        first = min(sure)
        text = f"change {count(len(sure), 'line')} first (exit code 11), the first in {first[0]}:{first[2]}"
        yield _reason(CODE, text, Weight.WORKAROUND, "read", surfaces)
    elif not api.unread:
        text = f"nothing that is gone or changed is used for sure, in {api.files} files"
        yield _reason(CODE, text, Weight.NOTE, "read", surfaces)
    if possible:
        text = f"{count(len(possible), 'line')} may use what is gone or changed: look at them"
        yield _reason(CODE, text, Weight.NOTE, "read")
    if api.unread:
        file, why = api.unread[0]
        text = (
            f"{count(len(api.unread), 'file')} could not be read, or not all of it, the first {file}: {why}"
        )
        yield _reason(CODE, text, Weight.NOTE)
