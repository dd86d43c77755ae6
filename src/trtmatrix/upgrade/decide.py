"""The answer: a pure function of records, expectations and facts, with the reasons that it follows from."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from trtmatrix.api.report import LEFT_OUT, count_uses
from trtmatrix.common.text import counted, join_some
from trtmatrix.judge.compare import CONFIRMING_BUILDS
from trtmatrix.judge.factors import PASS_FACTOR
from trtmatrix.judge.noise import HIDES, NO_FLOOR, NO_FLOOR_OF
from trtmatrix.suite.model import Basis, Cause, Evidence, Product
from trtmatrix.upgrade.facts import make_engines, make_hardware
from trtmatrix.upgrade.findings import Standing, make_findings, rank, standing_of
from trtmatrix.upgrade.performance import BUILD, MEASURES, THROUGHPUT, TIMES, make_performance
from trtmatrix.upgrade.question import (
    DOOR,
    NOT_RUN,
    Own,
    Question,
    file_options,
    find_blind_spots,
    make_lacking,
    model_options,
    typed,
)
from trtmatrix.upgrade.report import (
    CaseLine,
    Change,
    Decision,
    FactLine,
    FindingLine,
    Lacking,
    ModelSection,
    PerformanceLine,
    Source,
    Upgrade,
    Weight,
)

ASKED = "your model, on a host that can run both versions"
JUDGED = "your model ran: what would be right"
TIMED = "more engines of your model: it is perhaps slower or larger"
MENDED = "your acceptance script stopped with an error: mend it, then ask again"
EXPLAINED = "where in your model it goes wrong"
OTHERS = "which other versions run your model, and are right"
MODEL, CHECK, CODE, PERFORMANCE = "your model", "your acceptance", "your code", "performance"
"""Topics of reasons beside the findings and the hardware."""
APART = ", measured in different runs"
"""Said of a time whose engines were not built and timed by turns."""
TOO_FEW = ": too few engines to tell"
"""Said of a figure that more engines may show to be beyond its limit."""
NOT_CHECKED = " was not run: "
"""Said of an acceptance script that had no outputs to look at."""
FLOORS = "floors"
"""The unit of a sample's figure in noise floors."""
EARLY = "early access"
"""What the note of a version in matrix.yaml has where that is no final release."""
SHOWN, SOURCES = 6, 3
"""Models that a sentence names, and sources that a reason names; the tables have all."""


def decide(question: Question) -> Upgrade:
    """Return the whole report: the answer, why, and what there is to know."""
    before, after, options = question.before, question.after, question.options
    limit = 0.0 if options.no_performance else options.max_slowdown
    findings = make_findings(question.entries, before.name, after.name)
    build = options.max_build_slowdown or limit
    others = make_performance(question.entries, before.name, after.name, limit, build)
    mine = [
        make_performance(own.entries, before.name, after.name, own.limit, own.build) for own in question.owns
    ]
    models = tuple(_decide_on_model(own, lines) for own, lines in zip(question.owns, mine, strict=True))
    lacking = list(_ask_of_model(question, models))
    if not options.models:
        lacking += [item for item in make_lacking(question, findings) if item not in lacking]
    notes = set(Weight) if options.models else {Weight.LACKING} if models else set()
    findings = tuple(replace(f, weight=Weight.NOTE) if f.weight in notes else f for f in findings)
    hardware = make_hardware(before, after, question.gpu, question.matrix)
    if any(line.topic == "GPU" and line.weight is Weight.AGAINST for line in hardware):
        lacking = []  # no evidence would change anything
    reasons = [line for line in hardware if line.weight is Weight.AGAINST]
    reasons += _sum_up_models(models) if options.models else [r for m in models for r in m.reasons]
    reasons += [*_tell_findings(question, findings), *_tell_code(question)]
    reasons += _tell_performance(others, PERFORMANCE, Weight.NOTE, limit, build)
    reasons.sort(key=_place)
    gpu, gpu_note = question.gpu, "no GPU is needed"
    if after.product is Product.TENSORRT:
        here = "not in this host" if not gpu.present else "at this site" if gpu.remote else "in this host"
        driver = f"driver {gpu.driver}" if gpu.driver else "driver not known"
        driver = driver if gpu.present or not gpu.driver else f"recorded with {driver}"
        compute = f"compute capability {gpu.compute or 'not known'}"
        gpu_note = ", ".join(part for part in (compute, gpu.variant, here, driver) if part)
    upgrade = Upgrade(
        product=after.product, before=before.name, after=after.name, gpu=gpu.name,
        gpu_note=gpu_note, decision=settle(reasons, own=bool(models)), summary="",
        reasons=tuple(reasons), findings=findings, gpu_and_driver=hardware,
        performance=(*chain.from_iterable(mine), *others), api=question.api,
        engines=make_engines(before, after), models=models, lacking=tuple(lacking),
        not_looked_at=tuple(find_blind_spots(question, findings)), command=options.command,
    )  # fmt: skip
    return replace(upgrade, summary=_summarise(question, upgrade))


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


