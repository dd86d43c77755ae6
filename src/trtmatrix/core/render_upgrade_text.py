"""An upgrade report for a terminal: the answer first, 100 columns, right in black and white too."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from trtmatrix.core.short import short
from trtmatrix.core.table import one_line
from trtmatrix.core.upgrade.performance import LEAST_VALUES, PerformanceSummary, summarise_performance
from trtmatrix.core.upgrade.report import (
    CaseLine,
    Change,
    Decision,
    FactLine,
    FindingLine,
    Lacking,
    ModelSection,
    PerformanceLine,
    Source,
    Spread,
    Upgrade,
    Weight,
    WorkaroundLine,
)
from trtmatrix.core.upgrade.standing import WORST, Standing, standing_of
from trtmatrix.core.words import PRODUCT_NAMES

WIDTH = 100
MOST_CASES = 5
MOST_COMMANDS = 4
MOST_SLOWER = 5
_MARGIN = 12
_BOLD, _RED, _GREEN, _YELLOW, _RESET = "1", "31", "32", "33", "\x1b[0m"
_COLOURS = {
    Decision.GO: _GREEN, Decision.GO_WITH_WORKAROUNDS: _YELLOW, Decision.NOT_ENOUGH: _YELLOW,
    Decision.DONT: _RED,
}  # fmt: skip
_WORDS = {
    Weight.AGAINST: "against", Weight.LACKING: "lacking", Weight.WORKAROUND: "work-around",
    Weight.FOR: "for", Weight.NOTE: "note",
}  # fmt: skip
_HEADINGS = {
    Change.REGRESSED: "Regressed", Change.UNCHANGED_BAD: "Bad at both: no reason against moving",
    Change.FIXED: "Fixed", Change.UNCHANGED_GOOD: "Right", Change.UNKNOWN: "Unknown",
    Change.SAYS_NOTHING: "Can say nothing here",
}  # fmt: skip
_MARKS = "PASS: measured here   [PASS]: recorded elsewhere or before a change   (PASS): reported   ¹: 1 build"


def render_upgrade_text(upgrade: Upgrade, *, colour: bool = False) -> str:
    """Return the report; no line but a command is wider than 100 columns.

    ``colour`` adds ANSI colours, which never say more than the words do.
    """
    sections = (
        _answer(upgrade, colour=colour), _reasons(upgrade.reasons), _lacking(upgrade.lacking),
        _model(upgrade.model), _findings(upgrade.findings), _facts("GPU and driver", upgrade.gpu_and_driver),
        _performance(upgrade.performance), _api(upgrade), _facts("Engines to rebuild", upgrade.engines),
        _plain("Not looked at", upgrade.not_looked_at),
    )  # fmt: skip
    return "\n\n".join("\n".join(lines) for lines in map(list, sections) if lines) + "\n"


def _answer(upgrade: Upgrade, *, colour: bool) -> Iterator[str]:
    product = PRODUCT_NAMES[upgrade.product]
    on = f" on {upgrade.gpu}" if upgrade.gpu != "CPU" else ""
    yield from _wrap(f"{product} {upgrade.before} → {upgrade.after}{on} · {upgrade.gpu_note}")
    word = upgrade.decision.value.upper()
    line = f"{word}  (exit code {upgrade.decision.exit_code.value})"
    yield ""
    yield f"\x1b[{_BOLD};{_COLOURS[upgrade.decision]}m{line}{_RESET}" if colour else line
    yield from _wrap(upgrade.summary, "  ", "  ")


def _reasons(reasons: Sequence[FactLine]) -> Iterator[str]:
    if reasons:
        yield "Why"
    for reason in reasons:
        text = f"{reason.topic}: {reason.text}{_evidence(reason.known, reason.sources)}"
        yield from _hanging(_WORDS[reason.weight], text)


def _evidence(known: str, sources: Sequence[Source]) -> str:
    """Return how a line is known and where that can be read, the first source alone."""
    more = f" +{len(sources) - 1}" if len(sources) > 1 else ""
    titles = f": {_name(sources[0])}{more}" if sources else ""
    return "" if known == "none" and not sources else f" [{known}{titles}]"


def _name(source: Source) -> str:
    """Return a source's name; of a record the run alone, for its cell stands beside it."""
    if source.title.endswith(".json"):
        return "record " + source.title.rsplit("/", 1)[-1].removesuffix(".json")
    return source.title


