"""An upgrade report as sections of facts, tables and commands, which every format shows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from trtmatrix.api.report import count_changes, render_api_text
from trtmatrix.common.text import counted, one_line, short
from trtmatrix.suite.model import Verdict
from trtmatrix.upgrade.performance import LEAST_CHANGE, MEASURES, RULE, SPEEDS, THROUGHPUT
from trtmatrix.upgrade.report import (
    Change,
    Decision,
    FactLine,
    FindingLine,
    ModelSection,
    PerformanceLine,
    Side,
    Source,
    Spread,
    Upgrade,
    Weight,
)

TONES: Mapping[Enum, str] = {
    Decision.GO: "good", Decision.GO_WITH_WORKAROUNDS: "warn", Decision.DONT: "bad",
    Decision.NOT_ENOUGH: "unsure",
    Change.REGRESSED: "bad", Change.BAD_AFTER: "bad", Change.UNCHANGED_BAD: "warn", Change.UNKNOWN: "unsure",
    Change.FIXED: "good", Change.UNCHANGED_GOOD: "good", Change.SAYS_NOTHING: "",
    Weight.AGAINST: "bad", Weight.LACKING: "unsure", Weight.WORKAROUND: "warn", Weight.FOR: "good",
    Weight.NOTE: "",
    Verdict.PASS: "good", Verdict.FAIL: "bad", Verdict.FLAKY: "bad", Verdict.INVALID: "unsure",
    Verdict.BUILT: "", Verdict.NO_VERDICT: "unsure",
}  # fmt: skip
"""How each looks: good, bad, warn, unsure, or like plain words."""

_MARKS = "[PASS]: recorded elsewhere or before a change, (PASS): reported, ¹: on one build."
_BRIEF = {Change.REGRESSED: 5, Change.BAD_AFTER: 5, Change.UNCHANGED_BAD: 3, Change.FIXED: 3}
"""How many cases of a finding a terminal shows."""


@dataclass(frozen=True)
class Table:
    """Values of the report in rows; a terminal shows the first ``brief``, a page all, maybe ``folded``."""

    label: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    brief: int
    folded: bool


Block = FactLine | Table | str
"""A fact, a table, or a text that is shown as typed, such as a command."""


@dataclass(frozen=True)
class Section:
    """A part of the report; ``name`` is its id in a page."""

    name: str
    title: str
    blocks: tuple[Block, ...]


def make_sections(upgrade: Upgrade) -> tuple[Section, ...]:
    """Return the report below its answer and reasons; a section with nothing to tell is not there."""
    ends, several = {"before": upgrade.before, "after": upgrade.after}, len(upgrade.models) > 1
    since: list[Block] = []
    if (base := upgrade.baseline) is not None:
        numbers = f"{len(base.new)} new, {len(base.gone)} gone, {len(base.same)} as before"
        since = [FactLine(text=f"{numbers}: {base.file}")]
        since += [FactLine(topic="new", text=line) for line in base.new]
        since += [FactLine(topic="gone", text=line) for line in base.gone]
    lacking: list[Block] = []
    for item in upgrade.lacking:
        alone = " (for one alone: --repro NAME)" if item.whole else ""
        lacking += [FactLine(text=f"{item.what}{alone}"), *([item.command] if item.command else [])]
    api, told = upgrade.api, list[Block]()
    if api.code or api.lacking:
        told = [render_api_text(api)]
    elif api.changes or api.behaviours:
        more = f"; {counted(len(api.behaviours), 'change')} of behaviour" if api.behaviours else ""
        tells = f"nox -s upgrade -- --from {upgrade.before} --to {upgrade.after} --api tells each"
        told = [FactLine(text=f"{count_changes(api.changes)}{more}: {tells}")]
    models = [
        (f"model-{n}" if n else "model", one_line(m.name) if several else "Your model", _model(m, ends))
        for n, m in enumerate(upgrade.models)
    ]
    made: tuple[tuple[str, str, Iterable[Block]], ...] = (
        ("baseline", "Since the accepted report", since),
        ("lacking", "To settle it", lacking),
        ("models", "Your models", [model_table(upgrade)] if several else ()),
        *models,
        ("findings", "Findings", _findings(upgrade.findings, ends)),
        ("gpu", "GPU and driver", upgrade.gpu_and_driver),
        ("performance", "Performance", _performance(upgrade, ends)),
        ("api", "Your code and the API" if api.code else "API", told),
        ("engines", "Engines to rebuild", upgrade.engines),
        ("not-looked-at", "Not looked at", [FactLine(text=text) for text in upgrade.not_looked_at]),
    )
    sections = (Section(name, title, tuple(blocks)) for name, title, blocks in made)
    return tuple(section for section in sections if section.blocks)


def words_of(value: Any) -> str:  # noqa: ANN401 - what a row of a table holds
    """Return a value of the report as a table shows it."""
    match value:
        case Side(verdict=None):
            return "cannot be tried here" if value.absent else "no evidence"
        case Side(word=word) | Source(title=word) | Enum(value=word) | str(word):
            return str(word)
        case Spread(median=median, low=low, high=high, count=number):
            spread = f"{short(low)} to {short(high)}, " if low != high else ""
            return f"{short(median)} ({spread}n={number})"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return short(value)
        case _:
            return ""


def _table(
    label: str, items: Sequence[Any], columns: str, heads: Mapping[str, str], brief: int = 12, *,
    folded: bool = False,
) -> Table:  # fmt: skip
    """Return a table of some fields of dataclasses."""
    names = columns.split()
    return Table(
        label=label, heads=tuple(heads.get(name, name.replace("_", " ")) for name in names), brief=brief,
        rows=tuple(tuple(getattr(item, name) for name in names) for item in items), folded=folded,
    )  # fmt: skip


def _findings(findings: Sequence[FindingLine], ends: Mapping[str, str]) -> Iterator[Block]:
    """Yield a row a finding, then the cases and work-arounds of each."""
    if not findings:
        return
    changes = Counter(case.change for finding in findings for case in finding.cases)
    tally = (f"{change.value}: {counted(changes[change], 'case')}" for change in Change if changes[change])
    yield FactLine(text=f"{' · '.join(tally)}. {_MARKS}")
    yield _table("Findings", findings, "repro title source change weight why", {}, len(findings))
    for finding in findings:
        feared, name = 2 * any(case.after.feared for case in finding.cases), finding.repro
        brief = _BRIEF.get(finding.change, feared)
        title = f"{counted(len(finding.cases), 'case')} of {name}"
        yield _table(title, finding.cases, "case change before after weight why", ends, brief, folded=True)
        if finding.workarounds:
            shown, columns = (
                9 if finding.change in {Change.REGRESSED, Change.BAD_AFTER} else 0,
                "what case after counts source",
            )
            yield _table(f"Work-arounds of {name}", finding.workarounds, columns, ends, shown, folded=True)


def _performance(upgrade: Upgrade, ends: Mapping[str, str]) -> Iterator[Block]:
    """Yield a summary a measure, then the figures that are told apart."""
    lines = upgrade.performance
    if lines:
        rule = f"Told apart: {RULE}; times by more than {LEAST_CHANGE:g}×."
        if any(line.measure == THROUGHPUT for line in lines):
            rule = f"Of throughput the ratio is that of the time an item takes. {rule}"
        yield FactLine(text=f"After ÷ before. {rule}")
    elif upgrade.findings:
        yield FactLine(text="No case has run at both versions here or in the records of this GPU.")
    for measure in MEASURES:
        if mine := [line for line in lines if line.measure == measure]:
            apart = [line.ratio for line in mine if line.ratio and line.told_apart]
            worse, why_not = sum(ratio > 1 for ratio in apart), Counter(line.why_not for line in mine)
            cases = counted(why_not.pop("", 0), "case")
            said = [f"{cases}, {worse} worse, {len(apart) - worse} better"]
            said += [f"{number} not comparable: {why}" for why, number in why_not.most_common(2)]
            yield FactLine(topic=measure, text="; ".join(said))
    told = sorted((line for line in lines if line.told_apart), key=lambda line: -(line.ratio or 0))
    columns = "repro case measure unit before after ratio p_value"
    for label, is_speed in (("Latencies and throughput", True), ("Build times and sizes", False)):
        if mine := [line for line in told if (line.measure in SPEEDS) is is_speed]:
            yield _table(f"{label} that are told apart", mine, columns, ends, folded=not is_speed)


COLUMNS = ("latency", "build time", "engine size", "device memory")
"""Measures of which every model's row has a column; another is a reason where it is beyond the limit."""
FIGURES = "errors in noise floors; rest after ÷ before, (not comparable), ! beyond limit, ? perhaps"
"""What the row of a model holds."""
SHORT = {
    "end-to-end latency": "end to end", "end-to-end latency with a CUDA graph": "graph",
    THROUGHPUT: "an item",
}  # fmt: skip
"""Measures in a column of another: the speed that decides stands in that of the latency."""
MISTAKE = "mistake"
"""The word for a model that could not be asked about."""