def _place(line: FactLine) -> int:
    """Return a reason's place: the weightiest first; notes on the user's own come before what is well."""
    if line.topic == CODE and line.weight is Weight.WORKAROUND:
        return 0  # the exit code hangs on it
    own = line.weight is Weight.NOTE and line.topic == MODEL
    return list(Weight).index(Weight.FOR if own else line.weight)


def _decide_on_model(own: Own, lines: Sequence[PerformanceLine]) -> ModelSection:
    """Return a model's section with what its own measurements say; ``lines``: its figures."""
    section = own.section
    if section.mistake:
        return section
    # Its inputs are a mistake where every version that was tried refuses them: either they do not fit the
    # engines, or nobody can run the graph with them, this host's CPU included.
    sides = [side for line in section.cases for side in (line.before, line.after)]
    nobody = {side.cause for side in sides} == {Cause.CRASHED} and section.reference.startswith("none: ")
    if nobody or all(REFUSED.search(side.reason) for side in sides):
        by = f"both versions{' and the CPU' if nobody else ''}"
        return replace(section, mistake=f"its inputs are refused by {by}: {sides[-1].reason}")
    told = _tell_performance(lines, MODEL, Weight.AGAINST, own.limit, own.build or own.limit)
    reasons = [*_tell_model(own), *told]
    reasons.sort(key=_place)
    return replace(section, reasons=tuple(reasons), decision=settle(reasons, own=True))


REFUSED = re.compile(
    r"input \S+ (?:holds|is float64)|does not take the shape|which is not given|shapes do not fit each other"
)
"""What the probe says where inputs do not fit an engine (``fit_feed`` and ``GpuEngine`` in trtprobe)."""


def _sum_up_models(models: Sequence[ModelSection]) -> Iterator[FactLine]:
    """Yield a reason for each model that stands in the way, and one for all that do not."""
    weights = {Decision.DONT: Weight.AGAINST, Decision.NOT_ENOUGH: Weight.LACKING}
    good = [model for model in models if model.decision is Decision.GO]
    for model in models:
        if weight := weights.get(model.decision or Decision.GO):
            why = "; ".join(reason.text for reason in model.reasons if reason.weight is weight)
            why = why or "no result of it is right at the new version"
            yield FactLine(topic=model.name, text=why, weight=weight, known=_known(model))
        elif model.mistake:
            yield FactLine(topic=model.name, text=f"left out, a mistake to mend: {model.mistake}")
    if good:
        text = f"{counted(len(good), 'model')} of {len(models)}: {', '.join(m.name for m in good)}"
        yield FactLine(topic=MODEL, text=text, weight=Weight.FOR, known=_known(*good))


def _known(*models: ModelSection) -> str:
    """Return how the results of models after the move are known, the least known of them."""
    found = [line.after.evidence for model in models for line in model.cases]
    return max(found, key=list(Evidence).index, default=Evidence.NONE).value


