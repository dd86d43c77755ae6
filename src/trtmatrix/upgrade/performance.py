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

LEAST_VALUES = 3
"""Values a side must have before two are told apart."""

SLOWER = 1.1
"""A figure that is worse by more than this factor, beyond both spreads, is worth a note."""

SAME_CLOCKS = 0.05
"""How far two SM clocks under load may be apart, as a share of the lower, to be compared."""

TIMES = ("latency", "build time")
"""Figures that hang on how busy the host and the GPU were: only told apart with the clocks under load."""

MEASURES: Mapping[str, tuple[str, str]] = {
    "latency": ("ms", "run_ms"), "build time": ("s", "build_seconds"),
    "engine size": ("bytes", "engine_bytes"), "device memory": ("bytes", "device_memory_bytes"),
}  # fmt: skip
"""Measure → its unit, and its name in a record; a latency over many runs is preferred to ``run_ms``."""

Engine = Mapping[str, Any]


def make_performance(entries: Entries, before: str, after: str) -> tuple[PerformanceLine, ...]:
    """Return each figure of each case that was measured or recorded at both versions; no controls."""
    lines: list[PerformanceLine] = []
    for entry in entries.all:
        cell = entry.cell
        if cell.version.name != after or cell.companion or cell.case.control is not None:
            continue
        was = entries.at(cell.repro.id, cell.case.id, before)
        if was is not None and was.record is not None and entry.record is not None:
            lines += _compare(was, entry)
    return tuple(lines)


def _compare(was: Entry, will: Entry) -> Iterator[PerformanceLine]:
    """Yield each measure that both sides have.

    Where one side has no latency over many runs, single runs of both are compared; an engine that was not
    timed at all is no hindrance.
    """
    old, new = _engines(was.records), _engines(will.records)
    clocks, why_not = _conditions(was.records, old, will.records, new)
    timed = [engine for engine in (*old, *new) if "run_ms" in engine]
    many = all(isinstance(engine.get("latency"), Mapping) for engine in timed)
    loaded = all(_clocks(engine) for engine in (*old, *new))
    for measure, (unit, _) in MEASURES.items():
        ours, theirs = (_values(engines, measure, many=many) for engines in (old, new))
        if not ours or not theirs:
            continue
        before, after = _spread(ours), _spread(theirs)
        enough = min(before.count, after.count) >= LEAST_VALUES
        apart = after.low > before.high or after.high < before.low
        yield PerformanceLine(
            repro=will.cell.repro.id, case=will.cell.case.id, measure=measure, unit=unit, before=before,
            after=after, ratio=after.median / before.median,
            told_apart=apart and enough and not why_not and (loaded or measure not in TIMES),
            clocks=clocks, why_not=why_not,
        )  # fmt: skip


def _engines(records: Sequence[Record]) -> tuple[Engine, ...]:
    """Return the facts of every engine that was built and run."""
    builds = (build for r in records if r.ended == RAN for build in r.data.get("builds") or [r.data])
    return tuple(build["engine"] for build in builds if isinstance(build.get("engine"), Mapping))


def _values(engines: Sequence[Engine], measure: str, *, many: bool = True) -> list[float]:
    """Return one of :data:`MEASURES` of every engine that has it as a positive number."""
    values = []
    for engine in engines:
        value, latency = engine.get(MEASURES[measure][1]), engine.get("latency")
        if measure == "latency" and many and isinstance(latency, Mapping):
            value = latency.get("median_ms", value)
        if isinstance(value, (int, float)) and math.isfinite(value) and value > 0:
            values.append(float(value))
    return values


def _spread(values: Sequence[float]) -> Spread:
    return Spread(median=statistics.median(values), low=min(values), high=max(values), count=len(values))


def _conditions(
    was: Sequence[Record], old: Sequence[Engine], will: Sequence[Record], new: Sequence[Engine]
) -> tuple[str, str]:
    """Return the clocks of both sides in words, and why the two must not be compared, or nothing."""
    for name, word in (("driver", "driver"), ("variant", "GPU variant")):
        ours, theirs = (sorted({str(r.gpu.get(name) or "?") for r in side}) for side in (was, will))
        if ours != theirs:
            return "", f"{word} {', '.join(ours)} against {', '.join(theirs)}"
    power = [_clock_values([record.gpu for record in side], "power_limit_w") for side in (was, will)]
    if all(power) and power[0] != power[1]:
        return "", f"power limit {_span(power[0])} W against {_span(power[1])} W"
    limit = f", power limit {_span(power[0])} W" if power[0] else ""
    loaded = [_clock_values(side, "sm_mhz") for side in (old, new)]
    if not all(loaded):
        return f"clocks under load not recorded{limit}", ""
    words = f"SM {_span(loaded[0])} MHz → {_span(loaded[1])} MHz{limit}"
    slow, fast = sorted(statistics.median(values) for values in loaded)
    differ = f"SM clock {_span(loaded[0])} MHz against {_span(loaded[1])} MHz"
    return words, differ if fast > slow * (1 + SAME_CLOCKS) else ""


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
    """One measure over all cases that may be compared.

    ``ratio``: geometric mean of after over before; ``worse`` and ``better`` count those told apart,
    ``slower`` are those worse by more than :data:`SLOWER` beyond both spreads, the worst first.
    """

    measure: str
    cases: int
    ratio: float
    worse: int
    better: int
    slower: tuple[PerformanceLine, ...]
    not_compared: int


def summarise_performance(lines: Sequence[PerformanceLine]) -> tuple[PerformanceSummary, ...]:
    """Return a summary a measure; a measure without a comparable case has none."""
    summaries = []
    for measure in MEASURES:
        mine = [line for line in lines if line.measure == measure]
        ratios = [(line.ratio, line) for line in mine if line.ratio and not line.why_not]
        if not ratios:
            continue
        apart = [(ratio, line) for ratio, line in ratios if line.told_apart]
        slower = [line for _, line in sorted(apart, key=lambda pair: -pair[0]) if _is_slower(line)]
        summary = PerformanceSummary(
            measure=measure, cases=len(ratios), not_compared=len(mine) - len(ratios), slower=tuple(slower),
            ratio=math.exp(statistics.fmean(math.log(ratio) for ratio, _ in ratios)),
            worse=sum(ratio > 1 for ratio, _ in apart), better=sum(ratio < 1 for ratio, _ in apart),
        )  # fmt: skip
        summaries.append(summary)
    return tuple(summaries)


def _is_slower(line: PerformanceLine) -> bool:
    return line.before is not None and line.after is not None and line.after.low > line.before.high * SLOWER
