"""Why the answer is what it is: one line for each thing that weighs, the weightiest first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trtmatrix.api.report import count_changes
from trtmatrix.api.types import MUST_CHANGE
from trtmatrix.judge.confirm import CONFIRMING_BUILDS
from trtmatrix.suite.model import Basis
from trtmatrix.suite.outcome import Evidence
from trtmatrix.tables.table import one_line
from trtmatrix.upgrade.findings import fixed_word
from trtmatrix.upgrade.lacking import describe_lack
from trtmatrix.upgrade.own import own_reasons
from trtmatrix.upgrade.performance import SLOWER, PerformanceSummary
from trtmatrix.upgrade.question import Question
from trtmatrix.upgrade.report import (
    CaseLine,
    Change,
    FactLine,
    FindingLine,
    Source,
    Weight,
)
from trtmatrix.upgrade.standing import HEAVIEST, Standing, standing_of

CODE = "your code"
"""The topic of what the user's own code must change."""

LONGEST = 120
"""Characters of a case's own reason; the findings below have all of it."""

SOURCES = 3
"""Sources that a reason names; the findings below have all."""


def make_reasons(
    question: Question, findings: Sequence[FindingLine], hardware: Sequence[FactLine],
    performance: Sequence[PerformanceSummary],
) -> tuple[FactLine, ...]:  # fmt: skip
    """Return the reasons; with the user's own model what is unknown of the findings is no reason."""
    lines = [line for line in hardware if line.weight is Weight.AGAINST]
    lines += own_reasons(question)
    told = [reason for finding in findings for reason in _of_finding(question, finding)]
    told += _unknown(question, findings)
    if question.own is not None:
        told = [replace(r, weight=Weight.NOTE) if r.weight is Weight.LACKING else r for r in told]
    lines += [*told, *_api(question), *_slower(performance)]
    return tuple(sorted(lines, key=lambda line: HEAVIEST.index(line.weight)))


def _of_finding(question: Question, finding: FindingLine) -> Iterator[FactLine]:
    """Yield what a finding says, but for one of which nothing is known at the version moved to."""
    after = question.after.name
    if finding.weight is Weight.LACKING and not _has_evidence(finding):
        return
    lines = [line for line in finding.cases if line.weight is finding.weight]
    match finding.weight:
        case Weight.AGAINST:
            untried = "; no work-around of it has passed there" if finding.workarounds else ""
            text = f"{_worse(lines, after)}{untried}"
        case Weight.WORKAROUND:
            helping = next(item for item in finding.workarounds if item.counts)
            text = f"{_worse(lines, after)}. What helps there: {helping.what} ({helping.case} passed)"
        case Weight.LACKING:
            known = "bad at both; beside that" if finding.change is Change.UNCHANGED_BAD else ""
            known = known or (f"{fixed_word(finding)}:" if fixed_word(finding) else "")
            text = f"{known} {describe_lack(lines, after)}".strip()
        case Weight.FOR:
            builds = f", each on {CONFIRMING_BUILDS} builds or more" if lines[0].after.counted else ""
            text = f"{finding.why}{builds}"
        case Weight.NOTE:
            if finding.change is not Change.UNCHANGED_BAD:
                return
            text = f"no worse than before: {finding.why}"
    yield FactLine(
        topic=finding.repro, text=text, weight=finding.weight, known=_known(lines), sources=_sources(lines)
    )


def _has_evidence(finding: FindingLine) -> bool:
    silent = {Standing.UNKNOWN, Standing.ABSENT}
    return any(standing_of(line.after) not in silent for line in finding.cases)


def _worse(lines: Sequence[CaseLine], after: str) -> str:
    first = lines[0]
    was = first.before.word if first.before.verdict is not None else "unknown"
    more = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
    why = f" ({one_line(first.why, LONGEST)})" if first.after.evidence is not Evidence.REPORTED else ""
    return f"worse at {after}: {first.case} {was} → {first.after.word}{why}{more}"


def _known(lines: Sequence[CaseLine]) -> str:
    """Return how the best known of some cases is known."""
    kinds = {line.after.evidence for line in lines}
    return next((kind.value for kind in Evidence if kind in kinds), Evidence.NONE.value)


