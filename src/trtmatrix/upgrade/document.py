"""An upgrade report as a document: sections of sentences and tables, for every format. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from trtmatrix.api.report import count_changes, met_behaviours, tell_api
from trtmatrix.api.types import ApiSection
from trtmatrix.common.words import short
from trtmatrix.judge.differences import Difference
from trtmatrix.judge.words import PRODUCT_NAMES
from trtmatrix.model.outcomes import CheckOutcome
from trtmatrix.suite.model import Evidence, Verdict
from trtmatrix.upgrade.performance import LEAST_CHANGE, summarise_performance
from trtmatrix.upgrade.report import (
    CaseLine,
    Change,
    Decision,
    FactLine,
    FindingLine,
    Lacking,
    ModelSection,
    PerformanceLine,
    SampleFigure,
    Side,
    Source,
    Spread,
    Upgrade,
    Weight,
    WorkaroundLine,
    count,
)
from trtmatrix.upgrade.slowdown import RULE

TONES: Mapping[Enum, str] = {
    Decision.GO: "good", Decision.GO_WITH_WORKAROUNDS: "warn", Decision.DONT: "bad",
    Decision.NOT_ENOUGH: "unsure",
    Change.REGRESSED: "bad", Change.UNCHANGED_BAD: "warn", Change.UNKNOWN: "unsure", Change.FIXED: "good",
    Change.UNCHANGED_GOOD: "good", Change.SAYS_NOTHING: "",
    Weight.AGAINST: "bad", Weight.LACKING: "unsure", Weight.WORKAROUND: "warn", Weight.FOR: "good",
    Weight.NOTE: "",
    Verdict.PASS: "good", Verdict.FAIL: "bad", Verdict.FLAKY: "bad", Verdict.INVALID: "unsure",
    Verdict.BUILT: "", Verdict.NO_VERDICT: "unsure",
}  # fmt: skip
"""How each looks: good, bad, warn, unsure, or like plain words."""

EVIDENCE: Mapping[Evidence, str] = {
    Evidence.MEASURED: "measured here", Evidence.RECORDED: "recorded elsewhere or before a change",
    Evidence.REPORTED: "reported", Evidence.NONE: "no evidence",
}  # fmt: skip
_MARKS = "[PASS]: recorded elsewhere or before a change, (PASS): reported, ¹: on one build."
_BRIEF = {Change.REGRESSED: 5, Change.UNCHANGED_BAD: 3, Change.FIXED: 3}
"""How many cases of a finding a terminal shows."""
_FEW = 12
"""So many rows of what is folded are shown unfolded."""


@dataclass(frozen=True)
class Span:
    """Some words. ``kind``: ``code``, ``strong``, ``chip`` (a word with its ``tone``), or nothing.

    What is ``soft`` is left out on a terminal. ``url``: where they lead, if anywhere.
    """

    text: str
    kind: str = ""
    tone: str = ""
    url: str = ""
    soft: bool = False


Words = tuple[str | Span, ...]


@dataclass(frozen=True, kw_only=True)
class Item:
    """A sentence. ``mark``: a word of its own before it; ``depth``: how far it is set in.

    ``known`` and ``sources``: how it is known, and where that can be read.
    """

    words: Words
    mark: Span | None = None
    depth: int = 0
    known: str = ""
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Lines:
    """Sentences, one below the other."""

    kind: ClassVar[str] = "lines"
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Fold:
    """What unfolds under its title; a terminal shows no more of it than its first ``brief`` rows or lines."""

    kind: ClassVar[str] = "fold"
    title: str
    blocks: tuple[Block, ...]
    opened: bool = False
    brief: int = 0


@dataclass(frozen=True)
class Row:
    """A row; its first cell is its head. ``under``: what unfolds below it."""

    cells: tuple[Words, ...]
    under: tuple[Fold, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, whose rows a terminal shows as sentences.

    ``numbers``: its cells are numbers, but for the head and the last.
    """

    kind: ClassVar[str] = "table"
    label: str
    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    numbers: bool = False


@dataclass(frozen=True)
class Command:
    """A command as it is to be typed."""

    kind: ClassVar[str] = "command"
    text: str


