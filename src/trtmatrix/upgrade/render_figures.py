"""Performance in an upgrade report for a terminal: a summary a measure, its worst and best case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from trtmatrix.common.short import short
from trtmatrix.upgrade.lines import wrap
from trtmatrix.upgrade.performance import LEAST_VALUES, PerformanceSummary, summarise_performance
from trtmatrix.upgrade.report import PerformanceLine, Spread

MOST_SLOWER = 5


def render_performance_lines(lines: Sequence[PerformanceLine]) -> Iterator[str]:
    """Yield the summaries, or why there is none."""
    yield "Performance: the same case at both versions, after ÷ before (below 1 is better)"
    summaries = summarise_performance(lines)
    if not summaries:
        why = sorted({line.why_not for line in lines if line.why_not})
        text = (
            f"not comparable: {'; '.join(why)}"
            if why
            else "no case has run at both versions here or in the records of this GPU"
        )
        yield from wrap(text, "  ", "  ")
        return
    for summary in summaries:
        yield from _summary(summary)
    clocks = Counter(line.clocks for line in lines if line.clocks and line.measure == "latency")
    words = [f"{text} ({_cases(count)})" for text, count in clocks.most_common(3)]
    if words:
        yield from wrap(f"clocks: {'; '.join(words)}", "  ", "    ")
    yield from wrap(
        f"Told apart: both sides have {LEAST_VALUES} values or more, and their spreads do not overlap. All "
        f"{len(lines)} figures: -o report.html",
        "  ",
        "  ",
    )


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"


def _summary(summary: PerformanceSummary) -> Iterator[str]:
    words = [f"{summary.ratio:.2f}× over {_cases(summary.cases)} (geometric mean)"]
    words += [f"told apart: {summary.worse} worse, {summary.better} better"]
    words += [f"{summary.not_compared} not comparable"] if summary.not_compared else []
    yield from wrap(f"{summary.measure}: {'; '.join(words)}", "  ", "    ")
    for word, line in (("worst", summary.worst), ("best", summary.best)):
        apart = "" if line.told_apart else ", not told apart"
        yield from wrap(f"{word} {_figure(line)}{apart}", "    ", "      ")
    for line in summary.slower[:MOST_SLOWER]:
        if line is not summary.worst:
            yield from wrap(f"worse beyond the spread: {_figure(line)}", "    ", "      ")


def _figure(line: PerformanceLine) -> str:
    scale, unit = _scale(line)
    values = f"{_spread(line.before, scale)} → {_spread(line.after, scale)} {unit}"
    return f"{line.ratio or 0:.2f}× {line.repro}/{line.case}: {values}"


def _scale(line: PerformanceLine) -> tuple[float, str]:
    """Return by what a line's figures are divided, and the unit that they have then."""
    if line.unit != "bytes" or line.after is None:
        return 1.0, line.unit
    return (1e6, "MB") if line.after.median >= 1e6 else (1e3, "kB")


def _spread(spread: Spread | None, scale: float) -> str:
    if spread is None:
        return "?"
    middle, low, high = (short(value / scale) for value in (spread.median, spread.low, spread.high))
    if spread.count == 1 or low == high:
        return f"{middle} (n={spread.count})"
    return f"{middle} ({low} to {high}, n={spread.count})"
