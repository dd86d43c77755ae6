"""Plots over versions as inline SVG, with their text alternatives and their data as a table.

What stands where is computed here; ``templates/plot.html`` draws it. For each GPU and finding there is one of
errors in noise floors and one of latencies, with a line a case.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from trtmatrix.common.text import counted, short
from trtmatrix.judge.entry import Entry, cell_text
from trtmatrix.judge.factors import FAIL_FACTOR, PASS_FACTOR
from trtmatrix.judge.judge import FLOORS as FLOORS_MEASURE
from trtmatrix.judge.judge import measured_in
from trtmatrix.judge.noise import Calibration
from trtmatrix.judge.numbers import nan_last
from trtmatrix.judge.record import RAN
from trtmatrix.suite.model import Control
from trtmatrix.tables.html_page import templates
from trtmatrix.tables.table import Section, Table, make_tables, shorten

FLOORS = "noise floors"
WIDTH, HEIGHT = 880, 330
LEFT, RIGHT, TOP = 62, 222, 16
LEAST, MOST = 0.01, 1000.0
"""Errors beyond so many noise floors stand at the foot or at the top: how far beyond is of no matter."""
_NAMED = 14
"""So many lines at most are written beside; of more than eight, only those that fail somewhere."""
_SPACE = 13.0


@dataclass(frozen=True, kw_only=True)
class Point:
    """One version of a line; ``value`` is None where there is none, ``word`` is what its cell shows."""

    version: str
    value: float | None
    word: str = ""

    @property
    def kind(self) -> str:
        """The kind of its mark: ``good``, ``bad`` or ``other``."""
        word = self.word.lstrip("[(")
        return "good" if word.startswith("PASS") else "bad" if word.startswith("FAIL") else "other"


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Lines by case; ``name`` is the id of its parts in the page.

    ``unit``: "noise floors" (logarithmic, the floor at 1) or "ms" (from zero on). ``must_fail``: lines of
    which a known defect was put in. ``table``, ``finding``: which part of a matrix it is of.
    """

    name: str
    title: str
    unit: str
    lines: Mapping[str, Sequence[Point]]
    must_fail: frozenset[str] = frozenset()
    table: int = 0
    finding: str = ""

    def values(self) -> Iterator[tuple[str, Point, float]]:
        """Yield each point that has a value, with its line."""
        for label, points in self.lines.items():
            yield from ((label, point, point.value) for point in points if point.value is not None)

    @property
    def versions(self) -> list[str]:
        """The versions at which any line has a value, in the order in which they come."""
        known = {point.version for _, point, _ in self.values()}
        return [
            v for v in dict.fromkeys(p.version for line in self.lines.values() for p in line) if v in known
        ]


def make_scale(values: Iterable[float], *, errors: bool) -> tuple[Callable[[float], float], list[float]]:
    """Return how far up a value stands (0 to 1), and the values to be written beside the scale.

    That of errors is logarithmic, has room for the noise floor and the limits, and ends at LEAST and MOST;
    other values stand from zero on. NaN and infinity, the worst there is, stand at the top.
    """
    known = [value for value in values if math.isfinite(value)]
    if errors:
        known = [min(max(value, LEAST), MOST) for value in (*known, 1.0, FAIL_FACTOR)]
        powers = range(math.floor(math.log10(min(known))), math.ceil(math.log10(max(known))) + 1)
        low, high, ticks = float(powers[0]), float(powers[-1]), [10.0**power for power in powers]
    else:
        low, high = 0.0, max([*known, 1e-9])
        step = 10.0 ** math.floor(math.log10(high))
        step = next(step * part for part in (0.2, 0.5, 1.0, 2.0) if high / (step * part) <= 6)
        ticks = [step * number for number in range(math.ceil(high / step - 1e-9) + 1)]

    def share(value: float) -> float:
        if not value < ticks[-1]:
            return 1.0
        if value <= ticks[0]:
            return 0.0
        return (math.log10(value) - low) / (high - low) if errors else value / ticks[-1]

    return share, ticks


