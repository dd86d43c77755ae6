"""Latency, build time, size and memory at both versions, and whether engines differ significantly. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

from trtmatrix.judge.entry import Entry
from trtmatrix.judge.record import RAN, Record
from trtmatrix.upgrade.findings import Entries
from trtmatrix.upgrade.report import PerformanceLine, Spread

LEAST_ENGINES, ENOUGH_ENGINES = 3, 5
"""Engines a side, below which nothing is decided, and from which on the rank test alone can be sure."""
LEVEL, SURE = 0.05, 0.005
"""The largest p-value of the rank test, and the largest that needs nothing beside it.

Complete separation of 3 and 3 engines has the first, which chance alone gives one figure in twenty."""
ROOM, MORE_ROOM = 1.0, 3.0
"""How large the gap between the sides must be otherwise, in spreads of the wider one: to be beyond a limit,
and to be called worse or better, which nothing measures again."""
SAME_CLOCKS = 0.05
"""How far two SM clocks under load may be apart, as a share of the lower, to be compared."""
LEAST_CHANGE, LEAST_GROWTH = 1 + SAME_CLOCKS, 1.01
"""What a time must differ by to be told apart, as clocks that count as the same may differ by as much, and
what a size."""
RULE = (
    f"at least {LEAST_ENGINES} engines a side, a one-sided exact Mann-Whitney test on their medians with "
    f"p ≤ {LEVEL:g}, 95% of the runs of the typical engine beyond the other side's median, and p ≤ {SURE:g} "
    f"or a gap between the sides of {MORE_ROOM:g} times the spread of the wider one (beyond the limit: once)"
)
THROUGHPUT = "throughput"
"""The only measure of which more is better: it is compared as the time that an item takes."""
FIRST = "first of its process"
BUILD, SIZE, MEMORY = "build time", "engine size", "device memory"
MEASURES: Mapping[str, tuple[str, str]] = {
    "latency": ("ms", "run_ms"), "end-to-end latency": ("ms", "end_to_end"),
    "end-to-end latency with a CUDA graph": ("ms", "end_to_end_graph"), THROUGHPUT: ("items/s", "throughput"),
    BUILD: ("s", "build_seconds"), SIZE: ("bytes", "engine_bytes"),
    MEMORY: ("bytes", "device_memory_bytes"),
}  # fmt: skip
"""Measure → its unit, and its name in a record; a latency over many runs is preferred to ``run_ms``."""
SPEEDS = tuple(measure for measure, (unit, _) in MEASURES.items() if unit in {"ms", "items/s"})
"""How fast an engine is."""
TIMES = (*SPEEDS, BUILD)
"""Figures that hang on how busy the host and the GPU were: only compared with the clocks under load."""
MATTERS: Mapping[str, float] = {BUILD: 1.0, SIZE: 2.0**20, MEMORY: 2.0**20}
"""Measure → what it must grow by (s, bytes) to be beyond the limit: the plan of a few kilobytes that gets
fourteen times as large costs nobody anything. Device memory is what an engine needs beside its weights, so
what it grows by is also held against both (the plan stands for the weights)."""
BESIDE = "other tests ran beside it on the GPU: a confirmation, or --workers (run it again without: --rerun)"
Engine = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One engine's figure: the median of its runs, their 5% quantile, and the SM clock then."""

    median: float
    low: float
    sm_mhz: float | None = None


def rank_p_value(smaller: Sequence[float], larger: Sequence[float]) -> float:
    """Return the one-sided p-value of the exact Mann-Whitney test; a tie counts against a difference.

    H. B. Mann and D. R. Whitney (1947): the share of all orders with as many pairs the other way round.
    """
    against = sum(high <= low for high in larger for low in smaller)
    ways = sum(_ways(len(smaller), len(larger), pairs) for pairs in range(against + 1))
    return ways / math.comb(len(smaller) + len(larger), len(larger))


@cache
def _ways(first: int, second: int, pairs: int) -> int:
    """Return how many orders of two groups have exactly so many pairs the other way round."""
    if pairs < 0 or min(first, second) == 0:
        return int(pairs == 0)
    return _ways(first - 1, second, pairs - second) + _ways(first, second - 1, pairs)


def p_value_beyond(
    before: Sequence[Figure], after: Sequence[Figure], limit: float = 1.0, room: float | None = None
) -> float | None:
    """Return the p-value of ``after`` being more than ``limit`` times ``before``, or None where it is not.

    It is where :data:`RULE` holds, with ``before`` multiplied by the limit. ``room``: how many times the
    spread of the wider side the gap must be (as ratios), where the p-value is above :data:`SURE`; None: it
    may be any.
    """
    sides = low, high = [each.median * limit for each in before], [each.median for each in after]
    if min(len(before), len(after)) < LEAST_ENGINES or not math.isfinite(max(low)):
        return None
    p_value = rank_p_value(low, high)
    beyond = statistics.median(each.low for each in after) > statistics.median(low)
    wide = max(math.log(max(side) / min(side)) for side in sides)
    sure = room is None or p_value <= SURE or math.log(min(high) / max(low)) > room * wide
    return p_value if p_value <= LEVEL and beyond and sure else None