def _lacking(lacking: Sequence[Lacking]) -> Iterator[str]:
    if lacking:
        yield "What would tell more"
    for item in lacking[:MOST_COMMANDS]:
        yield from _wrap(item.what, "  ", "    ")
        if item.command:
            yield from _command(item.command)
    if len(lacking) > MOST_COMMANDS:
        yield f"  … {len(lacking) - MOST_COMMANDS} more commands: --json, or -o report.html"


def _command(command: str) -> Iterator[str]:
    """Break a command at its options, so that it can be pasted."""
    line, indent = "", "    "
    for index, word in enumerate(command.split(" --")):
        part = word if not index else f"--{word}"
        if line and len(indent) + len(line) + len(part) + 3 > WIDTH:
            yield f"{indent}{line} \\"
            line, indent = part, "      "
        else:
            line = f"{line} {part}".strip()
    yield f"{indent}{line}"


def _model(model: ModelSection | None) -> Iterator[str]:
    if model is None:
        return
    yield f"Your model: {model.name}"
    for name, value in model.facts:
        yield from _hanging(name, value)
    yield from _hanging("reference", model.reference)
    yield from _hanging("noise floor", model.floor)
    for line in model.cases:
        yield from _case(line)
    for figure in model.samples:
        worst = f"worst {short(figure.worst)} (sample {figure.worst_sample} of {figure.samples})"
        text = f"{figure.output}: median {short(figure.median)}, 90% {short(figure.p90)}, {worst} {figure.unit}"
        yield from _hanging(figure.version, text)
    for difference in model.differences:
        text = (
            f"{difference.output}: the two versions differ by at most {short(difference.max_abs)}, on average "
            f"{short(difference.mean_abs)}, relative {short(difference.rel_l2)}"
        )
        yield from _hanging("difference", text)
    if check := model.check:
        word = {True: "accepts", False: "refuses", None: "did not answer"}[check.passed]
        figure = f", {check.label or 'figure'} {short(check.figure)}" if check.figure is not None else ""
        error = f": {check.error}" if check.error else ""
        yield from _hanging("acceptance", f"{check.script} {word}{figure}{error}")
    for layer in model.wrong_layers:
        where = f"{layer.node or '?'} ({layer.operator or '?'}) → {layer.tensor}" if layer.tensor else "not found"
        why = layer.error or layer.why_not
        yield from _hanging("first wrong", f"{layer.version}: {where}{f': {why}' if why else ''}")
    for trouble in model.troubles:
        yield from _hanging("trouble", trouble)


def _findings(findings: Sequence[FindingLine]) -> Iterator[str]:
    if findings:
        yield "Findings"
        yield f"  {_MARKS}"
    for change in WORST:
        mine = [finding for finding in findings if finding.change is change]
        if mine:
            yield f"  {_HEADINGS[change]}"
        for finding in mine:
            yield from _finding(finding)


def _finding(finding: FindingLine) -> Iterator[str]:
    title = f"{finding.repro} — {finding.title} · {finding.upstream}: {finding.why}"
    yield from _wrap(title, "    ", "      ")
    shown = [line for line in finding.cases if _is_told(line)]
    for line in shown[:MOST_CASES]:
        yield from _case(line)
    if len(shown) > MOST_CASES:
        yield f"      … {len(shown) - MOST_CASES} more such cases"
    if any(line.weight in {Weight.AGAINST, Weight.WORKAROUND} for line in finding.cases):
        for item in finding.workarounds:
            yield from _workaround(item)


def _is_told(line: CaseLine) -> bool:
    """Whether a case has a line of its own: worse, bad, or known and not well enough."""
    if line.change in {Change.REGRESSED, Change.UNCHANGED_BAD}:
        return True
    after = standing_of(line.after)
    silent = after in {Standing.UNKNOWN, Standing.ABSENT, Standing.VOID, Standing.FEW}
    return line.weight is Weight.LACKING and not (silent and not line.after.reason)


def _case(line: CaseLine) -> Iterator[str]:
    words = f"{line.before.word or '·'} → {line.after.word or '·'}"
    yield from _wrap(f"{line.case}  {words}  {line.why}", "      ", "        ")


