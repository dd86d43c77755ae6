"""Whether the figures of a run of an archive are within the spread of those that were recorded. Pure.

The rule: of the engines that fail in the recorded way, each figure lies between the least and the largest
that was recorded, or outside by no more than right engines may differ by themselves.

- An error in noise floors: by 2 · PASS_FACTOR. The error of a wrong engine is what the bug adds and what the
  precision makes unavoidable; a right engine is PASS_FACTOR floors off at most, so two wrong ones differ by
  twice that (triangle inequality).
- c of a known defect: by twice the bound on a right engine's c.
- A relative L2 error without a floor: by SAME_ERROR, a factor.

Errors of an output that are garbage, other ones in each engine (:mod:`trtmatrix.core.garbage`), are told and
not compared: that they are so far off is the verdict.

Counts and other measurements of the repro's own are told and not compared: that they are above their limit is
the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trtmatrix.core.garbage import errors_vary
from trtmatrix.core.manner import SAME_ERROR

FLOORS, ERROR, C_OF = ": error in noise floors", ": relative L2 error", "c of "
NAN = ": NaN or infinite"
"""How repro.py calls its figures (:func:`trtmatrix.standalone.telling.figures_of`)."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure over the engines that fail: least and largest as recorded and as they are now (None: absent).

    ``slack``: by how much the new may lie outside; None where it is not compared.
    """

    name: str
    recorded: tuple[float, float]
    found: tuple[float, float] | None
    slack: float | None = None

    @property
    def within(self) -> bool:
        """Whether the new figures lie within the spread; NaN does where NaN was recorded."""
        if self.slack is None:
            return True
        if self.found is None:
            return False
        if any(math.isnan(value) for value in (*self.recorded, *self.found)):
            return any(map(math.isnan, self.recorded)) == any(map(math.isnan, self.found))
        if any(math.isinf(value) for value in (*self.recorded, *self.found)):
            return self.recorded[1] == self.found[1]
        low, high = self.recorded[0] - self.slack, self.recorded[1] + self.slack
        return low <= self.found[0] and self.found[1] <= high


def compare_figures(
    recorded: Sequence[Mapping[str, float]], found: Sequence[Mapping[str, float]], rules: Mapping[str, Any]
) -> tuple[Figure, ...]:
    """Return the recorded figures beside the new ones, of engines that fail.

    ``rules``: as :func:`trtmatrix.core.bundle.expected.make_rules` gives them.
    """
    names = dict.fromkeys(name for figures in recorded for name in figures)
    lines = []
    for name in names:
        before = [float(figures[name]) for figures in recorded if name in figures]
        after = [float(figures[name]) for figures in found if name in figures]
        slack = None if _is_garbage(name, recorded) else _slack(name, before, rules)
        lines.append(Figure(
            name=name, recorded=_range(before), found=_range(after) if after else None, slack=slack
        ))  # fmt: skip
    return tuple(lines)


def _is_garbage(name: str, recorded: Sequence[Mapping[str, float]]) -> bool:
    """Whether a figure is the error of an output that is NaN in some engines alone, or off by any size."""
    output = next((name.removesuffix(end) for end in (FLOORS, ERROR) if name.endswith(end)), None)
    if output is None:
        return False
    errors = [float(figures[output + ERROR]) for figures in recorded if output + ERROR in figures]
    sizes = [error for error in errors if math.isfinite(error) and error > 0]
    some = {bool(figures.get(output + NAN)) for figures in recorded}
    return len(some) > 1 or (bool(sizes) and errors_vary(sizes))


def _range(values: Sequence[float]) -> tuple[float, float]:
    if any(map(math.isnan, values)):
        return math.nan, math.nan
    return min(values), max(values)


def _slack(name: str, before: Sequence[float], rules: Mapping[str, Any]) -> float | None:
    factor = 2 * float(rules.get("pass", 0.0))
    if name.endswith(FLOORS):
        return factor
    if name.startswith(C_OF):
        bounds = {rule["name"]: float(rule["bound"]) for rule in rules.get("defects", [])}
        return 2 * bounds.get(name.removeprefix(C_OF), 0.0)
    if name.endswith(ERROR):
        floor = rules.get("outputs", {}).get(name.removesuffix(ERROR), {}).get("floor")
        finite = [value for value in before if math.isfinite(value)]
        return factor * float(floor) if floor else (SAME_ERROR - 1) * max(finite, default=0.0)
    return None