Block = Lines | Fold | Table | Command


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report; ``name`` is its id in a page."""

    name: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """The report. ``title`` names the move, ``where`` the GPU, ``answer`` is the verdict with its ``tone``.

    ``command`` made it; ``exit_code`` in words, as it may differ from that of the answer.
    """

    title: str
    where: str
    answer: str
    tone: str
    summary: str
    exit_code: str
    reasons: Lines
    sections: tuple[Section, ...]
    command: str
    generated: str


def make_document(upgrade: Upgrade) -> Document:
    """Return the report as a document; a section of which there is nothing to tell is not in it."""
    api, before, after = upgrade.api, upgrade.before, upgrade.after
    made: tuple[tuple[str, str, Iterable[Block]], ...] = (
        ("lacking", "What would tell more", _lacking(upgrade.lacking)),
        ("model", "Your model", _model(upgrade.model, before, after) if upgrade.model else ()),
        ("findings", "Findings", _findings(upgrade.findings, before, after)),
        ("gpu", "GPU and driver", _lines(map(_fact_item, upgrade.gpu_and_driver))),
        ("performance", "Performance", _performance(upgrade)),
        ("api", "Your code and the API" if api.code else "API", _api(api, before, after)),
        ("engines", "Engines to rebuild", _lines(map(_fact_item, upgrade.engines))),
        ("not-looked-at", "Not looked at", _lines(_item(text) for text in upgrade.not_looked_at)),
    )
    sections = ((name, title, tuple(blocks)) for name, title, blocks in made)
    ends = (version.removeprefix(f"{upgrade.product.value}-") for version in (before, after))
    gone = upgrade.exit_code is not upgrade.decision.exit_code
    return Document(
        title=f"{PRODUCT_NAMES[upgrade.product]} {' → '.join(ends)}",
        where=" · ".join(part for part in (upgrade.gpu.removeprefix("CPU"), upgrade.gpu_note) if part),
        answer=upgrade.decision.value[0].upper() + upgrade.decision.value[1:], summary=upgrade.summary,
        tone=TONES[upgrade.decision],
        exit_code=f"exit code {int(upgrade.exit_code)}{': your code must change first' if gone else ''}",
        reasons=Lines(tuple(_fact_item(reason, note=True) for reason in upgrade.reasons)),
        sections=tuple(Section(name=n, title=t, blocks=blocks) for n, t, blocks in sections if blocks),
        command=upgrade.command, generated=upgrade.generated,
    )  # fmt: skip


def _chip(member: Enum, word: str = "") -> Span:
    return Span(word or member.value, "chip", TONES[member])


def _weighed(line: FindingLine | CaseLine) -> Words:
    return (_chip(line.weight), f" · {line.why}" if line.why else "")


def _item(*words: str | Span, depth: int = 0) -> Item:
    return Item(words=words, depth=depth)


def _lines(items: Iterable[Item]) -> tuple[Block, ...]:
    """Return items as a block, or no block of none."""
    found = tuple(items)
    return (Lines(found),) if found else ()


def _fact_item(fact: FactLine, *, note: bool = False) -> Item:
    """Return a fact; ``note``: that it is a mere note is told too."""
    return Item(
        words=(Span(f"{fact.topic}:", "strong"), f" {fact.text}"), known=fact.known, sources=fact.sources,
        mark=_chip(fact.weight) if note or fact.weight is not Weight.NOTE else None,
    )  # fmt: skip


def _lacking(lacking: Sequence[Lacking]) -> Iterator[Block]:
    """Yield each with its command; where one stands for all that follow, those are folded."""
    last = next((number for number, item in enumerate(lacking, 1) if item.whole), len(lacking))
    told = [(*_lines([_item(item.what)]), Command(item.command)) for item in lacking]
    for blocks in told[:last]:
        yield from blocks
    if others := [block for blocks in told[last:] for block in blocks]:
        yield from _lines([_item("One finding alone: --repro NAME in its place")])
        number = len(lacking) - last
        yield Fold(f"Or one by one: {count(number, 'command')}", tuple(others), opened=number < 3)


def _findings(findings: Sequence[FindingLine], before: str, after: str) -> Iterator[Block]:
    """Yield a row a finding, under which its work-arounds and its cases unfold."""
    rows = []
    for finding in findings:
        case = deciding(finding)
        upstream = (" · ", Span(finding.upstream, url=finding.url)) if finding.upstream else ()
        cells: tuple[Words, ...] = (
            (Span(finding.repro, "strong"), *upstream, f" {finding.title}"), (_chip(finding.change),),
            *((side_words(case.before), side_words(case.after)) if case else ((), ())),
            _weighed(finding),
        )  # fmt: skip
        rows.append(Row(cells, under=tuple(_unfold(finding, before, after))))
    if rows:
        changes = Counter(case.change for finding in findings for case in finding.cases)
        tally = (w for c in Change if changes[c] for w in (_chip(c), f" {count(changes[c], 'case')}. "))
        yield Lines((_item(*tally), _item(_MARKS)))
        heads = ("finding", "change", before, after, "to the decision")
        yield Table(label="Findings", heads=heads, rows=tuple(rows))


def deciding(finding: FindingLine) -> CaseLine | None:
    """Return the case that a finding's line stands for: of its change and weight, else of its change."""
    alike = [case for case in finding.cases if case.change is finding.change]
    same = [case for case in alike if case.weight is finding.weight]
    return next(iter([*same, *alike, *finding.cases]), None)