def _ask_of_model(question: Question, models: Sequence[ModelSection]) -> Iterator[Lacking]:
    """Yield how to run models, to judge those that can say nothing, and to look into those that fail."""
    options = question.options
    command, limited = options.command.replace(" --no-run", ""), typed(options.model, "atol", "rtol", "check")
    words = [*model_options(options.model), *(["--gpu", question.gpu_word] if question.gpu_word else [])]
    others = f"{DOOR} matrix -- {shlex.join([*words, *file_options(options.project)])}"
    commands = {
        JUDGED: f"{command} --check accept.py", MENDED: command, TIMED: command, ASKED: command, NOT_RUN: "",
        EXPLAINED: f"{command} --explain", OTHERS: others,
    }  # fmt: skip
    found = set[str]()
    for model in (model for model in models if not model.mistake):
        sides = [side for line in model.cases for side in (line.before, line.after)]
        after, check = {standing_of(line.after) for line in model.cases}, model.check
        silent = not limited and check is None and all(side.verdict is not None for side in sides)
        raised = check is not None and check.passed is None and NOT_CHECKED not in check.error
        for reason in (reason for reason in model.reasons if reason.weight is Weight.LACKING):
            if reason.text.endswith(TOO_FEW):
                found.add(TIMED)
            elif Standing.BUILT in after:
                found.add(NOT_RUN)
            elif raised:
                found.add(MENDED)
            else:
                found.add(JUDGED if silent and Standing.VOID in after else ASKED)
        if Standing.BAD in after and not options.model.explain:
            found.add(EXPLAINED)
        elif after & {Standing.BAD, Standing.BROKEN, Standing.UNSUPPORTED} and options.model.model:
            found.add(OTHERS)
    yield from (Lacking(what=what, command=commands[what]) for what in commands if what in found)


def _summarise(question: Question, upgrade: Upgrade) -> str:
    """Return the answer in one sentence, and what it does not cover where it was narrowed."""
    after, findings, models = upgrade.after, upgrade.findings, upgrade.models
    if question.options.models:  # how many there are of each answer, and which stand in the way
        good = sum(model.decision is Decision.GO for model in models)
        parts = [f"{good} of {counted(len(models), 'model')} can move to {after}"]
        words = {Decision.DONT: "don't move", Decision.NOT_ENOUGH: "too little is known of"}
        for decision, told in (*words.items(), (None, "a mistake to mend in")):
            if names := [model.name for model in models if model.decision is decision]:
                parts.append(f"{told} {join_some(names, SHOWN)}")
        return f"{'; '.join(parts)}.{_tell_early(question)}"
    topics = {w: list(dict.fromkeys(r.topic for r in upgrade.reasons if r.weight is w)) for w in Weight}
    match upgrade.decision:
        case Decision.GO:
            slower = next((f" But {r.text}." for r in upgrade.reasons if r.topic == PERFORMANCE), "")
            text = f"Go: no result is worse at {after}, and enough are right there.{slower}"
        case Decision.GO_WITH_WORKAROUNDS:
            text = ", ".join(topic for topic in topics[Weight.WORKAROUND] if topic != CODE)
            text = f"Go, with the work-arounds that {after} needs for {text}" if text else "Go"
            text += ", once your code is changed." if CODE in topics[Weight.WORKAROUND] else "."
        case Decision.DONT:
            text = f"Don't move to {after} as things stand: {', '.join(topics[Weight.AGAINST])}."
        case Decision.NOT_ENOUGH:  # where the user's own lacks, the findings are notes
            mine = [topic for topic in topics[Weight.LACKING] if topic in {MODEL, CHECK, CODE}]
            able = [finding for finding in findings if finding.change is not Change.SAYS_NOTHING]
            seen = sum(all(line.weight is not Weight.LACKING for line in f.cases) for f in able)
            verb = "is" if seen == 1 else "are"
            text = f"{seen} of {counted(len(able), 'finding')} {verb} known well enough at {after}"
            text = _tell_own(models, after) if models else text
            text = f"too little is known of {' and '.join(mine)}" if mine else text
            feared = [f.repro for f in findings if any(line.after.feared for line in f.cases)]
            but = f"; not tested, but expected to fail: {', '.join(feared)}" if feared else ""
            worse = [f.repro for f in findings if any(line.change is Change.REGRESSED for line in f.cases)]
            but = f". Worse, with a work-around: {', '.join(worse)}{but}" if worse else but
            text = f"Not enough evidence: {text}{but}."
    text = f"A downgrade. {text}" if question.after.release < question.before.release else text
    text += _tell_early(question)
    restricted = " ".join(question.options.restricted)
    return f"{text} Only what {restricted} leaves was looked at." if restricted else text


