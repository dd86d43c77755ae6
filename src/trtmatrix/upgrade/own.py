"""The user's own model in a decision: its cases, its deployer's acceptance, and what no floor means. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trtmatrix.judge.confirm import CONFIRMING_BUILDS
from trtmatrix.judge.factors import PASS_FACTOR
from trtmatrix.judge.noise import NO_FLOOR, NO_FLOOR_OF
from trtmatrix.suite.outcome import Evidence
from trtmatrix.upgrade.question import Own, Question
from trtmatrix.upgrade.report import CaseLine, Change, CheckOutcome, FactLine, Lacking, Weight
from trtmatrix.upgrade.samples import FLOORS
from trtmatrix.upgrade.standing import HEAVIEST, Standing, standing_of, weigh_own

TOPIC = "your model"
CHECK = "your acceptance"


def weigh_case(line: CaseLine) -> tuple[Change, Weight]:
    """Return what a case of the model does to the decision, of its two sides alone."""
    return weigh_own(standing_of(line.before), standing_of(line.after))


def own_reasons(question: Question) -> Iterator[FactLine]:
    """Yield what the model's cases, its floor and its deployer's check say."""
    own = question.own
    if own is None:
        return
    for line in sorted(own.section.cases, key=lambda line: HEAVIEST.index(weigh_case(line)[1])):
        yield _of_case(line, own)
    if not own.section.cases:
        troubles = "; ".join(own.section.troubles) or "it did not run"
        yield FactLine(topic=TOPIC, text=troubles, weight=Weight.LACKING, known=Evidence.NONE.value)
    if own.section.check is not None:
        yield _of_check(own.section.check)


def _of_case(line: CaseLine, own: Own) -> FactLine:
    change, weight = weigh_case(line)
    text = f"{line.case}: {change.value}, {line.before.word or '·'} → {line.after.word or '·'}"
    text += f" ({line.why})" if line.why else ""
    if standing_of(line.after) is Standing.VOID and (instead := _accepted(own) or _settled(own, line)):
        enough = not line.after.counted or line.after.builds >= CONFIRMING_BUILDS
        weight = Weight.FOR if enough else Weight.LACKING
        text += f"; by itself that says nothing, {instead}"
    return FactLine(
        topic=TOPIC, text=text, weight=weight, known=line.after.evidence.value, sources=line.after.sources[:1]
    )


def _accepted(own: Own) -> str:
    """Say that the deployer's acceptance decides, where it accepts."""
    passed = own.section.check is not None and own.section.check.passed
    return "your acceptance decides" if passed else ""


def _settled(own: Own, line: CaseLine) -> str:
    """Say that integers are equal at both versions, where all other outputs are within their floors."""
    settled = [item.output for item in own.section.differences if item.is_settled]
    within = {
        item.output for item in own.section.samples
        if item.version == line.after.version and item.unit == FLOORS and item.worst <= PASS_FACTOR
    }  # fmt: skip
    others = [item for item in own.section.differences if item.output not in {*settled, *within}]
    if others or not settled or not line.after.reason.startswith((NO_FLOOR, NO_FLOOR_OF)):
        return ""
    return f"but {', '.join(settled)}: equal at both versions"


def _of_check(check: CheckOutcome) -> FactLine:
    figure = f", {check.label or 'figure'} {check.figure:g}" if check.figure is not None else ""
    if check.passed is None:
        text, weight = f"{check.script} did not answer: {check.error}", Weight.LACKING
    elif check.passed:
        text, weight = f"{check.script} accepts the outputs{figure}", Weight.FOR
    else:
        text, weight = f"{check.script} refuses the outputs{figure}", Weight.AGAINST
    return FactLine(topic=CHECK, text=text, weight=weight, known=Evidence.MEASURED.value)


def own_lacking(question: Question, reasons: Sequence[FactLine]) -> Iterator[Lacking]:
    """Yield how to run the model where it has not run: the same command where it can."""
    if question.own is None:
        return
    if any(r.topic == TOPIC and r.weight is Weight.LACKING for r in reasons):
        command = question.command.replace(" --no-run", "")
        sides = [side for line in question.own.section.cases for side in (line.before, line.after)]
        if sides and all(side.verdict is not None for side in sides) and not _has_own_limit(question.own):
            yield Lacking(what="your model ran: what would be right", command=f"{command} --check accept.py")
        else:
            yield Lacking(what="your model, on a host that can run both versions", command=command)


def _has_own_limit(own: Own) -> bool:
    return own.tolerance or own.section.check is not None