def _unfold(finding: FindingLine, before: str, after: str) -> Iterator[Fold]:
    if finding.workarounds:
        counting, number = sum(item.counts for item in finding.workarounds), len(finding.workarounds)
        title = f"{count(number, 'work-around')}, {counting} that count{'s' * (counting == 1)}"
        needed = any(line.weight in {Weight.AGAINST, Weight.WORKAROUND} for line in finding.cases)
        items = tuple(map(_workaround_item, finding.workarounds))
        yield Fold(title, (Lines(items),), opened=needed, brief=number if needed else 0)
    if finding.cases:
        title = f"{count(len(finding.cases), 'case')} of {finding.repro}"
        feared = 2 * any(line.after.feared for line in finding.cases)
        table = _case_table(title, finding.cases, before, after)
        yield Fold(title, (table,), brief=_BRIEF.get(finding.change, feared))


def _workaround_item(item: WorkaroundLine) -> Item:
    own: Words = (" · its own case ", Span(item.case, "code"), " ") if item.case else (" · no case tries it",)
    return Item(
        words=(item.what, *own, *(side_words(item.after) if item.after else ())),
        mark=Span("counts", "chip", "good") if item.counts else Span("does not count", "chip"),
        sources=(item.source,) if item.source else (),
    )  # fmt: skip


def _case_table(label: str, cases: Sequence[CaseLine], before: str, after: str) -> Table:
    """Return cases with both sides; what else is known of a case unfolds."""
    rows = []
    for case in cases:
        items = [_side_item(side) for side in (case.before, case.after)]
        evidence = tuple(item for item in items if item.words[1:] or item.sources)
        cells: tuple[Words, ...] = (
            (Span(case.case, "code"),), (_chip(case.change),), side_words(case.before),
            side_words(case.after), _weighed(case),
        )  # fmt: skip
        rows.append(Row(cells, under=(Fold("evidence", (Lines(evidence),)),) if evidence else ()))
    return Table(label=label, heads=("case", "change", before, after, "why"), rows=tuple(rows))


def side_words(side: Side) -> Words:
    """Return a case at one version: its word, how that is known, on how many builds it rests."""
    if side.verdict is None:
        said = "cannot be tried here" if side.absent else "no evidence"
        return (f"{said}, assumed to fail" if side.feared else said,)
    builds = count(side.builds, "build")
    how = [
        EVIDENCE[side.evidence], side.cause.value if side.cause else "",
        "in doubt: a control beside it came out wrong" if side.doubted else "",
        f"{side.failed} of {builds} fail" if side.failed else builds if side.builds else "",
        f"{short(side.floors)} noise floors" if side.floors is not None else "",
    ]  # fmt: skip
    return (_chip(side.verdict, side.word), Span(f" ({', '.join(filter(None, how))})", soft=True))


def _side_item(side: Side) -> Item:
    """Return what else there is to say of a case at one version."""
    driver = f"driver {side.driver}" if side.driver else ""
    said = "; ".join(part for part in (side.reason, driver) if part)
    told: Words = (f" {said} ",) if said else ()
    cell: Words = (" ", Span(side.cell, "code")) if side.cell else ()
    sources = (source for source in side.sources if source.title != side.cell or source.url)
    feared = (side.feared,) if side.feared else ()
    return Item(words=(Span(f"{side.version}:", "strong"), *told, *cell), sources=(*sources, *feared))