def why_not_compared(before: Sequence[Figure], after: Sequence[Figure], *, clocked: bool) -> str:
    """Return why two sides must not be compared, or nothing. ``clocked``: the figure hangs on clocks."""
    if clocked:
        sides = [[f.sm_mhz for f in side if f.sm_mhz is not None] for side in (before, after)]
        if len(sides[0]) < len(before) or len(sides[1]) < len(after):
            return "clocks under load not recorded"
        low, high = sorted(map(statistics.median, sides))
        if high > low * (1 + SAME_CLOCKS):
            return f"SM clock {_span(sides[0])} MHz against {_span(sides[1])} MHz"
    if min(len(before), len(after)) < LEAST_ENGINES:
        return f"{len(before)} and {len(after)} engines, {LEAST_ENGINES} a side are needed"
    return ""


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def make_performance(
    entries: Entries, before: str, after: str, limit: float, build: float = 0.0
) -> tuple[PerformanceLine, ...]:
    """Return each figure of each case that was measured or recorded at both versions; no controls.

    ``limit``: what the figure after may be of that before; 0: nothing is compared. ``build``: the same of
    build times, where it is another. One version is compared with itself: every other engine with those
    between.
    """
    lines: list[PerformanceLine] = []
    for entry in entries.all if limit else ():
        cell = entry.cell
        if cell.version.name != after or cell.companion or cell.case.control is not None:
            continue
        was = entries.at(cell.repro.id, cell.case.id, before)
        if was is not None and was.record is not None and entry.record is not None:
            lines += _compare(was, entry, limit, build or limit)
    return tuple(lines)


def _compare(was: Entry, will: Entry, limit: float, build: float) -> Iterator[PerformanceLine]:
    """Yield each measure that both sides have, or that the probe says why one side has not."""
    versions = was.cell.version.name, will.cell.version.name
    (old, new), quiet = _sides(was.records, will.records), _sides(_quiet(was), _quiet(will))
    conditions = ""  # why no figure may be compared
    for name, word in (("power_limit_w", "power limit"), ("variant", "GPU variant"), ("driver", "driver")):
        ours, theirs = (sorted({_board(r.gpu, name) for r in entry.records} - {""}) for entry in (was, will))
        if ours != theirs and (name != "power_limit_w" or (ours and theirs)):
            conditions = f"{word} {', '.join(ours) or '?'} against {', '.join(theirs) or '?'}"
    # One session: each side began before the other had ended.
    first, last = ([(r.started, r.finished) for r in _quiet(e) if r.ended == RAN] for e in (was, will))
    turns = len(first) > 1 < len(last) and min(first)[0] < max(last)[1] and min(last)[0] < max(first)[1]
    every = [*((versions[0], engine) for engine in old), *((versions[1], engine) for engine in new)]
    # Where one side has no latency over many runs, single runs of both are compared.
    many = all(isinstance(e.get("latency"), Mapping) for _, e in every if "run_ms" in e)
    held = [_median(figures) for name in (SIZE, MEMORY) if (figures := _figures(old, name, many=many))]
    for measure, (unit, name) in MEASURES.items():
        # What took time counts of engines that had the GPU for themselves, where both sides have such.
        alone = measure in TIMES and all(quiet)
        sides = quiet if alone else (old, new)
        sides = _warm(sides) if measure == BUILD else sides
        before, after = (_figures(side, measure, many=many) for side in sides)
        line = PerformanceLine(
            repro=will.cell.repro.id, case=will.cell.case.id, measure=measure, unit=unit,
            before=_spread(before, measure), after=_spread(after, measure), by_turns=turns,
        )  # fmt: skip
        if before and after:
            growth = max(MATTERS.get(measure, 0.0), (limit - 1) * sum(held) if measure == MEMORY else 0.0)
            why_not = conditions or (BESIDE if measure in TIMES and not alone else "")
            yield _judge(line, before, after, why_not, build if measure == BUILD else limit, growth)
            continue
        reasons = [(version, engine.get("not_timed")) for version, engine in every]
        told = (f"{v}: {why[name]}" for v, why in reasons if isinstance(why, Mapping) and why.get(name))
        if why_not := next(told, ""):
            yield replace(line, why_not=why_not)