def _tell_own(models: Sequence[ModelSection], after: str) -> str:
    """Say why models give no reason to move, though nothing about them is lacking."""
    sides = (side for model in models for line in model.cases for side in (line.before, line.after))
    if any(model.mistake for model in models):
        return "your model has a mistake to mend"
    wrong = {standing_of(side) for side in sides} <= {Standing.BAD, Standing.SAID_BAD}
    return "your model is wrong at both versions" if wrong else f"your model is not right at {after} either"


def _tell_early(question: Question) -> str:
    """Say which of the two versions is an early access release, by its note in matrix.yaml."""
    versions = {version.name: version for version in (question.before, question.after)}
    early = [name for name, version in versions.items() if EARLY in version.note]
    return f" {' and '.join(early)} {'is' if len(early) == 1 else 'are'} early access." if early else ""


def _tell_findings(question: Question, findings: Sequence[FindingLine]) -> Iterator[FactLine]:
    """Yield a reason for each finding that says something, and one for all of which nothing is known."""
    untested = []
    for finding in findings:
        before, after = finding.cases[0].before, finding.cases[0].after
        silent = standing_of(after) in {Standing.UNKNOWN, Standing.ABSENT}
        bad = {Change.REGRESSED, Change.BAD_AFTER, Change.UNCHANGED_BAD}
        if finding.weight is Weight.NOTE and finding.change not in bad:
            continue
        if finding.weight is Weight.LACKING and silent and not after.feared:
            untested.append(finding.repro)
            continue
        sources = (after.feared,) if after.feared else (*after.sources, *before.sources)
        yield FactLine(
            topic=finding.repro, text=finding.why, weight=finding.weight, sources=sources[:SOURCES],
            known=Basis.ASSUMED.value if after.feared else after.evidence.value,
        )  # fmt: skip
    if untested:
        text = f"{', '.join(untested)} at {question.after.name}"
        yield FactLine(topic="untested", text=text, weight=Weight.LACKING)


def _tell_performance(
    lines: Sequence[PerformanceLine], topic: str, weight: Weight, usual: float, build: float
) -> Iterator[FactLine]:
    """Yield each measure that is beyond the limit; of what is not comparable only a latency beyond it."""
    for measure in MEASURES:
        limit = build if measure == BUILD else usual
        mine = [line for line in lines if line.measure == measure]
        beyond = [line for line in mine if line.beyond_limit]
        unsure = [line for line in mine if line.more_engines and not line.beyond_limit]
        silent = [x for x in mine if x.why_not and measure == "latency" and (x.ratio or 0) > limit]
        apart = sum(not line.by_turns for line in beyond) if measure in TIMES else 0
        name = measure + APART * (0 < apart == len(beyond))
        partly = f" ({apart} of them{APART[1:]})" if 0 < apart < len(beyond) else ""
        of_all = f" of {counted(sum(not line.why_not for line in mine), 'case')}"
        lacking = Weight.LACKING if weight is Weight.AGAINST else Weight.NOTE
        for found, number, words, weighs in (
            (beyond, f"{len(beyond)}{of_all}", f"significantly beyond {limit:g}×{partly}", weight),
            (unsure, counted(len(unsure), "case"), f"perhaps beyond {limit:g}×", lacking),
            (silent, counted(len(silent), "case"), f"beyond {limit:g}× not comparable", Weight.NOTE),
        ):
            if not found:
                continue
            most = max(found, key=lambda line: line.ratio or 0)
            ratio = f"{most.ratio or 0:.2f}× {'the time an item' if measure == THROUGHPUT else 'as much'}"
            text = f"{number} {words}, most {most.repro}/{most.case} ({ratio})"
            text = f"{ratio}, {words}" if len(mine) == 1 else text
            why = TOO_FEW if found is unsure else f": {most.why_not}" if most.why_not else ""
            yield FactLine(
                topic=PERFORMANCE if found is silent else topic, weight=weighs, known=Evidence.RECORDED.value,
                text=f"{name if found is beyond else measure}: {text}{why}",
            )  # fmt: skip


