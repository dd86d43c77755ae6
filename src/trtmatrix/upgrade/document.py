"""An upgrade report as sections of facts, tables and commands; as GitHub Markdown, and as one page."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader

from trtmatrix.api.report import count_changes, render_api_text
from trtmatrix.common.text import counted, one_line, short
from trtmatrix.judge.entry import PRODUCT_NAMES
from trtmatrix.suite.model import Evidence, Verdict
from trtmatrix.tables import page
from trtmatrix.tables.markdown import MOST_CHARACTERS, bullets, code, fence, fold, link, plain, table
from trtmatrix.tables.table import shorten
from trtmatrix.upgrade.performance import (
    LEAST_CHANGE,
    LEAST_GROWTH,
    MEASURES,
    RULE,
    SPEEDS,
    THROUGHPUT,
)
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
MOST_BARS, BAR = 20, 75
"""So many latencies are drawn in a page, and how long the bar of what was is; none is over 4 times that."""
_MOST_ROWS = 60
"""So many rows of a table are in Markdown; a pull request is not the place for more."""
_CUT = "… what folds open is left out: GitHub takes no longer text; the HTML page and the JSON have it."


@dataclass(frozen=True)
class Table:
    """Values of the report in rows, maybe ``folded``."""

    label: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    folded: bool = False


Block = FactLine | Table | str
"""A fact, a table, or a text that is shown as typed, such as a command."""


Section = tuple[str, str, Sequence[Block]]
"""A part of the report: its id in a page, its title, and what is in it."""


def titles(upgrade: Upgrade) -> tuple[str, str, str, str]:
    """Return the move, the GPU, the answer, and the exit code, in words: also why it is not the answer's."""
    ends = (version.removeprefix(f"{upgrade.product.value}-") for version in (upgrade.before, upgrade.after))
    where = " · ".join(part for part in (upgrade.gpu.removeprefix("CPU"), upgrade.gpu_note) if part)
    answer, why = upgrade.decision.value[0].upper() + upgrade.decision.value[1:], ""
    if upgrade.exit_code is not upgrade.decision.exit_code:
        mistaken = any(model.mistake for model in upgrade.models)
        why = ": a mistake to mend first" if mistaken else ": your code must change first"
        if upgrade.baseline is not None and not upgrade.baseline.new:
            why = ": no worse than accepted"
    exit_code = f"exit code {int(upgrade.exit_code)}{why}"
    return f"{PRODUCT_NAMES[upgrade.product]} {' → '.join(ends)}", where, answer, exit_code


def make_sections(upgrade: Upgrade) -> tuple[Section, ...]:
    """Return the report below its answer and reasons; a section with nothing to tell is not there."""
    ends, several = {"before": upgrade.before, "after": upgrade.after}, len(upgrade.models) > 1
    since: list[Block] = []
    if (base := upgrade.baseline) is not None:
        numbers = f"{len(base.new)} new, {len(base.gone)} gone, {len(base.same)} as before"
        since = [FactLine(text=f"{numbers}: {base.file}")]
        since += [FactLine(topic="new", text=line) for line in base.new]
        since += [FactLine(topic="gone", text=line) for line in base.gone]
    lacking = [part for item in upgrade.lacking for part in (FactLine(text=item.what), item.command) if part]
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
    made: Sequence[tuple[str, str, Iterable[Block]]] = (
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
    sections = ((name, title, tuple(blocks)) for name, title, blocks in made)
    return tuple(section for section in sections if section[2])


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
    label: str, items: Sequence[Any], columns: str, heads: Mapping[str, str], *, folded: bool = False
) -> Table:
    """Return a table of some fields of dataclasses."""
    names = columns.split()
    return Table(
        label=label, heads=tuple(heads.get(name, name.replace("_", " ")) for name in names),
        rows=tuple(tuple(getattr(item, name) for name in names) for item in items), folded=folded,
    )  # fmt: skip


def _findings(findings: Sequence[FindingLine], ends: Mapping[str, str]) -> Iterator[Block]:
    """Yield a row a finding, then the cases and work-arounds of each."""
    if not findings:
        return
    changes = Counter(case.change for finding in findings for case in finding.cases)
    tally = (f"{change.value}: {counted(changes[change], 'case')}" for change in Change if changes[change])
    yield FactLine(text=f"{' · '.join(tally)}. {_MARKS}")
    yield _table("Findings", findings, "repro title source change weight why", {})
    for finding in findings:
        title = f"{counted(len(finding.cases), 'case')} of {finding.repro}"
        yield _table(title, finding.cases, "case change before after weight why", ends, folded=True)
        if items := finding.workarounds:
            title = f"Work-arounds of {finding.repro}"
            yield _table(title, items, "what case after counts source", ends, folded=True)