def _workaround(item: WorkaroundLine) -> Iterator[str]:
    word = item.after.word if item.after else ""
    tried = f"{item.case} {word}" if item.case else "no case tries it"
    counts = "counts" if item.counts else "does not count"
    yield from _wrap(f"work-around: {item.what} — {tried}: {counts}", "      ", "        ")


def _facts(title: str, facts: Sequence[FactLine]) -> Iterator[str]:
    if facts:
        yield title
    topics = [fact.topic for fact in facts]
    for index, fact in enumerate(facts):
        topic = fact.topic if not index or topics[index - 1] != fact.topic else ""
        stop = "AGAINST: " if fact.weight is Weight.AGAINST else ""
        text = f"{stop}{fact.text}{_evidence(fact.known, fact.sources)}"
        yield from _wrap(f"{topic}: {text}" if topic else text, "  ", "    ")


def _performance(lines: Sequence[PerformanceLine]) -> Iterator[str]:
    yield "Performance: the same case at both versions, after ÷ before (below 1 is better)"
    summaries = summarise_performance(lines)
    if not summaries:
        why = sorted({line.why_not for line in lines if line.why_not})
        text = f"not comparable: {'; '.join(why)}" if why else "no case has run at both versions on this GPU"
        yield from _wrap(text, "  ", "  ")
        return
    for summary in summaries:
        yield from _summary(summary)
    clocks = sorted({line.clocks for line in lines if line.clocks})
    if clocks:
        yield from _wrap(f"clocks: {'; '.join(clocks[:3])}", "  ", "    ")
    yield from _wrap(
        f"Told apart: both sides have {LEAST_VALUES} values or more, and their spreads do not overlap. All "
        f"{len(lines)} figures: -o report.html",
        "  ",
        "  ",
    )


def _summary(summary: PerformanceSummary) -> Iterator[str]:
    words = [f"{summary.ratio:.2f}× over {summary.cases} cases (geometric mean)"]
    words += [f"told apart: {summary.worse} worse, {summary.better} better"]
    words += [f"{summary.not_compared} not comparable"] if summary.not_compared else []
    yield from _wrap(f"{summary.measure}: {'; '.join(words)}", "  ", "    ")
    for word, line in (("worst", summary.worst), ("best", summary.best)):
        apart = "" if line.told_apart else ", not told apart"
        yield from _wrap(f"{word} {_figure(line)}{apart}", "    ", "      ")
    for line in summary.slower[:MOST_SLOWER]:
        if line is not summary.worst:
            yield from _wrap(f"worse beyond the spread: {_figure(line)}", "    ", "      ")


def _figure(line: PerformanceLine) -> str:
    values = f"{_spread(line.before)} → {_spread(line.after)} {line.unit}"
    return f"{line.ratio or 0:.2f}× {line.repro}/{line.case}: {values}"


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "?"
    if spread.count == 1 or spread.low == spread.high:
        return f"{short(spread.median)} (n={spread.count})"
    return f"{short(spread.median)} ({short(spread.low)} to {short(spread.high)}, n={spread.count})"


def _api(upgrade: Upgrade) -> Iterator[str]:
    from trtmatrix.core.render_upgrade_api import render_api_lines

    lines = list(render_api_lines(upgrade.api, upgrade.before, upgrade.after))
    if lines:
        yield "API"
    for line in lines:
        yield from _wrap(line, "  ", "    ")


def _plain(title: str, texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield title
    for text in texts:
        yield from _wrap(text, "  ", "    ")


def _hanging(word: str, text: str) -> Iterator[str]:
    """Put a word into the margin of a text."""
    if len(word) > _MARGIN - 1:
        yield from _wrap(f"{word}: {text}", "  ", "    ")
        return
    yield from _wrap(f"{word:<{_MARGIN}}{one_line(text, 2000)}", "  ", " " * (_MARGIN + 2), raw=True)


def _wrap(text: str, first: str = "", later: str = "  ", *, raw: bool = False) -> list[str]:
    """Break a text into lines; ids and addresses stay whole where they fit."""
    line = text if raw else one_line(text, 2000)
    return textwrap.wrap(
        line, WIDTH, initial_indent=first, subsequent_indent=later, break_on_hyphens=False,
        drop_whitespace=True,
    )  # fmt: skip