def _performance(upgrade: Upgrade) -> Iterator[Block]:
    """Yield a summary a measure, then the figures that changed beyond their spread, and the others folded."""
    lines = upgrade.performance
    items = []
    for each in summarise_performance(lines):
        said = []
        if each.ratio is not None:
            said += [f"{each.ratio:.2f}× over {count(each.cases, 'case')} (geometric mean)"]
            said += [f"told apart: {each.worse} worse, {each.better} better"]
        whys = Counter(line.why_not for line in each.not_compared)
        said += [f"{number} not comparable: {why}" for why, number in whys.most_common(2)]
        items.append(_item(f"{each.measure}: {'; '.join(said)}"))
    if items:
        items.insert(0, _item("The same case at both versions, after ÷ before (below 1 is better):"))
        items.append(_item(f"Told apart: {RULE}; times by more than {LEAST_CHANGE:g}×."))
    elif upgrade.findings and not lines:
        items.append(_item("No case has run at both versions here or in the records of this GPU."))
    yield from _lines(items)
    told = sorted((x for x in lines if x.told_apart and not x.why_not), key=lambda x: -(x.ratio or 0))
    others = [line for line in lines if not line.told_apart or line.why_not]
    heads = ("case", "measure", upgrade.before, upgrade.after, "change", "clocks")
    timed = [line for line in told if line.measure == "latency"]
    built = [line for line in told if line.measure != "latency"]
    if timed:
        yield Table(label="Latencies that changed", heads=heads, rows=tuple(map(_figure_row, timed)))
    if built:
        title = f"Engine size, build time and memory that changed: {count(len(built), 'figure')}"
        table = Table(label="Engines that changed", heads=heads, rows=tuple(map(_figure_row, built)))
        yield Fold(title, (table,), brief=_FEW)
    if others:
        title = f"{count(len(others), 'figure')} not significant, not comparable, or of one version only"
        table = Table(label="Other figures", heads=heads, rows=tuple(map(_figure_row, others)))
        yield Fold(title, (table,), opened=len(others) <= _FEW)


def _figure_row(line: PerformanceLine) -> Row:
    sides = ((_spread_text(spread, line.unit),) for spread in (line.before, line.after))
    change = Span(ratio_text(line), "strong" if line.told_apart and not line.why_not else "")
    case = Span(f"{line.repro}/{line.case}", "code")
    return Row(((case,), (line.measure,), *sides, (change,), (Span(line.clocks, soft=True),)))


def ratio_text(line: PerformanceLine) -> str:
    """Write how a figure changed: ``+12%``, told apart from chance or not, or why it must not be compared."""
    if line.why_not:
        return f"not comparable: {line.why_not}"
    if line.ratio is None:
        return "no ratio"
    if not math.isfinite(line.ratio):
        return short(line.ratio)
    change = f"{100 * (line.ratio - 1):+.3g}%" if line.ratio < 10 else f"× {short(line.ratio)}"
    told = f" (p = {short(line.p_value)})" if line.p_value is not None else ", not significant"
    return change.replace("-", "−") + told


def _spread_text(spread: Spread | None, unit: str) -> str:
    """Write a median with its spread and its count; bytes in the unit that suits them."""
    if spread is None:
        return "not measured"
    scale = 1.0
    if unit == "bytes" and math.isfinite(spread.median):
        units = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("bytes", 1))
        unit, scale = next((u for u in units if abs(spread.median) >= u[1]), units[-1])
    middle, low, high = (short(value / scale) for value in (spread.median, spread.low, spread.high))
    ends = f"{low} to {high}, " if low != high else ""
    return f"{middle} {unit} ({ends}n={spread.count})"


def _api(api: ApiSection, before: str, after: str) -> Iterator[Block]:
    """Yield all that is told of code, else counts; the whole difference is folded, as it may be long."""
    if api.code or api.lacking:
        yield Lines(tuple(_api_items(api)))
    elif api.changes or api.stands_in or api.behaviours:
        tells = f"nox -s upgrade -- --from {before} --to {after} --api tells each"
        items = [_item(api.stands_in)] if api.stands_in else []
        items.append(_item(f"{count_changes(api.changes)}: {tells}"))
        # What belongs to one release whatever the two are, the engines' own section says.
        if topics := [behaviour.topic for behaviour in met_behaviours(api) if behaviour.since]:
            items.append(_item(f"what names do not show: {'; '.join(topics)}"))
        yield Lines(tuple(items))
    if api.changes:
        difference = ApiSection(changes=api.changes, surfaces=api.surfaces)
        title = f"The whole difference between {before} and {after}: {count_changes(api.changes)}"
        yield Fold(title, (Lines(tuple(_api_items(difference))),))