def _performance(upgrade: Upgrade, ends: Mapping[str, str]) -> Iterator[Block]:
    """Yield a summary a measure, then the figures that are told apart."""
    lines = upgrade.performance
    if lines:
        rule = (
            f"Told apart: {RULE}; times by more than {LEAST_CHANGE:g}×, sizes by more than "
            f"{LEAST_GROWTH:g}×. Device memory decides only where it and the weights together grow "
            "beyond the limit."
        )
        of_items = any(line.measure == THROUGHPUT for line in lines)
        rule = "Of throughput the ratio is that of the time an item takes. " * of_items + rule
        yield FactLine(text=f"After ÷ before. {rule}")
    elif upgrade.findings:
        yield FactLine(text="No case has run at both versions here or in the records of this GPU.")
    for measure in MEASURES:
        if mine := [line for line in lines if line.measure == measure]:
            told = sorted((x for x in mine if x.told_apart), key=lambda line: -(line.ratio or 0))
            worse, why_not = sum((line.ratio or 0) > 1 for line in told), Counter(x.why_not for x in mine)
            cases = counted(why_not.pop("", 0), "case")
            said = [f"{cases}, {worse} worse, {len(told) - worse} better"]
            said += [f"{number} not comparable: {why}" for why, number in why_not.most_common(2)]
            yield FactLine(topic=measure, text="; ".join(said))
            if told:
                label, columns = f"{measure}: told apart", "repro case unit before after ratio p_value"
                yield _table(label, told, columns, ends, folded=measure not in SPEEDS)


COLUMNS = ("latency", "engine size", "device memory", "build time")
"""Measures of which every model's row has a column; another is a reason where it is beyond the limit."""
FIGURES = (
    "errors in noise floors; rest after ÷ before, ~ not significant, (not comparable), ! beyond limit, "
    "? perhaps"
)
"""What the row of a model holds."""
SHORT = {
    "end-to-end latency": "end to end", "end-to-end latency with a CUDA graph": "graph",
    THROUGHPUT: "an item",
}  # fmt: skip
"""Measures in a column of another: the speed that decides stands in that of the latency."""
MISTAKE = "mistake"
"""The word for a model that could not be asked about."""


def model_table(upgrade: Upgrade, measures: Sequence[str] = COLUMNS, *, spread: bool = True) -> Table:
    """Return a row a model, the worst first: its answer, its worst error before and after, and what it costs.

    Errors are in noise floors; figures of what it costs are after ÷ before, in parentheses where they are not
    comparable, with the ``spread`` of their engines if it is wanted.
    """
    order = [None, Decision.DONT, Decision.NOT_ENOUGH, Decision.GO_WITH_WORKAROUNDS, Decision.GO]
    rows, names = [], (re.sub("^(engine|device) ", "", name) for name in measures)
    for model in sorted(upgrade.models, key=lambda model: order.index(model.decision)):
        lines = [line for line in upgrade.performance if line.repro == model.repro]
        errors = (
            " ".join(map(_error_words, sides))
            for sides in ([line.before for line in model.cases], [line.after for line in model.cases])
        )
        ratios = (_figure_words(lines, measure, spread=spread) for measure in measures)
        rows.append((model.name, model.decision or MISTAKE, *errors, *ratios))
    return Table(f"Models: {FIGURES}", ("model", "answer", "before", "after", *names), tuple(rows))


def _error_words(side: Side) -> str:
    """Return a side's error in noise floors, or how it ended."""
    if side.floors is not None and side.verdict in {Verdict.PASS, Verdict.FAIL, Verdict.FLAKY}:
        return f"{'' if side.verdict is Verdict.PASS else side.verdict.value + ' '}{short(side.floors)}"
    return side.cause.value if side.cause else side.verdict.value if side.verdict else "·"


def _figure_words(lines: Sequence[PerformanceLine], measure: str, *, spread: bool) -> str:
    """Return a model's figure after ÷ before; for its latency the speed that is beyond the limit, by name."""
    speeds = SPEEDS if measure == "latency" else ()
    beyond = [x for x in lines if x.measure in speeds and (x.beyond_limit or x.more_engines)]
    mine = [*beyond, *(x for x in lines if x.measure == measure)]
    line = max(mine, key=lambda x: (x.beyond_limit, x in beyond, x.ratio or 0), default=None)
    if line is None or line.ratio is None or line.before is None or line.after is None:
        return "·"
    low, high = (end / line.before.median for end in (line.after.low, line.after.high))
    if line.measure == THROUGHPUT:  # as the time that an item takes
        low, high = 1 / high, 1 / low
    differ = spread and f"{low:.2f}" != f"{high:.2f}"
    text = f"{line.ratio:.2f}×" + (f" {low:.2f} to {high:.2f}" if differ else "")
    text += f" {SHORT.get(line.measure, line.measure)}" if line.measure != measure else ""
    if line.why_not:
        return f"({text})"
    if line.beyond_limit or line.more_engines:
        return f"{text} {'!' if line.beyond_limit else '?'}"
    return text if line.told_apart or text.startswith("1.00×") else f"~{text}"


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
    yield from model.nodes
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