def render_figure(plot: Plot) -> str:
    """Return the plot with its title, its key and its data, or nothing where there are no values.

    A point's shape says its verdict: a disc passes, a cross fails, a ring is neither; a triangle has a known
    defect put in.
    """
    versions, errors = plot.versions, plot.unit == FLOORS
    if not versions:
        return ""
    share, ticks = make_scale((value for _, _, value in plot.values()), errors=errors)
    right = WIDTH - RIGHT
    step, last = (right - LEFT) / len(versions), max(len(plot.lines) - 1, 1)
    turned = any(step < 8 * len(version) for version in versions)
    foot = HEIGHT - (66 if turned else 30)
    places = {label: number / last - 0.5 for number, label in enumerate(plot.lines)}  # side by side

    def across(label: str, version: str) -> float:
        aside = places[label] * min(0.62, 0.06 * last) if len(plot.lines) > 1 else 0.0
        return round(LEFT + step * (versions.index(version) + 0.5 + aside), 1)

    def up(value: float) -> float:
        return round(TOP + (foot - TOP) * (1 - share(value)), 1)

    def path(label: str) -> list[tuple[str, float, float]]:
        """Return a line through the points of neighbouring versions; where one has no value is a gap."""
        at = {point.version: up(value) for name, point, value in plot.values() if name == label}
        return [
            ("L" if n and versions[n - 1] in at else "M", across(label, version), at[version])
            for n, version in enumerate(versions)
            if version in at
        ]

    dots = [
        {
            "x": across(label, point.version), "y": up(value),
            "kind": "must" if label in plot.must_fail else point.kind,
            "words": f"{label} at {point.version}: {point.word or short(value)}",
            "beyond": "" if math.isfinite(value) else short(value),
        }
        for label, point, value in plot.values()
    ]  # fmt: skip
    named = _named(plot)
    ends = {label: (point, value) for label, point, value in plot.values() if label in named}
    labels = sorted((up(v), across(label, p.version), shorten(label, 28)) for label, (p, v) in ends.items())
    return templates().get_template("plot.html").render(
        plot=plot, width=WIDTH, height=HEIGHT, left=LEFT, right=right, top=TOP, foot=foot, dots=dots,
        ticks=[(up(tick), f"{tick:g}") for tick in ticks], turned=turned, named=list(ends),
        axis=plot.unit + (", logarithmic" if errors else ""),
        columns=[(round(LEFT + step * (n + 0.5), 1), version) for n, version in enumerate(versions)],
        limits=[(up(1.0), "floor"), (up(PASS_FACTOR), "limit"), (up(FAIL_FACTOR), "limit")] if errors else [],
        paths=[(label, path(label)) for label in plot.lines],
        labels=zip(labels, spread_apart([y for y, _, _ in labels], _SPACE, foot), strict=True),
        data=[(label, {point.version: point for point in points}) for label, points in plot.lines.items()],
        short=short, counted=counted, pass_factor=PASS_FACTOR, fail_factor=FAIL_FACTOR,
    )  # fmt: skip


def _named(plot: Plot) -> Sequence[str]:
    """Return the lines that are written beside: all of a few; of many those of errors that are too large."""
    if len(plot.lines) <= 8:
        return list(plot.lines)
    worst = dict[str, float]()
    for label, _, value in plot.values():
        if plot.unit == FLOORS and not value <= PASS_FACTOR and label not in plot.must_fail:
            worst[label] = max(worst.get(label, nan_last(value)), nan_last(value))
    return sorted(worst, key=lambda label: worst[label], reverse=True)[:_NAMED]


def spread_apart(places: Sequence[float], space: float, limit: float) -> list[float]:
    """Move ascending places apart by ``space``, no further than needed, and keep them above the limit."""
    found = list(accumulate(places, lambda before, place: max(place, before + space)))
    return [min(place, limit - space * (len(found) - 1 - n)) for n, place in enumerate(found)]


def make_plots(entries: Sequence[Entry], calibration: Calibration) -> tuple[Plot, ...]:
    """Return errors against the noise floor and latencies, by finding, of what has values at two versions."""
    found = (
        _make_plot(number, table, section, unit, calibration)
        for number, table in enumerate(make_tables(entries)) for section in table.sections
        for unit in (FLOORS, "ms")
    )  # fmt: skip
    return tuple(plot for plot in found if len(plot.versions) > 1)


def _make_plot(number: int, table: Table, section: Section, unit: str, calibration: Calibration) -> Plot:
    where, finding, errors = table.title.partition(" · ")[0], section.repro.id, unit == FLOORS
    kind, title = ("error", "error against the noise floor") if errors else ("latency", "latency")
    read = partial(floors_of, calibration=calibration) if errors else latency_of
    lines = {}
    for row in section.rows:
        points = [
            Point(version=version.name, value=read(entry) if entry else None, word=cell_text(entry))
            for version, entry in zip(table.columns, row.entries, strict=True)
        ]
        if any(point.value is not None for point in points):
            lines[row.case.id] = points
    return Plot(
        name=f"t{number}-{finding}-{kind}", title=f"{finding}: {title} ({where})", unit=unit,
        lines=lines, table=number, finding=finding,
        must_fail=frozenset(r.case.id for r in section.rows if r.case.control is Control.NEGATIVE),
    )  # fmt: skip


def floors_of(entry: Entry, calibration: Calibration) -> float | None:
    """Return the error of the worst output of the worst engine of an entry's records, in noise floors."""
    case, repro, ran = entry.cell.case, entry.cell.repro, [r for r in entry.records if r.ended == RAN]
    found = (measured_in(record, FLOORS_MEASURE, case, repro, calibration) for record in ran)
    return max((value for value in found if value is not None), key=nan_last, default=None)


def latency_of(entry: Entry) -> float | None:
    """Return the median latency of the engines of an entry's records, in milliseconds.

    It is what the backend measured over several runs, else what the case measured by itself; a single run is
    no latency.
    """
    found = []
    for record in entry.records:
        builds = record.data.get("builds") or [record.data]
        for build, measured in zip(builds, record.builds, strict=False) if record.ended == RAN else ():
            latency = (build.get("engine") or {}).get("latency")
            value = latency.get("median_ms") if isinstance(latency, Mapping) else measured.scalars.get("ms")
            if isinstance(value, (int, float)) and math.isfinite(value) and value > 0:
                found.append(float(value))
    return statistics.median(found) if found else None
