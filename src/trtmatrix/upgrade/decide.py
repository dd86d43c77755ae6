"""The answer: a pure function of records, expectations and facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trtmatrix.suite.model import Product
from trtmatrix.upgrade.blind import find_blind_spots
from trtmatrix.upgrade.engines import make_engines
from trtmatrix.upgrade.findings import fixed_word, make_findings
from trtmatrix.upgrade.hardware import make_hardware
from trtmatrix.upgrade.lacking import make_lacking
from trtmatrix.upgrade.own import CHECK, TOPIC, own_lacking, weigh_case
from trtmatrix.upgrade.performance import make_performance, summarise_performance
from trtmatrix.upgrade.question import Question
from trtmatrix.upgrade.reasons import CODE, make_reasons
from trtmatrix.upgrade.report import (
    Change,
    Decision,
    FactLine,
    FindingLine,
    Lacking,
    ModelSection,
    Upgrade,
    Weight,
)
from trtmatrix.upgrade.series import make_errors, make_latencies


def decide(question: Question) -> Upgrade:
    """Return the whole report: the answer, why, and what there is to know."""
    before, after, entries = question.before.name, question.after.name, question.entries
    findings = make_findings(entries, before, after)
    if question.own is not None:
        findings = tuple(_lighter(finding) for finding in findings)
    hardware = make_hardware(question.before, question.after, question.gpu, question.matrix)
    performance = make_performance(entries, before, after)
    if question.own is not None:
        performance = (*make_performance(question.own.entries, before, after), *performance)
    reasons = make_reasons(question, findings, hardware, summarise_performance(performance))
    decision = settle(reasons, own=question.own is not None)
    lacking = _lacking(question, findings, reasons, hardware)
    versions = [v for v in question.matrix.versions if v.product is question.after.product]
    return Upgrade(
        product=question.after.product, before=before, after=after, gpu=question.gpu.name,
        gpu_note=_gpu_note(question), decision=decision,
        summary=summarise(question, decision, reasons, findings), reasons=reasons, findings=findings,
        gpu_and_driver=hardware, performance=performance, api=question.api,
        engines=make_engines(question.before, question.after), model=_model(question),
        errors=make_errors(findings, entries, versions),
        latencies=make_latencies(findings, entries, versions),
        lacking=lacking, not_looked_at=find_blind_spots(question, findings), command=question.command,
        generated=question.generated,
    )  # fmt: skip


def settle(reasons: Sequence[FactLine], *, own: bool = False) -> Decision:
    """Return the answer that reasons add up to. ``own``: the user's model must speak for the move itself.

    What speaks against it decides; then what is lacking; then what needs a work-around. Without anything
    that speaks for it there is not enough.
    """
    weights = {reason.weight for reason in reasons}
    if Weight.AGAINST in weights:
        return Decision.DONT
    if Weight.LACKING in weights:
        return Decision.NOT_ENOUGH
    speaking = [r for r in reasons if r.weight is Weight.FOR or _has_passed(r)]
    if own:
        speaking = [reason for reason in speaking if reason.topic == TOPIC]
    if not speaking:
        return Decision.NOT_ENOUGH
    return Decision.GO_WITH_WORKAROUNDS if Weight.WORKAROUND in weights else Decision.GO


def _has_passed(reason: FactLine) -> bool:
    """Whether a work-around was seen to be right: not where code must be changed, which nobody has tried."""
    return reason.weight is Weight.WORKAROUND and reason.topic != CODE


def _lighter(finding: FindingLine) -> FindingLine:
    """Return a finding beside the user's own model: what is not known of it is told and decides nothing."""
    return replace(finding, weight=Weight.NOTE) if finding.weight is Weight.LACKING else finding


def _model(question: Question) -> ModelSection | None:
    """Return the model's section, each of its cases weighed by the one table."""
    if question.own is None:
        return None
    section = question.own.section
    weighed = ((line, *weigh_case(line)) for line in section.cases)
    cases = tuple(replace(line, change=change, weight=weight) for line, change, weight in weighed)
    return replace(section, cases=cases)


def _lacking(
    question: Question, findings: Sequence[FindingLine], reasons: Sequence[FactLine],
    hardware: Sequence[FactLine],
) -> tuple[Lacking, ...]:  # fmt: skip
    """Return what evidence would change something; none where the GPU itself is not supported."""
    if any(line.topic == "GPU" and line.weight is Weight.AGAINST for line in hardware):
        return ()
    mine = tuple(own_lacking(question, reasons))
    return (*mine, *make_lacking(question, findings))


def _gpu_note(question: Question) -> str:
    gpu = question.gpu
    if question.after.product is not Product.TENSORRT:
        return "no GPU is needed"
    parts = [f"compute capability {gpu.compute}" if gpu.compute else "compute capability not known"]
    parts += [gpu.variant] if gpu.variant else []
    if gpu.present:
        parts += [
            "at this site" if gpu.remote else "in this host",
            f"driver {gpu.driver}" if gpu.driver else "driver not known",
        ]
    else:
        parts += ["not in this host"]
        parts += [f"recorded with driver {gpu.driver}" if gpu.driver else "driver not known"]
    return ", ".join(parts)


def summarise(
    question: Question, decision: Decision, reasons: Sequence[FactLine], findings: Sequence[FindingLine]
) -> str:
    """Return the answer in one sentence, and what it does not cover where it was narrowed."""
    after = question.after.name
    lines = {weight: [reason for reason in reasons if reason.weight is weight] for weight in Weight}
    match decision:
        case Decision.GO:
            text = (
                f"Go: nothing that was looked at is worse at {after}, and enough was seen to be right there."
            )
        case Decision.GO_WITH_WORKAROUNDS:
            topics = ", ".join(dict.fromkeys(reason.topic for reason in lines[Weight.WORKAROUND]))
            text = f"Go, with work-arounds for {topics}: without them {after} is worse."
        case Decision.DONT:
            topics = ", ".join(dict.fromkeys(reason.topic for reason in lines[Weight.AGAINST]))
            text = f"Don't move to {after} as things stand: {topics}."
        case Decision.NOT_ENOUGH:
            feared = [f.repro for f in findings if any(line.after.feared for line in f.cases)]
            but = f", but failures are feared of {', '.join(feared)}" if feared else ""
            own = {TOPIC, CHECK, CODE}  # where these lack, the findings are notes and not what is missing
            mine = list(dict.fromkeys(r.topic for r in lines[Weight.LACKING] if r.topic in own))
            said = f"of {' and '.join(mine)} too little is known" if mine else _coverage(findings, after)
            text = f"Not enough evidence: {said}."
            text += f" Nothing that is known speaks against it{but}."
    if question.downgrade:
        text = f"A downgrade. {text}"
    return f"{text} Only what {question.restricted} leaves was looked at." if question.restricted else text


def _coverage(findings: Sequence[FindingLine], after: str) -> str:
    """Say of how many findings enough is known at the version moved to, and which are said to be fixed."""
    able = [finding for finding in findings if finding.change is not Change.SAYS_NOTHING]
    seen = sum(all(line.weight is not Weight.LACKING for line in finding.cases) for finding in able)
    count = "the one finding" if len(able) == 1 else f"the {len(able)} findings"
    known = {0: "none is", 1: "1 is"}.get(seen, f"{seen} are")
    text = f"of {count} that can be tried at {after}, {known} known well enough"
    for word in ("reported to be fixed", "fixed, not confirmed"):
        names = [f.repro for f in able if f.weight is Weight.LACKING and fixed_word(f) == word]
        if names:
            text += f"; {', '.join(names)} {'is' if len(names) == 1 else 'are'} {word}"
    return text