def render_markdown(upgrade: Upgrade, most: int = MOST_CHARACTERS) -> str:
    """Return the report in at most so many characters, by default those that GitHub takes in a comment.

    What folds open is left out of one that would be longer, and that is told.
    """
    title, where, answer, _ = titles(upgrade)
    parts = [f"## {plain(title)}: {answer}", f"**{plain(upgrade.summary)}**" if upgrade.summary else ""]
    parts += [plain(where), bullets(_fact_markup(reason, marked=True) for reason in upgrade.reasons)]
    for _, title, blocks in make_sections(upgrade):
        parts += [f"### {plain(title)}", *map(_block_markup, blocks)]
    parts += [f"Made by\n\n{fence(upgrade.command)}"] if upgrade.command else []
    parts += [f"Generated {plain(upgrade.generated)}."] if upgrade.generated else []
    text = "\n\n".join(filter(None, parts)) + "\n"
    if len(text) <= most:
        return text
    parts = [part for part in parts if part and not part.startswith("<details>")]
    return "\n\n".join(parts)[: most - len(_CUT) - 3] + f"\n\n{_CUT}\n"


def _block_markup(block: Block) -> str:
    match block:
        case FactLine():
            return "- " + _fact_markup(block, marked=block.weight is not Weight.NOTE)
        case Table(rows=rows):
            shown = table(block.heads, ([_cell_markup(value) for value in row] for row in rows[:_MOST_ROWS]))
            shown += f"\n\n… and {len(rows) - _MOST_ROWS} more" if len(rows) > _MOST_ROWS else ""
            return fold(block.label, shown) if block.folded else f"{plain(block.label)}:\n\n{shown}"
        case _:
            return fence(block)


def _fact_markup(fact: FactLine, *, marked: bool) -> str:
    known = "" if fact.known == Evidence.NONE.value else plain(fact.known)
    cited = (link(s.url, s.title) if s.url else code(s.title) for s in fact.sources if s.title)
    how = " · ".join(filter(None, (known, "; ".join(cited))))
    topic = f"**{plain(fact.topic)}:** " if fact.topic else ""
    mark = f"**{fact.weight.value}**: " if marked else ""
    return f"{mark}{topic}{plain(fact.text)}" + (f" ({how})" if how else "")


def _cell_markup(value: Any) -> str:  # noqa: ANN401 - what a row of a table holds
    if isinstance(value, Source):
        return link(value.url, value.title)
    words = plain(words_of(value))
    return f"**{words}**" if words and _tone(value) is not None else words


def _tone(value: Any) -> str | None:  # noqa: ANN401 - what a row of a table holds
    """Return how a word looks, or None of what is no word that has a colour."""
    word = value.verdict if isinstance(value, Side) else value
    return TONES.get(word) if isinstance(word, Enum) else None


def render_page(upgrade: Upgrade) -> str:
    """Return the page; what the report does not have is not shown."""
    title, where, answer, exit_code = titles(upgrade)
    folder = FileSystemLoader(Path(__file__).parent / "templates")
    latencies = [line for line in upgrade.performance if line.measure == "latency" and not line.why_not]
    ratios = [(x.ratio or 0.0, x, x.before, x.after) for x in latencies if x.before and x.after]
    ratios = sorted((one for one in ratios if math.isfinite(one[0])), key=lambda one: -one[0])
    uses, slowest = len(upgrade.api.must_change), "slowest change of latency"
    tiles = [
        (str(sum(reason.weight is Weight.AGAINST for reason in upgrade.reasons)), "blockers"),
        (str(sum(f.change is Change.UNCHANGED_BAD for f in upgrade.findings)), "findings broken in both"),
        (f"{short(ratios[0][0])}×", slowest) if ratios else ("–", f"{slowest}: none can be compared"),
        (str(uses), "uses in your code to change") if upgrade.api.code
        else ("–", "code to change: none was named (--code)"),
    ]  # fmt: skip

    def room(times: float) -> float:
        return round(BAR * min(times, 4.0), 1)

    body = page.templates().overlay(loader=folder).get_template("report.html").render(
        upgrade=upgrade, sections=make_sections(upgrade), title=title, where=where, answer=answer,
        tiles=tiles, bars=ratios[:MOST_BARS], room=room, exit_code=exit_code, short=short, shorten=shorten,
        glyphs=page.GLYPHS, words=words_of, tone=_tone, is_safe=page.is_safe,
        typed=lambda text: "".join(c if c.isprintable() or c in "\n\t" else " " for c in text),
    )  # fmt: skip
    style = page.make_style(".name { min-width: 15rem; }")
    return page.render_page(f"{title}: {answer.lower()}", [body], style=style, script=page.COPY)
