"""What a report says nothing about, a sentence each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trtmatrix.suite.model import Product
from trtmatrix.upgrade.question import Question
from trtmatrix.upgrade.report import Change, FindingLine
from trtmatrix.upgrade.sides import reported_elsewhere

_OTHER_PRECISIONS = ("BF16", "INT8", "FP8", "INT4")


def find_blind_spots(question: Question, findings: Sequence[FindingLine]) -> tuple[str, ...]:
    """Return them, what is nearest to the question first."""
    return (*_restricted(question), *_silent(findings), *_elsewhere(question, findings), *_always(question))


def _restricted(question: Question) -> Iterator[str]:
    if question.left_out:
        yield f"Left out by {question.restricted}: {', '.join(question.left_out)}."
    elif question.restricted:
        yield f"Cases that {question.restricted} leaves out."


def _silent(findings: Sequence[FindingLine]) -> Iterator[str]:
    """Yield each reason for which cases of a finding can say nothing at the version moved to."""
    for finding in findings:
        reasons: dict[str, int] = {}
        for line in finding.cases:
            if line.change is Change.SAYS_NOTHING:
                why = line.why or "can say nothing"
                reasons[why] = reasons.get(why, 0) + 1
        for why, count in reasons.items():
            cases = "1 case" if count == 1 else f"{count} cases"
            yield f"{finding.repro}: {cases} at {finding.cases[0].after.version}: {why}."


def _elsewhere(question: Question, findings: Sequence[FindingLine]) -> Iterator[str]:
    """Yield the GPUs that reports are of which are no others' evidence."""
    found: dict[str, list[str]] = {}
    for finding in findings:
        for line in finding.cases:
            for version in (line.before.version, line.after.version):
                entry = question.entries.at(line.repro, line.case, version)
                on = reported_elsewhere(entry, question.gpu) if entry else ""
                if on and finding.repro not in found.setdefault(on, []):
                    found[on].append(finding.repro)
    for on, names in found.items():
        yield f"What is reported of {on} and not of this GPU may be otherwise here: {', '.join(names)}."


def _always(question: Question) -> Iterator[str]:
    between = ", ".join(version.name for version in question.between)
    if between:
        yield f"The versions in between: {between}."
    if question.after.product is Product.TENSORRT:
        yield f"Other GPUs than {question.gpu.name}: ask once for each that you deploy on."
    yield f"Precisions that no case has: {', '.join(_OTHER_PRECISIONS)}."
    yield "Throughput under load, several streams at once, and the memory of a whole service."
    if question.own is None:
        yield "Your own model: --model FILE.onnx, with --inputs if you have some."
    if not question.code:
        yield "Your own code: --code DIR."
