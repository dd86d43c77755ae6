"""Whether engines of one version are slower or larger than those of another, beyond a limit. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb

LEAST_ENGINES = 3
"""Engines a side, below which nothing is decided."""

LEVEL = 0.05
"""The largest p-value of the rank test; complete separation of 3 and 3 engines has exactly this one."""

SAME_CLOCKS = 0.05
"""How far two SM clocks under load may be apart, as a share of the lower, to be compared."""

RULE = (
    f"at least {LEAST_ENGINES} engines a side, a one-sided exact Mann-Whitney test on their medians with "
    f"p ≤ {LEVEL:g}, and 95% of the runs of the typical engine beyond the other side's median"
)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One engine's figure: the median of its runs, their 5% and 95% quantiles, and the SM clock then."""

    median: float
    low: float
    high: float
    sm_mhz: float | None = None


def rank_p_value(smaller: Sequence[float], larger: Sequence[float]) -> float:
    """Return the one-sided p-value of the exact Mann-Whitney test; a tie counts against a difference.

    H. B. Mann and D. R. Whitney (1947): the share of all orders with as many pairs the other way round.
    """
    against = sum(high <= low for high in larger for low in smaller)
    ways = sum(_ways(len(smaller), len(larger), pairs) for pairs in range(against + 1))
    return ways / comb(len(smaller) + len(larger), len(larger))


@cache
def _ways(first: int, second: int, pairs: int) -> int:
    """Return how many orders of two groups have exactly so many pairs the other way round."""
    if pairs < 0 or min(first, second) == 0:
        return int(pairs == 0)
    return _ways(first - 1, second, pairs - second) + _ways(first, second - 1, pairs)


def p_value_beyond(before: Sequence[Figure], after: Sequence[Figure], limit: float = 1.0) -> float | None:
    """Return the p-value of ``after`` being more than ``limit`` times ``before``, or None where it is not.

    It is where :data:`RULE` holds, with ``before`` multiplied by the limit.
    """
    if min(len(before), len(after)) < LEAST_ENGINES:
        return None
    scaled = [each.median * limit for each in before]
    p_value = rank_p_value(scaled, [each.median for each in after])
    beyond = statistics.median(each.low for each in after) > statistics.median(scaled)
    return p_value if p_value <= LEVEL and beyond else None


def p_value_below(before: Sequence[Figure], after: Sequence[Figure], limit: float = 1.0) -> float | None:
    """Return the p-value of ``after`` being less than ``before`` divided by ``limit``, or None."""
    ours, theirs = (
        [Figure(median=1 / f.median, low=1 / f.high, high=1 / f.low) for f in side]
        for side in (before, after)
    )
    return p_value_beyond(ours, theirs, limit)


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