def _tell_model(own: Own) -> Iterator[FactLine]:
    """Yield what the model's cases, its deployer's check and its nodes say."""
    section = own.section
    for line in sorted(section.cases, key=rank):
        text = f"{line.case}: {line.change.value}, {line.before.word or '·'} → {line.after.word or '·'}"
        text, weight = f"{text} ({line.why})" if line.why else text, line.weight
        beyond = {item.version: item for item in section.integers if item.beyond}
        if standing_of(line.after) is Standing.VOID and line.after.version in beyond:
            worse = line.before.version not in beyond
            weight = Weight.AGAINST if worse else Weight.LACKING
            text += f"; {beyond[line.after.version].text}{'' if worse else ', as before'}"
        elif standing_of(line.after) is Standing.VOID and (instead := _speaks_instead(own, line)):
            enough = not line.after.counted or line.after.builds >= CONFIRMING_BUILDS
            weight = Weight.FOR if enough else Weight.LACKING
            text += f"; {instead}"
        known, sources = line.after.evidence.value, line.after.sources[:1]
        yield FactLine(topic=MODEL, text=text, weight=weight, known=known, sources=sources)
    if (check := section.check) is not None:
        figure = f", {check.label or 'figure'} {check.figure:g}" if check.figure is not None else ""
        text, weight = {
            None: (f"{check.script} did not answer: {check.error}", Weight.LACKING),
            True: (f"{check.script} accepts the outputs{figure}", Weight.FOR),
            False: (f"{check.script} refuses the outputs{figure}", Weight.AGAINST),
        }[check.passed]
        yield FactLine(topic=CHECK, text=text, weight=weight, known=Evidence.MEASURED.value)
    passed = all(line.weight is Weight.FOR for line in section.cases)
    for node in section.nodes:  # what the model itself did is the better witness
        weight = Weight.NOTE if passed else node.weight
        yield replace(node, topic=MODEL, text=f"{node.topic}: {node.text}", weight=weight)


def _speaks_instead(own: Own, line: CaseLine) -> str:
    """Say what decides where the model by itself says nothing, or nothing.

    That is the deployer's acceptance, or integers where all other outputs are within their floors: integers
    of which noise explains every difference from the reference, or that have no floor and are equal at both
    versions.
    """
    section, version = own.section, line.after.version
    if section.check is not None and section.check.passed:
        return "your acceptance decides"
    outputs = {item.output for item in section.differences}
    told = [item for item in section.integers if item.version == version]
    settled = {item.output: None for item in told}  # in the order in which they are named
    unknown = line.after.reason.startswith((NO_FLOOR, NO_FLOOR_OF))
    if unknown:
        equal = (item.output for item in section.differences if item.integers and item.max_abs == 0)
        settled |= dict.fromkeys(equal)
    within = {
        item.output for item in section.samples
        if item.version == version and item.unit == FLOORS and item.worst <= PASS_FACTOR
    }  # fmt: skip
    within = within if unknown or HIDES in line.after.reason else set()
    if not settled or not outputs <= {*settled, *within}:
        return ""
    return "; ".join(item.text for item in told) or f"but {', '.join(settled)}: equal at both versions"


def _tell_code(question: Question) -> Iterator[FactLine]:
    """Yield what the API's changes do: removed calls in the user's code must be changed first."""
    api = question.api
    surfaces = tuple(Source(title=title) for title in api.surfaces)
    if not question.options.code:
        return
    if api.lacking or not api.files:
        why = api.unread[0][1] if api.unread else "none is Python, a notebook, shell or a Dockerfile"
        yield FactLine(topic=CODE, text=f"not checked: {api.lacking or why}", weight=Weight.LACKING)
        return
    text = count_uses(api)
    if sure := api.must_change:
        first = min(sure, key=lambda use: (use.file, use.cell, use.line))
        text += f": change your code first (exit code 11), the first line in {first.file}:{first.line}"
    weight = Weight.WORKAROUND if sure else Weight.NOTE
    yield FactLine(topic=CODE, text=text, weight=weight, known="read", sources=surfaces)
    if unread := [(file, why) for file, why in api.unread if not why.startswith(LEFT_OUT)]:
        (file, why), number = unread[0], counted(len(unread), "file")
        text = f"{number} could not be read, or not all of it, the first {file}: {why}"
        yield FactLine(topic=CODE, text=text)
