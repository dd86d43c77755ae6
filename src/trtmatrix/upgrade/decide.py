"""The answer: a pure function of records, expectations and facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trtmatrix.suite.model import Product
from trtmatrix.upgrade.facts import make_engines, make_hardware
from trtmatrix.upgrade.findings import Standing, fixed_word, make_findings, standing_of
from trtmatrix.upgrade.performance import make_performance
from trtmatrix.upgrade.question import Question, find_blind_spots, make_lacking
from trtmatrix.upgrade.reasons import CHECK, CODE, MODEL, PERFORMANCE, make_reasons
from trtmatrix.upgrade.report import Change, Decision, FactLine, FindingLine, Lacking, Source, Upgrade, Weight

_BEST_FIRST = (Decision.GO, Decision.GO_WITH_WORKAROUNDS, Decision.NOT_ENOUGH, Decision.DONT)


def decide(question: Question) -> Upgrade:
    """Return the whole report: the answer, why, and what there is to know."""
    before, after, entries, own = question.before, question.after, question.entries, question.own
    findings = make_findings(entries, before.name, after.name)
    limit = question.max_slowdown
    mine, performance = (
        make_performance(found, before.name, after.name, limit) if found and limit else ()
        for found in (own.entries if own else None, entries)
    )
    if own is not None:  # what is not known of the findings is told and decides nothing
        findings = tuple(
            replace(f, weight=Weight.NOTE) if f.weight is Weight.LACKING else f for f in findings
        )
    hardware = make_hardware(before, after, question.gpu, question.matrix)
    reasons = make_reasons(question, findings, hardware, mine, performance)
    decision = settle(reasons, own=own is not None)
    lacking = (*_lacking_model(question, reasons), *make_lacking(question, findings))
    if any(line.topic == "GPU" and line.weight is Weight.AGAINST for line in hardware):
        lacking = ()  # no evidence would change anything
    return Upgrade(
        product=after.product, before=before.name, after=after.name, gpu=question.gpu.name,
        gpu_note=_describe_gpu(question), decision=decision,
        summary=_summarise(question, decision, reasons, findings), reasons=reasons, findings=findings,
        gpu_and_driver=hardware, performance=(*mine, *performance), api=question.api,
        engines=make_engines(before, after), model=own.section if own else None,
        lacking=lacking,
        not_looked_at=find_blind_spots(question, findings), command=question.command,
    )  # fmt: skip


def settle(reasons: Sequence[FactLine], *, own: bool = False) -> Decision:
    """Return the answer that reasons add up to. ``own``: the user's model must speak for the move itself.

    What speaks against it decides; then what is lacking; then what needs a work-around. Without anything
    that speaks for it there is not enough; code that must be changed does not, for nobody has tried it.
    """
    weights = {reason.weight for reason in reasons}
    if Weight.AGAINST in weights:
        return Decision.DONT
    passed = (r for r in reasons if r.weight in {Weight.FOR, Weight.WORKAROUND} and r.topic != CODE)
    speaking = [reason for reason in passed if not own or reason.topic == MODEL]
    if Weight.LACKING in weights or not speaking:
        return Decision.NOT_ENOUGH
    return Decision.GO_WITH_WORKAROUNDS if Weight.WORKAROUND in weights else Decision.GO


def _lacking_model(question: Question, reasons: Sequence[FactLine]) -> Iterator[Lacking]:
    """Yield how to run the model where it has not run, or to judge it where it can say nothing."""
    own = question.own
    if own is None or not any(r.topic == MODEL and r.weight is Weight.LACKING for r in reasons):
        return
    command = question.command.replace(" --no-run", "")
    sides = [side for line in own.section.cases for side in (line.before, line.after)]
    limited = own.tolerance or own.section.check is not None
    if sides and all(side.verdict is not None for side in sides) and not limited:
        yield Lacking(what="your model ran: what would be right", command=f"{command} --check accept.py")
    else:
        yield Lacking(what="your model, on a host that can run both versions", command=command)


def _describe_gpu(question: Question) -> str:
    gpu = question.gpu
    if question.after.product is not Product.TENSORRT:
        return "no GPU is needed"
    here = "not in this host" if not gpu.present else "at this site" if gpu.remote else "in this host"
    driver = f"{'' if gpu.present else 'recorded with '}driver {gpu.driver}"
    compute = f"compute capability {gpu.compute or 'not known'}"
    parts = [compute, gpu.variant, here, driver if gpu.driver else "driver not known"]
    return ", ".join(part for part in parts if part)


def _summarise(
    question: Question, decision: Decision, reasons: Sequence[FactLine], findings: Sequence[FindingLine]
) -> str:
    """Return the answer in one sentence, and what it does not cover where it was narrowed."""
    after = question.after.name

    def topics(weight: Weight) -> list[str]:
        return list(dict.fromkeys(reason.topic for reason in reasons if reason.weight is weight))

    match decision:
        case Decision.GO:
            text = (
                f"Go: nothing that was looked at is worse at {after}, and enough was seen to be right there."
            )
            if told := [reason.text for reason in reasons if reason.topic == PERFORMANCE]:
                text = f"Go: no result is worse at {after}, and enough are right there. But {told[0]}."
        case Decision.GO_WITH_WORKAROUNDS:
            needed = ", ".join(topics(Weight.WORKAROUND))
            text = f"Go, with work-arounds for {needed}: without them {after} is worse."
        case Decision.DONT:
            text = f"Don't move to {after} as things stand: {', '.join(topics(Weight.AGAINST))}."
        case Decision.NOT_ENOUGH:
            feared = [f.repro for f in findings if any(line.after.feared for line in f.cases)]
            but = f"; not tested, but expected to fail: {', '.join(feared)}" if feared else ""
            # Where the user's own lacks, the findings are notes and not what is missing.
            mine = [topic for topic in topics(Weight.LACKING) if topic in {MODEL, CHECK, CODE}]
            said = f"of {' and '.join(mine)} too little is known" if mine else _coverage(findings, after)
            text = f"Not enough evidence: {said}. No change for the worse is known{but}."
    text = f"A downgrade. {text}" if question.after.release < question.before.release else text
    return f"{text} Only what {question.restricted} leaves was looked at." if question.restricted else text


def _coverage(findings: Sequence[FindingLine], after: str) -> str:
    """Say of how many findings enough is known at the version moved to, and which are said to be fixed."""
    able = [finding for finding in findings if finding.change is not Change.SAYS_NOTHING]
    seen = sum(all(line.weight is not Weight.LACKING for line in finding.cases) for finding in able)
    count = "the one finding" if len(able) == 1 else f"the {len(able)} findings"
    known = {0: "none is", 1: "1 is"}.get(seen, f"{seen} are")
    text = f"of {count} that can be tried at {after}, {known} known well enough"
    for word in ("reported to be fixed", "fixed, not confirmed"):
        names = [f.repro for f in able if fixed_word(f) == word]
        if names:
            text += f"; {', '.join(names)} {'is' if len(names) == 1 else 'are'} {word}"
    return text


def choose_version(upgrades: Sequence[Upgrade], named: Sequence[str] = ()) -> Upgrade:
    """Return the report of the version to move to, with a reason for each other version.

    ``upgrades``: those to every newer version, oldest first, at least one. The newest with the answer go or
    go with work-arounds; else of those with the best answer the one of which most was seen to be right.
    ``named``: findings that the user asked about; the nearest version that fixes each is told.
    """
    good = [u for u in upgrades if u.decision in {Decision.GO, Decision.GO_WITH_WORKAROUNDS}]
    if good:
        chosen = good[-1]
        what = f"{chosen.after} is the newest version with nothing against it."
    else:
        best = min((upgrade.decision for upgrade in upgrades), key=_BEST_FIRST.index)
        chosen = max((u for u in reversed(upgrades) if u.decision is best), key=_count_right)
        seen = "the one with most seen to be right" if _count_right(chosen) else "the newest"
        what = f"No newer version can be recommended yet; {chosen.after} is {seen} of the best answered."
    notes = [_find_fix(upgrades, name) for name in named]
    for other in reversed(upgrades):
        if other is not chosen:
            against = (reason for reason in other.reasons if reason.weight is Weight.AGAINST)
            if first := next(against, None):
                text = f"{other.decision.value}: {first.topic}, {first.text}"
                notes.append(_note(other.after, text, first.known, first.sources))
            else:
                notes.append(_note(other.after, other.decision.value))
    return replace(chosen, reasons=(*chosen.reasons, *notes), summary=f"{what} {chosen.summary}")


def _count_right(upgrade: Upgrade) -> int:
    """Return how many cases were seen to be right at a version, on however few builds."""
    lines = (line for finding in upgrade.findings for line in finding.cases)
    return sum(standing_of(line.after) in {Standing.GOOD, Standing.FEW} for line in lines)


def _find_fix(upgrades: Sequence[Upgrade], name: str) -> FactLine:
    """Return the nearest version that fixes a finding and makes nothing of it bad, and how that is known."""
    fixes = []
    for upgrade in upgrades:
        for finding in upgrade.findings:
            changes = {line.change for line in finding.cases}
            bad = changes & {Change.REGRESSED, Change.UNCHANGED_BAD}
            if finding.repro == name and Change.FIXED in changes and not bad:
                fixes.append((upgrade.after, finding))
    if not fixes:
        text = f"{name}: no newer version is known to be right where {upgrades[0].before} is wrong"
        return _note("nearest fix", text)
    sure = [fix for fix in fixes if fix[1].weight is Weight.FOR]
    after, finding = (sure or fixes)[0]
    line = next(line for line in finding.cases if line.change is Change.FIXED)
    how = "" if sure else ", not confirmed"
    text = f"{name}: {after} ({line.before.word} → {line.after.word}){how}"
    return _note("nearest fix", text, line.after.evidence.value, line.after.sources[:1])


def _note(topic: str, text: str, known: str = "none", sources: tuple[Source, ...] = ()) -> FactLine:
    return FactLine(topic=topic, text=text, weight=Weight.NOTE, known=known, sources=sources)