def _api_items(api: ApiSection) -> Iterator[Item]:
    for depth, said in tell_api(api):
        word: str | Span = Span(said, "strong") if depth == 0 else said
        if said.startswith("| "):
            word = Span(said[2:], "code")
        elif source := re.fullmatch(r"(\[\d+\] .*?)(https://\S+)", said):
            yield _item(source[1], Span(source[2], url=source[2]), depth=depth // 2)
            continue
        if said:
            yield _item(word, depth=depth // 2)


def _model(model: ModelSection, before: str, after: str) -> Iterator[Block]:
    known = [("model", f"{model.name} ({model.repro})"), *model.facts]
    known += [("reference", model.reference), ("noise floor", model.floor)]
    marked = [(Span(name), value) for name, value in known if value]
    marked += [_check_words(model.check)] if model.check is not None else []
    marked += [(Span("trouble"), trouble) for trouble in model.troubles]
    yield Lines(tuple(Item(words=(value,), mark=mark) for mark, value in marked))
    if model.nodes:
        yield Lines((_item("By the operators of its graph alone:"), *map(_fact_item, model.nodes)))
    if model.cases:
        yield _case_table(f"Cases of {model.name}", model.cases, before, after)
    if model.samples:
        heads: tuple[str, ...] = ("output", "version", "median", "90% below", "worst", "worst sample", "in")
        rows = tuple(map(_sample_row, model.samples))
        yield Table(label="Errors over the samples", heads=heads, rows=rows, numbers=True)
    if model.differences:
        heads = ("output", "largest |a − b|", "mean |a − b|", "‖a − b‖ / ‖a‖", "worst sample", "note")
        rows, label = (
            tuple(map(_difference_row, model.differences)),
            f"How far {before} and {after} are apart",
        )
        yield Table(label=label, heads=heads, rows=rows, numbers=True)
    for layer in model.wrong_layers:
        named = ((" ", layer.tensor), (" node ", layer.node), (" operator ", layer.operator))
        found = [word for name, value in named if value for word in (name, Span(value, "code"))]
        why = "; ".join(part for part in (layer.error, layer.why_not) if part)
        first = f"The first layer that goes wrong at {layer.version}:"
        yield Lines((_item(first, *found or (" not found",), f": {why}" if why else ""),))
        if layer.steps:
            yield Fold(count(len(layer.steps), "step"), _lines(_item(step) for step in layer.steps))


def _sample_row(found: SampleFigure) -> Row:
    figures = ((short(value),) for value in (found.median, found.p90, found.worst))
    unit = "noise floors" if found.unit == "floors" else found.unit
    worst = f"{found.worst_sample} of {found.samples}"
    return Row(((Span(found.output, "code"),), (found.version,), *figures, (worst,), (unit,)))


def _difference_row(found: Difference) -> Row:
    figures = ((short(value),) for value in (found.max_abs, found.mean_abs, found.rel_l2))
    lone = f"{found.nan} NaN or infinite at one version only" if found.nan else ""
    note = "; ".join(part for part in (lone, found.note) if part)
    worst = f"{found.worst_sample} of {found.samples}" if found.samples else str(found.worst_sample)
    return Row(((Span(found.output, "code"),), *figures, (worst,), (note,)))


def _check_words(check: CheckOutcome) -> tuple[Span, str]:
    """Return what the deployer's own script said."""
    tone, said = {
        True: ("good", "accepted"), False: ("bad", "not accepted"), None: ("unsure", "the script raised"),
    }[check.passed]  # fmt: skip
    figure = f"{check.label or 'figure'} = {short(check.figure)}" if check.figure is not None else ""
    more = "; ".join(part for part in (figure, check.error) if part)
    return Span(said, "chip", tone), f"your acceptance {check.script}{': ' + more if more else ''}"