def model_table(upgrade: Upgrade, measures: Sequence[str] = COLUMNS, *, brief: bool = False) -> Table:
    """Return a row a model, the worst first: its answer, its worst error before and after, and what it costs.

    Errors are in noise floors; figures of what it costs are after ÷ before, in parentheses where they are not
    comparable. ``brief``: without spreads, in fewer words.
    """
    figures = {(line.repro, line.measure): line for line in upgrade.performance}
    order = [None, Decision.DONT, Decision.NOT_ENOUGH, Decision.GO_WITH_WORKAROUNDS, Decision.GO]
    rows: list[tuple[Any, ...]] = []
    for model in sorted(upgrade.models, key=lambda model: order.index(model.decision)):
        sides = [line.before for line in model.cases], [line.after for line in model.cases]
        errors = (" ".join(map(_error_words, ends)) for ends in sides)
        lines = ((name, _shown_line(figures, model.repro, name)) for name in measures)
        ratios = (_ratio_words(line, name, spread=not brief) for name, line in lines)
        answer: str = model.decision or MISTAKE
        answer = words_of(answer).removesuffix(" evidence") if brief else answer
        rows.append((model.name, answer, *errors, *ratios))
    heads = (
        "model",
        "answer",
        "before",
        "after",
        *(name.removeprefix("engine ").removeprefix("device ") for name in measures),
    )
    heads = heads if brief else ("model", "answer", "error before", "error after", *measures)
    return Table(label=f"Models: {FIGURES}", heads=heads, rows=tuple(rows), brief=len(rows), folded=False)


