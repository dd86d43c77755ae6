"""The vertical scale of a plot: where a value stands, and which values are written beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_POWER = 300
_MOST = 10.0**_POWER
"""Beyond it a number's neighbours in a scale have no room in a float."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """From ``low`` to ``high``, logarithmic or from zero on; ``ticks`` are the values to be written."""

    low: float
    high: float
    logarithmic: bool
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """Return how far up a value stands, 0 to 1; NaN and infinity, the worst there is, at the top."""
        if math.isnan(value) or value >= self.high:
            return 1.0
        if value <= self.low:
            return 0.0
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def make_scale(
    values: Iterable[float], *, logarithmic: bool, around: tuple[float, ...] = (),
    ends: tuple[float, float] = (0.0, math.inf),
) -> Scale:  # fmt: skip
    """Return a scale that shows all finite values between ``ends``, and those of ``around``.

    A logarithmic one spans whole decades, at least one and at most 16; what lies beyond, such as zero, stands
    at its foot or at its top.
    """
    known = [value for value in (*values, *around) if math.isfinite(value)]
    if not logarithmic:
        return _linear(max(known, default=1.0))
    least, most = max(ends[0], 0.0), min(ends[1], _MOST)
    positive = [min(max(value, least), most) for value in known if value > 0 or least]
    top = math.ceil(math.log10(max(positive, default=1.0)) - 1e-9)
    foot = max(math.floor(math.log10(min(positive, default=1.0)) + 1e-9), top - 16, -_POWER)
    if foot == top or (not least and min(known, default=1.0) <= 0):
        foot -= 1
    step = max(1, math.ceil((top - foot) / 9))
    ticks = {10.0**power for power in range(top, foot - 1, -step)} | {10.0**foot}
    return Scale(low=10.0**foot, high=10.0**top, logarithmic=True, ticks=tuple(sorted(ticks)))


def _linear(highest: float) -> Scale:
    highest = min(highest, _MOST) if highest > 1 / _MOST else 1.0
    size = 10.0 ** math.floor(math.log10(highest))
    step = next(size * part for part in (0.2, 0.5, 1.0, 2.0) if highest / (size * part) <= 6)
    ticks = tuple(step * number for number in range(math.ceil(highest / step - 1e-9) + 1))
    return Scale(low=0.0, high=ticks[-1], logarithmic=False, ticks=ticks)


def tick_text(value: float) -> str:
    """Write a scale's value: ``0.01``, ``1``, ``1000``, ``10⁶``."""
    if value > 0 and abs(power := math.log10(value)) >= 4 and abs(power - round(power)) < 1e-6:
        return "10" + str(round(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{value:.12g}"
