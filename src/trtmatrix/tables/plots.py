"""Plots of a figure over versions as inline SVG, with their text alternatives and their data as a table.

What stands where is computed here; ``templates/plot.html`` draws it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trtmatrix.common.counting import counted
from trtmatrix.common.short import short
from trtmatrix.judge.factors import FAIL_FACTOR, PASS_FACTOR
from trtmatrix.tables.html_page import templates
from trtmatrix.tables.scale import Scale, make_scale, tick_text
from trtmatrix.tables.table import shorten
from trtmatrix.upgrade.report import Point, Series

FLOORS = "noise floors"
WIDTH, HEIGHT = 880, 330
LEFT, RIGHT, TOP = 62, 12, 16
LEAST, MOST = 0.01, 1000.0
"""Errors beyond so many noise floors stand at the foot or at the top: how far beyond is of no matter."""
_NAMED = 8
"""So many lines are written beside; of more, only those that fail somewhere."""
_LABELS = 222
_SPACE = 13.0
_MOST_NAMED = 14


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Lines over versions. ``name`` starts the ids in the page, ``unit`` names the vertical axis.

    ``must_fail``: labels of those that have a known defect put in. ``marked``: versions written boldly.
    Versions come in the order of the points.
    """

    name: str
    title: str
    unit: str
    series: tuple[Series, ...]
    must_fail: frozenset[str] = frozenset()
    marked: frozenset[str] = frozenset()

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions at which any line has a value, in the order in which they come."""
        order = dict.fromkeys(point.version for line in self.series for point in line.points)
        known = {point.version for _, point, _ in self.values()}
        return tuple(version for version in order if version in known)

    def values(self) -> Iterator[tuple[Series, Point, float]]:
        """Yield each point that has a value."""
        for line in self.series:
            for point in line.points:
                if point.value is not None:
                    yield line, point, point.value


def render_figure(plot: Plot) -> str:
    """Return the plot with its title, its key and its data, or nothing where there are no values.

    A point's shape says its verdict, where its word starts with one: a disc passes, a cross fails, a ring is
    neither; a triangle has a known defect put in. Errors stand on a logarithmic scale with the noise floor at
    1 and the limits of right and wrong; other figures from zero on, or logarithmic where they span decades.
    """
    versions, errors = plot.versions, plot.unit == FLOORS
    if not versions:
        return ""
    scale, named = _scale(plot), _named(plot)
    right = WIDTH - (_LABELS if named else RIGHT)
    step = (right - LEFT) / len(versions)
    turned = any(step < 8 * len(version) for version in versions)
    foot = HEIGHT - (66 if turned else 30)
    last = len(plot.series) - 1

    def across(number: int, version: str) -> float:
        """Return where a line's point stands: lines stand side by side in a column."""
        aside = (number / last - 0.5) * min(0.62, 0.06 * last) if last else 0.0
        return round(LEFT + step * (versions.index(version) + 0.5 + aside), 1)

    def up(value: float) -> float:
        return round(TOP + (foot - TOP) * (1 - scale.share(value)), 1)

    numbers = {id(line): number for number, line in enumerate(plot.series)}  # labels need not differ
    dots = [
        {
            "x": across(numbers[id(line)], point.version), "y": up(value), "kind": mark_of(plot, line, point),
            "words": f"{line.label} at {point.version}: {point.word or short(value)}"
            + (f" ({point.note})" if point.note else ""),
            "beyond": "" if math.isfinite(value) else short(value),
            "spread": None if point.low is None or point.high is None else (up(point.low), up(point.high)),
        }
        for line, point, value in plot.values()
    ]  # fmt: skip
    ends = []
    for line in named:
        version, value = next((p.version, p.value) for p in reversed(line.points) if p.value is not None)
        beyond = 0 if math.isfinite(value) else 28
        words = shorten(line.label, 28)  # its start names the finding, its end tells cases apart
        ends.append((across(numbers[id(line)], version) + beyond, up(value), words))
    ends.sort(key=lambda end: end[1])
    places = spread_apart([y for _, y, _ in ends], _SPACE, TOP, foot)
    return templates().get_template("plot.html").render(
        plot=plot, width=WIDTH, height=HEIGHT, left=LEFT, right=round(right, 1), top=TOP, foot=foot,
        description=describe_plot(plot), axis=plot.unit + (", logarithmic" if scale.logarithmic else ""),
        ticks=[(up(tick), _tick(tick, plot, scale)) for tick in scale.ticks], turned=turned,
        columns=[(round(LEFT + step * (n + 0.5), 1), version) for n, version in enumerate(versions)],
        limits=[(up(1.0), "floor"), (up(PASS_FACTOR), "limit"), (up(FAIL_FACTOR), "limit")] if errors else [],
        paths=[
            (path, any(line is other for other in named)) for number, line in enumerate(plot.series)
            if (path := _path([
                (across(number, p.version), None if p.value is None else up(p.value))
                for p in _in_order(line, versions)
            ]))
        ],
        labels=[(*end, round(place, 1)) for end, place in zip(ends, places, strict=True)], dots=dots,
        key=_key(plot), data=[(line.label, [*_data(line, versions)]) for line in plot.series],
        pass_factor=PASS_FACTOR, fail_factor=FAIL_FACTOR,
    )  # fmt: skip


