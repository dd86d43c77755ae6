"""Latency, build time, engine size and memory of a case at both versions, with spread and clocks. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trtmatrix.judge.entry import Entry
from trtmatrix.judge.record import RAN, Record
from trtmatrix.upgrade.report import PerformanceLine, Spread
from trtmatrix.upgrade.sides import Entries

LEAST_VALUES = 3
"""Values a side must have before two are told apart."""

SLOWER = 1.1
"""A figure that is worse by more than this factor, beyond both spreads, is worth a note."""

SAME_CLOCKS = 0.05
"""How far two SM clocks under load may be apart, as a share of the lower, to be compared."""

LATENCY = "latency"
SINGLE = "single run"
"""What stands for latency where not all engines of both sides have one over many runs: one run each."""

TIMES = ("latency", "build time")
"""Figures that hang on how busy the host and the GPU were: only told apart with the clocks under load."""

MEASURES = (
    ("latency", "ms"), ("build time", "s"), ("engine size", "bytes"), ("device memory", "bytes"),
)  # fmt: skip


def make_performance(entries: Entries, before: str, after: str) -> tuple[PerformanceLine, ...]:
    """Return each figure of each case that was measured or recorded at both versions; no controls."""
    lines: list[PerformanceLine] = []
    for entry in entries.all:
        cell = entry.cell
        if cell.version.name != after or cell.companion or cell.case.control is not None:
            continue
        was = entries.at(cell.repro.id, cell.case.id, before)
        if was is not None and was.record is not None and entry.record is not None:
            lines += _lines(was, entry)
    return tuple(lines)


def _lines(was: Entry, will: Entry) -> Iterator[PerformanceLine]:
    old, new = (tuple(_engines(entry.records)) for entry in (was, will))
    clocks, why_not = _conditions(was.records, old, will.records, new)
    known = all(_has_clocks(engines) for engines in (old, new))
    single = not all(_has_latency(engines) for engines in (old, new))
    for measure, unit in MEASURES:
        name = SINGLE if measure == LATENCY and single else measure
        before, after = (_spread(_values(engines, name)) for engines in (old, new))
        if before is None or after is None:
            continue
        enough = min(before.count, after.count) >= LEAST_VALUES
        apart = after.low > before.high or after.high < before.low
        apart = apart and enough and not why_not and (known or measure not in TIMES)
        yield PerformanceLine(
            repro=will.cell.repro.id, case=will.cell.case.id, measure=measure, unit=unit, before=before,
            after=after, ratio=after.median / before.median if before.median > 0 else None,
            told_apart=apart, clocks=clocks, why_not=why_not,
        )  # fmt: skip


def _has_clocks(engines: Sequence[Mapping[str, Any]]) -> bool:
    return all(_clocks(engine) for engine in engines)


def _has_latency(engines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether no engine was timed by a single run alone; one that was not timed at all is no hindrance."""
    return all(isinstance(engine.get("latency"), Mapping) for engine in engines if "run_ms" in engine)


def _engines(records: Sequence[Record]) -> Iterator[Mapping[str, Any]]:
    """Yield the facts of every engine that was built and run."""
    for record in records:
        if record.ended != RAN:
            continue
        data = record.data
        for build in data.get("builds") or [data]:
            engine = build.get("engine")
            if isinstance(engine, Mapping):
                yield engine


def engine_values(records: Sequence[Record], measure: str) -> list[float]:
    """Return one of :data:`MEASURES` of every engine of some records, where it was measured."""
    return _values(tuple(_engines(records)), measure)


def _values(engines: Sequence[Mapping[str, Any]], measure: str) -> list[float]:
    found = [_value(engine, measure) for engine in engines]
    return [value for value in found if value is not None and math.isfinite(value) and value > 0]


def _value(engine: Mapping[str, Any], measure: str) -> float | None:
    match measure:
        case "latency":
            latency = engine.get("latency")
            value = latency.get("median_ms") if isinstance(latency, Mapping) else None
            value = engine.get("run_ms") if value is None else value
        case "single run":
            value = engine.get("run_ms")
        case "build time":
            value = engine.get("build_seconds")
        case "engine size":
            value = engine.get("engine_bytes")
        case _:
            value = engine.get("device_memory_bytes")
    return float(value) if isinstance(value, (int, float)) else None


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(median=statistics.median(values), low=min(values), high=max(values), count=len(values))


