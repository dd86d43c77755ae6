"""Figures: latency, build time, size and memory at both versions. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trtmatrix.judge.entry import Entry
from trtmatrix.judge.record import RAN, Record
from trtmatrix.upgrade.findings import Entries
from trtmatrix.upgrade.report import PerformanceLine, Spread
from trtmatrix.upgrade.slowdown import SAME_CLOCKS, Figure, p_value_below, p_value_beyond, why_not_compared

LEAST_CHANGE = 1 + SAME_CLOCKS
"""What a time must differ by to be told apart: clocks that count as the same may differ by as much."""

TIMES = ("latency", "build time")
"""Figures that hang on how busy the host and the GPU were: only compared with the clocks under load."""

MEASURES: Mapping[str, tuple[str, str]] = {
    "latency": ("ms", "run_ms"), "build time": ("s", "build_seconds"),
    "engine size": ("bytes", "engine_bytes"), "device memory": ("bytes", "device_memory_bytes"),
}  # fmt: skip
"""Measure → its unit, and its name in a record; a latency over many runs is preferred to ``run_ms``."""

Engine = Mapping[str, Any]


def make_performance(
    entries: Entries, before: str, after: str, limit: float
) -> tuple[PerformanceLine, ...]:  # fmt: skip
    """Return each figure of each case that was measured or recorded at both versions; no controls.

    ``limit``: what the figure after may be of that before.
    """
    lines: list[PerformanceLine] = []
    for entry in entries.all:
        cell = entry.cell
        if cell.version.name != after or cell.companion or cell.case.control is not None:
            continue
        was = entries.at(cell.repro.id, cell.case.id, before)
        if was is not None and was.record is not None and entry.record is not None:
            lines += _compare(was, entry, limit)
    return tuple(lines)


def _compare(was: Entry, will: Entry, limit: float) -> Iterator[PerformanceLine]:
    """Yield each measure that both sides have.

    Where one side has no latency over many runs, single runs of both are compared; an engine that was not
    timed at all is no hindrance.
    """
    old, new = _engines(was.records), _engines(will.records)
    conditions = _conditions(was.records, will.records)
    timed = [engine for engine in (*old, *new) if "run_ms" in engine]
    many = all(isinstance(engine.get("latency"), Mapping) for engine in timed)
    for measure, (unit, _) in MEASURES.items():
        ours, theirs = (_figures(engines, measure, many=many) for engines in (old, new))
        if not ours or not theirs:
            continue
        why_not = conditions or why_not_compared(ours, theirs, clocked=measure in TIMES)
        least = LEAST_CHANGE if measure in TIMES else 1.0
        tests = [test(ours, theirs, least) for test in (p_value_beyond, p_value_below)] if not why_not else []
        found = [p_value for p_value in tests if p_value is not None]
        beyond = None if why_not else p_value_beyond(ours, theirs, limit)
        before, after = _spread(ours), _spread(theirs)
        yield PerformanceLine(
            repro=will.cell.repro.id, case=will.cell.case.id, measure=measure, unit=unit, before=before,
            after=after, ratio=after.median / before.median, told_apart=bool(found),
            p_value=next(iter(found), None), beyond_limit=beyond is not None,
            clocks=_describe_clocks(was.records, old, will.records, new), why_not=why_not,
        )  # fmt: skip


def _engines(records: Sequence[Record]) -> tuple[Engine, ...]:
    """Return the facts of every engine that was built and run."""
    builds = (build for r in records if r.ended == RAN for build in r.data.get("builds") or [r.data])
    return tuple(build["engine"] for build in builds if isinstance(build.get("engine"), Mapping))


def _figures(engines: Sequence[Engine], measure: str, *, many: bool) -> list[Figure]:
    """Return one of :data:`MEASURES` of every engine that has it as a positive number."""
    found = []
    for engine in engines:
        value = engine.get(MEASURES[measure][1])
        spread = engine.get("latency") if measure == "latency" and many else None
        spread = spread if isinstance(spread, Mapping) else {}
        numbers = [spread.get(name, value) for name in ("median_ms", "low_ms", "high_ms")]
        if all(isinstance(n, (int, float)) and math.isfinite(n) and n > 0 for n in numbers):
            clock = _clocks(engine).get("sm_mhz")
            median, low, high = map(float, numbers)
            sm_mhz = float(clock) if isinstance(clock, (int, float)) else None
            found.append(Figure(median=median, low=min(low, median), high=max(high, median), sm_mhz=sm_mhz))
    return found


def _spread(figures: Sequence[Figure]) -> Spread:
    values = [figure.median for figure in figures]
    return Spread(median=statistics.median(values), low=min(values), high=max(values), count=len(values))


def _conditions(was: Sequence[Record], will: Sequence[Record]) -> str:
    """Return why no figure of two sides may be compared, or nothing."""
    for name, word in (("driver", "driver"), ("variant", "GPU variant")):
        ours, theirs = (sorted({str(r.gpu.get(name) or "?") for r in side}) for side in (was, will))
        if ours != theirs:
            return f"{word} {', '.join(ours)} against {', '.join(theirs)}"
    power = [_clock_values([record.gpu for record in side], "power_limit_w") for side in (was, will)]
    differ = all(power) and power[0] != power[1]
    return f"power limit {_span(power[0])} W against {_span(power[1])} W" if differ else ""


def _describe_clocks(
    was: Sequence[Record], old: Sequence[Engine], will: Sequence[Record], new: Sequence[Engine]
) -> str:
    """Return the clocks and the power limit of both sides in words."""
    power = _clock_values([record.gpu for record in (*was, *will)], "power_limit_w")
    limit = f", power limit {_span(power)} W" if power else ""
    loaded = [_clock_values(side, "sm_mhz") for side in (old, new)]
    clocks = f"SM {_span(loaded[0])} MHz → {_span(loaded[1])} MHz" if all(loaded) else ""
    return f"{clocks or 'clocks under load not recorded'}{limit}"


def _clocks(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    clocks = facts.get("clocks")
    return clocks if isinstance(clocks, Mapping) else {}


def _clock_values(facts: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    found = (_clocks(each).get(name) for each in facts)
    return sorted({float(value) for value in found if isinstance(value, (int, float))})


def _span(values: Sequence[float]) -> str:
    low, high = f"{values[0]:.0f}", f"{values[-1]:.0f}"
    return low if low == high else f"{low} to {high}"


@dataclass(frozen=True, kw_only=True)
class PerformanceSummary:
    """One measure over all cases of both versions.

    ``ratio``: geometric mean of after over before of the ``cases`` that may be compared, or None; ``worse``
    and ``better`` count those told apart; ``beyond``: those beyond the limit, the worst first;
    ``not_compared``: those that may not be compared, the largest ratio first.
    """

    measure: str
    cases: int
    ratio: float | None
    worse: int
    better: int
    beyond: tuple[PerformanceLine, ...]
    not_compared: tuple[PerformanceLine, ...]


def summarise_performance(lines: Sequence[PerformanceLine]) -> tuple[PerformanceSummary, ...]:
    """Return a summary a measure; a measure that no case has at both versions has none."""
    summaries = []
    for measure in MEASURES:
        mine = [(line.ratio, line) for line in lines if line.measure == measure and line.ratio]
        mine.sort(key=lambda pair: -pair[0])
        ratios = [ratio for ratio, line in mine if not line.why_not]
        if not mine:
            continue
        apart = [ratio for ratio, line in mine if line.told_apart]
        summary = PerformanceSummary(
            measure=measure, cases=len(ratios),
            ratio=math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None,
            worse=sum(ratio > 1 for ratio in apart), better=sum(ratio < 1 for ratio in apart),
            beyond=tuple(line for _, line in mine if line.beyond_limit),
            not_compared=tuple(line for _, line in mine if line.why_not),
        )  # fmt: skip
        summaries.append(summary)
    return tuple(summaries)