def _sources(lines: Sequence[CaseLine]) -> tuple[Source, ...]:
    found = dict.fromkeys(s for line in lines for side in (line.after, line.before) for s in side.sources)
    return tuple(found)[:SOURCES]


def _unknown(question: Question, findings: Sequence[FindingLine]) -> Iterator[FactLine]:
    """Yield what is feared of findings of which nothing is known, then one line for all others of those."""
    after = question.after.name
    unknown = [f for f in findings if f.weight is Weight.LACKING and not _has_evidence(f)]
    feared = {finding.repro: tuple(_fears(finding)) for finding in unknown}
    for finding in unknown:
        if fears := feared[finding.repro]:
            count = f"{len(fears)} of {len(finding.cases)} cases"
            text = f"no evidence at {after}, and its repro fears that {count} fail"
            yield FactLine(
                topic=finding.repro, text=text, weight=Weight.LACKING, known=Basis.ASSUMED.value,
                sources=tuple(dict.fromkeys(fears))[:SOURCES],
            )  # fmt: skip
    if names := [finding.repro for finding in unknown if not feared[finding.repro]]:
        text = f"no evidence at {after} of {', '.join(names)}"
        yield FactLine(topic="unknown", text=text, weight=Weight.LACKING, known=Evidence.NONE.value)


def _fears(finding: FindingLine) -> Iterator[Source]:
    return (line.after.feared for line in finding.cases if line.after.feared is not None)


def _api(question: Question) -> Iterator[FactLine]:
    """Yield what the API's changes do: removed calls in the user's code must be changed first."""
    api = question.api
    if api.lacking:
        if question.code:
            text = f"the code could not be checked: {api.lacking}"
            yield FactLine(topic=CODE, text=text, weight=Weight.LACKING, known=Evidence.NONE.value)
        return
    surfaces = tuple(Source(title=title) for title in api.surfaces)
    if not question.code:
        if api.changes:
            text = f"of the Python API {count_changes(api.changes)}; no code was named (--code DIR)"
            yield FactLine(topic="API", text=text, weight=Weight.NOTE, known="read", sources=surfaces)
        return
    if not api.files:
        why = api.unread[0][1] if api.unread else "none is Python, a notebook, shell or a Dockerfile"
        text = f"no file was read: {why}"
        yield FactLine(topic=CODE, text=text, weight=Weight.LACKING, known=Evidence.NONE.value)
        return
    sure = {(use.file, use.cell, use.line) for use in api.must_change}
    unsure = (use for use in api.uses if not use.sure and use.change.kind in MUST_CHANGE)
    possible = {(use.file, use.cell, use.line) for use in unsure} - sure
    if sure:
        first = min(sure)
        text = f"change {_lines(len(sure))} first (exit code 11), the first in {first[0]}:{first[2]}"
        yield FactLine(topic=CODE, text=text, weight=Weight.WORKAROUND, known="read", sources=surfaces)
    elif not api.unread:
        text = f"nothing that is gone or changed is used for sure, in {api.files} files"
        yield FactLine(topic=CODE, text=text, weight=Weight.NOTE, known="read", sources=surfaces)
    if possible:
        text = f"{_lines(len(possible))} may use what is gone or changed: look at them"
        yield FactLine(topic=CODE, text=text, weight=Weight.NOTE, known="read")
    if api.unread:
        count = "1 file" if len(api.unread) == 1 else f"{len(api.unread)} files"
        text = (
            f"{count} could not be read, or not all of it, the first {api.unread[0][0]}: {api.unread[0][1]}"
        )
        yield FactLine(topic=CODE, text=text, weight=Weight.NOTE, known=Evidence.NONE.value)


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


def _slower(performance: Sequence[PerformanceSummary]) -> Iterator[FactLine]:
    for summary in performance:
        if not summary.slower:
            continue
        line = summary.slower[0]
        text = (
            f"{summary.measure}: {len(summary.slower)} of {summary.cases} cases are worse by more than "
            f"{SLOWER:g}× beyond the spread, most {line.repro}/{line.case} ({line.ratio or 0:.2f}×)"
        )
        yield FactLine(topic="performance", text=text, weight=Weight.NOTE, known=Evidence.RECORDED.value)