def _scale(plot: Plot) -> Scale:
    values = [value for _, _, value in plot.values()]
    ends = [end for _, point, _ in plot.values() for end in (point.low, point.high) if end is not None]
    errors = plot.unit == FLOORS
    positive = [value for value in values if 0 < value < math.inf]
    wide = bool(positive) and max(positive) > 20 * min(positive) and min(values) > 0
    return make_scale(
        (*values, *ends), logarithmic=errors or wide, around=(1.0, FAIL_FACTOR) if errors else (),
        ends=(LEAST, MOST) if errors else (0.0, math.inf),
    )  # fmt: skip


def _named(plot: Plot) -> list[Series]:
    """Return the lines that are written beside: all of a few; of many those of errors that are too large."""
    known = {id(line) for line, _, _ in plot.values()}
    if len(plot.series) <= _NAMED:
        return [line for line in plot.series if id(line) in known]
    worst: dict[str, float] = {}
    for line, _, value in plot.values():
        if plot.unit == FLOORS and not value <= PASS_FACTOR and line.label not in plot.must_fail:
            worst[line.label] = max(worst.get(line.label, 0.0), value if math.isfinite(value) else math.inf)
    most = sorted(worst, key=lambda label: worst[label], reverse=True)[:_MOST_NAMED]
    return [line for line in plot.series if line.label in most and id(line) in known]


def mark_of(plot: Plot, line: Series, point: Point) -> str:
    """Return the kind of a point's mark: ``good``, ``bad``, ``other``, or ``must`` for a defect put in."""
    if line.label in plot.must_fail:
        return "must"
    word = point.word.lstrip("[(")
    return "good" if word.startswith("PASS") else "bad" if word.startswith("FAIL") else "other"


def _tick(tick: float, plot: Plot, scale: Scale) -> str:
    """Return what is written beside a scale's value; at its ends, that others lie beyond."""
    values = [value for _, _, value in plot.values()]
    below = tick == scale.low and any(value < scale.low for value in values)
    above = tick == scale.high and any(value > scale.high for value in values)
    return ("≤ " if below else "≥ " if above else "") + tick_text(tick)


def _path(places: Sequence[tuple[float, float | None]]) -> str:
    """Return a line through the points of neighbouring versions, if any; where one has no value is a gap."""
    moves, drawing = "", False
    for x, y in places:
        if y is not None:
            moves += f"{'L' if drawing else 'M'}{x} {y}"
        drawing = y is not None
    return moves if "L" in moves else ""


def _in_order(line: Series, versions: Sequence[str]) -> list[Point]:
    """Return a line's points at some versions, without a value where it has none."""
    at = {point.version: point for point in line.points if point.value is not None}
    return [at.get(version, Point(version=version, value=None)) for version in versions]


def spread_apart(places: Sequence[float], space: float, low: float, high: float) -> list[float]:
    """Move ascending places apart by ``space``, no further than needed, and keep them within the ends."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + space) if found else max(place, low))
    limit = high
    for number in range(len(found) - 1, -1, -1):
        found[number] = min(found[number], limit)
        limit = found[number] - space
    return found


def describe_plot(plot: Plot) -> str:
    """Return in a few sentences what the plot shows: how many lines, the largest and the smallest value."""
    found = list(plot.values())
    worst = max(found, key=lambda item: (not math.isfinite(item[2]), item[2] if item[2] == item[2] else 0.0))
    least = min(found, key=lambda item: item[2] if math.isfinite(item[2]) else math.inf)
    most_said, least_said = (
        f"{short(value)} {plot.unit} ({line.label} at {point.version})"
        for line, point, value in (worst, least)
    )
    parts = [
        f"{counted(len(plot.series), 'line')} over {counted(len(plot.versions), 'version')}: "
        f"{', '.join(plot.versions)}.",
        f"The largest value is {most_said}, the smallest {least_said}.",
    ]
    if plot.unit == FLOORS:
        parts.append(f"Right is up to {PASS_FACTOR:g} noise floors, wrong from {FAIL_FACTOR:g} on.")
    return " ".join([*parts, "All values are in the table below."])


def _key(plot: Plot) -> list[tuple[str, str]]:
    """Return what the marks of a plot mean, those that occur."""
    other = "neither" if plot.unit == FLOORS else "median, with lowest and highest"
    meanings = {"good": "PASS", "bad": "FAIL", "other": other, "must": "a known defect put in: must FAIL"}
    kinds = {mark_of(plot, line, point) for line, point, _ in plot.values()}
    return [(kind, meaning) for kind, meaning in meanings.items() if kind in kinds]


def _data(line: Series, versions: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield a line's value at each version in words, its spread, and whether there is a value."""
    at = {point.version: point for point in line.points}
    for version in versions:
        point = at.get(version)
        if point is None or point.value is None:
            yield (point.note or "no value") if point else "", "", False
            continue
        number = short(point.value)
        words = " · ".join(part for part in (point.word, "" if number in point.word else number) if part)
        some = point.low is not None and point.high is not None
        yield words, f"({short(point.low or 0.0)} to {short(point.high or 0.0)})" if some else "", True