def _judge(
    line: PerformanceLine,
    before: Sequence[Figure],
    after: Sequence[Figure],
    why_not: str,
    limit: float,
    growth: float,
) -> PerformanceLine:
    """Return a figure with its ratio, and what the rule says of it. ``why_not``: why it can say nothing.

    ``growth``: by how much it must be larger to be beyond the limit.
    """
    timed = line.measure in TIMES
    why_not = why_not or why_not_compared(before, after, clocked=timed)
    least = LEAST_CHANGE if timed else LEAST_GROWTH
    pairs = [] if why_not else [(before, after), (after, before)]
    found = (p_value_beyond(*pair, least, MORE_ROOM) for pair in pairs)
    p_value = next((value for value in found if value is not None), None)
    matters = not why_not and _median(after) - _median(before) > growth
    seems = p_value_beyond(before, after, limit) if matters else None
    beyond = p_value_beyond(before, after, limit, ROOM) if matters else None
    p_value = beyond if p_value is None else p_value
    few = min(len(before), len(after)) < ENOUGH_ENGINES and (timed or beyond is None)
    return replace(
        line, ratio=_median(after) / _median(before), told_apart=p_value is not None, p_value=p_value,
        beyond_limit=beyond is not None, more_engines=few and seems is not None and seems > SURE,
        why_not=why_not,
    )  # fmt: skip


def _quiet(entry: Entry) -> list[Record]:
    """Return the records whose times count, the newest first.

    Where others ran beside what confirmed a verdict, it is those that it confirmed that were timed.
    """
    disturbed = any(record.is_disturbed for record in entry.records)
    timed = entry.set_aside if disturbed and not entry.overruled else ()
    quiet = [record for record in (*entry.records, *timed) if not record.is_disturbed]
    return sorted(quiet, key=attrgetter("started", "run"), reverse=True)


def _sides(before: Sequence[Record], after: Sequence[Record]) -> tuple[tuple[Engine, ...], ...]:
    """Return the engines of both sides; of one version compared with itself, every other one for each."""
    old, new = _engines(before), _engines(after)
    return (old[::2], old[1::2]) if before == after else (old, new)


def _board(gpu: Mapping[str, Any], name: str) -> str:
    watts = _clock(gpu, name)
    return f"{watts:.0f} W" if watts is not None else str(gpu.get(name) or "")


def _engines(records: Sequence[Record]) -> tuple[Engine, ...]:
    """Return the facts of every engine that was built and run, and whether it was its process's first."""
    return tuple(
        {**build["engine"], FIRST: number == 0 and (record.data.get("worker") or {}).get("position") == 0}
        for record in records if record.ended == RAN
        for number, build in enumerate(record.data.get("builds") or [record.data])
        if isinstance(build.get("engine"), Mapping)
    )  # fmt: skip


def _warm(sides: tuple[tuple[Engine, ...], ...]) -> tuple[tuple[Engine, ...], ...]:
    """Return engines that were not the first of their process, where each side has enough of them.

    TensorRT loads what it needs with the first build, which takes several times as long.
    """
    warm = tuple(tuple(engine for engine in side if not engine[FIRST]) for side in sides)
    return warm if min(map(len, warm)) >= LEAST_ENGINES else sides


def _figures(engines: Sequence[Engine], measure: str, *, many: bool) -> list[Figure]:
    """Return one of :data:`MEASURES` of every engine that has it as a positive number.

    A throughput is the time an item takes, in milliseconds.
    """
    found = []
    for engine in engines:
        value = engine.get(MEASURES[measure][1])
        spread = engine.get("latency") if measure == "latency" and many else value
        spread = spread if isinstance(spread, Mapping) else {}
        numbers = [spread.get("median_ms", value), spread.get("low_ms", value)]
        numbers.append(spread.get("batch") if measure == THROUGHPUT else 1)
        if all(isinstance(n, (int, float)) and math.isfinite(n) and n > 0 for n in numbers):
            median, low, items = map(float, numbers)
            low, clock = min(low, median) / items, _clock(engine, "sm_mhz")
            found.append(Figure(median=median / items, low=low, sm_mhz=clock))
    return found


def _clock(facts: Mapping[str, Any], name: str) -> float | None:
    clocks = facts.get("clocks")
    value = clocks.get(name) if isinstance(clocks, Mapping) else None
    return float(value) if isinstance(value, (int, float)) else None


def _median(figures: Sequence[Figure]) -> float:
    return statistics.median(figure.median for figure in figures)


def _spread(figures: Sequence[Figure], measure: str) -> Spread | None:
    """Return a side's figures as they are shown: a throughput in items a second, all others as measured."""
    values = [figure.median for figure in figures]
    if not values:
        return None
    low, median, high = min(values), _median(figures), max(values)
    if measure == THROUGHPUT:
        low, median, high = 1e3 / high, 1e3 / median, 1e3 / low
    return Spread(median=median, low=low, high=high, count=len(values))