def _error_words(side: Side) -> str:
    """Return a side's error in noise floors, or how it ended."""
    if side.floors is not None and side.verdict in {Verdict.PASS, Verdict.FAIL, Verdict.FLAKY}:
        return f"{'' if side.verdict is Verdict.PASS else side.verdict.value + ' '}{short(side.floors)}"
    return side.cause.value if side.cause else side.verdict.value if side.verdict else "·"


def _shown_line(
    figures: Mapping[tuple[str, str], PerformanceLine], repro: str, measure: str
) -> PerformanceLine | None:
    """Return a model's figure of a measure; for its latency the speed that is beyond the limit, if any."""
    names = SPEEDS if measure == "latency" else (measure,)
    lines = [line for name in names if (line := figures.get((repro, name)))]
    beyond = [line for line in lines if line.beyond_limit] or [line for line in lines if line.more_engines]
    return max(beyond, key=lambda line: line.ratio or 0, default=figures.get((repro, measure)))


def _ratio_words(line: PerformanceLine | None, column: str, *, spread: bool) -> str:
    """Return a figure after ÷ before, with the ``spread`` of its engines where they differ.

    It is named where it is not that of the column.
    """
    if line is None or line.ratio is None or line.before is None or line.after is None:
        return "·"
    low, high = (end / line.before.median for end in (line.after.low, line.after.high))
    if line.measure == THROUGHPUT:  # as the time that an item takes
        low, high = 1 / high, 1 / low
    differ = spread and f"{low:.2f}" != f"{high:.2f}"
    text = f"{line.ratio:.2f}×" + (f" {low:.2f} to {high:.2f}" if differ else "")
    text += f" {SHORT.get(line.measure, line.measure)}" if line.measure != column else ""
    mark = " !" if line.beyond_limit else " ?" if line.more_engines else ""
    return f"({text})" if line.why_not else f"{text}{mark}"


def _model(model: ModelSection, ends: Mapping[str, str]) -> Iterator[Block]:
    if model.mistake:
        yield FactLine(topic=MISTAKE, text=model.mistake)
        return
    known = [("model", f"{model.name} ({model.repro})"), *model.facts]
    known += [("reference", model.reference), ("noise floor", model.floor)]
    known += [("trouble", trouble) for trouble in model.troubles]
    known += [(f"integers at {item.version}", item.text) for item in model.integers]
    for layer in model.wrong_layers:
        place = f"{layer.tensor} (node {layer.node}, operator {layer.operator})" if layer.tensor else ""
        said = "; ".join(part for part in (place, layer.error, layer.why_not, *layer.steps) if part)
        known += [(f"first wrong layer at {layer.version}", said)]
    yield from (FactLine(topic=name, text=value) for name, value in known if value)
    yield from (*model.nodes, *model.on_cpu)
    apart = tuple(item for item in model.differences if item.samples)  # of others the trouble tells
    for label, items, columns in (
        (f"Cases of {model.name}", model.cases, "case change before after weight why"),
        ("Your acceptance", (model.check,) if model.check else (), "script passed figure label error"),
        ("Errors over samples", model.samples, "output version median p90 worst worst_sample samples unit"),
        (f"How far {' and '.join(ends.values())} are apart: a − b", apart,
         "output max_abs mean_abs rel_l2 worst_sample samples nan note"),
    ):  # fmt: skip
        if items:
            yield _table(label, items, columns, ends)