def _conditions(
    was: Sequence[Record], old: Sequence[Mapping[str, Any]], will: Sequence[Record],
    new: Sequence[Mapping[str, Any]],
) -> tuple[str, str]:  # fmt: skip
    """Return the clocks of both sides in words, and why the two must not be compared, or nothing."""
    for name, word in (("driver", "driver"), ("variant", "GPU variant")):
        ours, theirs = (sorted({str(r.gpu.get(name) or "?") for r in side}) for side in (was, will))
        if ours != theirs:
            return "", f"{word} {', '.join(ours)} against {', '.join(theirs)}"
    power = [_of_clocks([_clocks(record.gpu) for record in side], "power_limit_w") for side in (was, will)]
    if all(power) and power[0] != power[1]:
        return "", f"power limit {_span(power[0])} W against {_span(power[1])} W"
    loaded = [_of_clocks([_clocks(engine) for engine in side], "sm_mhz") for side in (old, new)]
    limit = f", power limit {_span(power[0])} W" if power[0] else ""
    if not all(loaded):
        return f"clocks under load not recorded{limit}", ""
    words = f"SM {_span(loaded[0])} MHz → {_span(loaded[1])} MHz{limit}"
    middle = sorted(statistics.median(values) for values in loaded)
    if middle[1] > middle[0] * (1 + SAME_CLOCKS):
        return words, f"SM clock {_span(loaded[0])} MHz against {_span(loaded[1])} MHz"
    return words, ""


def _clocks(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    clocks = facts.get("clocks")
    return clocks if isinstance(clocks, Mapping) else {}


def _of_clocks(clocks: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return sorted({float(c[name]) for c in clocks if isinstance(c.get(name), (int, float))})


def _span(values: Sequence[float]) -> str:
    low, high = f"{values[0]:.0f}", f"{values[-1]:.0f}"
    return low if low == high else f"{low} to {high}"


@dataclass(frozen=True, kw_only=True)
class PerformanceSummary:
    """One measure over all cases that may be compared.

    ``ratio``: geometric mean of after over before; ``worst`` and ``best`` are the lines with the largest and
    the smallest ratio; ``worse`` and ``better`` count those told apart, ``slower`` are those worse by more
    than :data:`SLOWER` beyond both spreads.
    """

    measure: str
    cases: int
    ratio: float
    worst: PerformanceLine
    best: PerformanceLine
    worse: int
    better: int
    slower: tuple[PerformanceLine, ...]
    not_compared: int


def summarise_performance(lines: Sequence[PerformanceLine]) -> tuple[PerformanceSummary, ...]:
    """Return a summary a measure; a measure without a comparable case has none."""
    found = (
        _summarise(measure, [line for line in lines if line.measure == measure]) for measure, _ in MEASURES
    )
    return tuple(summary for summary in found if summary is not None)


def _summarise(measure: str, lines: Sequence[PerformanceLine]) -> PerformanceSummary | None:
    ratios = {id(line): line.ratio for line in lines if line.ratio and not line.why_not}
    compared = sorted((line for line in lines if id(line) in ratios), key=lambda line: line.ratio or 0)
    if not compared:
        return None
    mean = math.exp(statistics.fmean(math.log(line.ratio) for line in compared if line.ratio))
    apart = [line for line in compared if line.told_apart and line.ratio]
    slower = [line for line in apart if _is_slower(line)]
    return PerformanceSummary(
        measure=measure, cases=len(compared), ratio=mean, worst=compared[-1], best=compared[0],
        worse=sum((line.ratio or 1) > 1 for line in apart),
        better=sum((line.ratio or 1) < 1 for line in apart),
        slower=tuple(sorted(slower, key=lambda line: -(line.ratio or 0))),
        not_compared=len(lines) - len(compared),
    )  # fmt: skip


def _is_slower(line: PerformanceLine) -> bool:
    return line.before is not None and line.after is not None and line.after.low > line.before.high * SLOWER
