"""Plots over versions as inline SVG, with their text alternatives and their data as a table.

What stands where is computed here; ``templates/plot.html`` draws it. Those of the whole matrix have for each
GPU and finding a line a case, of its error and of its latency.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trtmatrix.common.words import counted, short
from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.factors import FAIL_FACTOR, PASS_FACTOR
from trtmatrix.judge.judge import subject_of
from trtmatrix.judge.numbers import nan_last, read_floors
from trtmatrix.judge.record import RAN
from trtmatrix.judge.words import cell_text
from trtmatrix.suite.model import Control
from trtmatrix.tables.html_page import templates
from trtmatrix.tables.table import Section, Table, make_tables, shorten

FLOORS = "noise floors"
WIDTH, HEIGHT = 880, 330
LEFT, RIGHT, TOP = 62, 12, 16
LEAST, MOST = 0.01, 1000.0
"""Errors beyond so many noise floors stand at the foot or at the top: how far beyond is of no matter."""
_LARGEST = 10.0**300
"""Beyond it a number's neighbours in a scale have no room in a float."""
_NAMED = 8
"""So many lines are written beside; of more, only those that fail somewhere."""
_LABELS = 222
_SPACE = 13.0
_MOST_NAMED = 14


@dataclass(frozen=True, kw_only=True)
class Point:
    """One version of a plot; ``value`` is None where there is nothing to show, ``note`` says why."""

    version: str
    value: float | None
    low: float | None = None
    high: float | None = None
    word: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a plot over versions; ``unit`` "noise floors" (logarithmic, floor at 1) or "ms"."""

    label: str
    unit: str
    points: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Lines over versions. ``name`` starts the ids in the page, ``unit`` names the vertical axis.

    ``must_fail``: labels of those that have a known defect put in. ``marked``: versions written boldly.
    Versions come in the order of the points. ``table`` and ``finding``: which part of a matrix it is of.
    """

    name: str
    title: str
    unit: str
    series: tuple[Series, ...]
    must_fail: frozenset[str] = frozenset()
    marked: frozenset[str] = frozenset()
    table: int = 0
    finding: str = ""

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


def make_scale(values: Iterable[float], *, errors: bool) -> Scale:
    """Return a scale that shows all finite values, from zero on, or logarithmic where they span decades.

    That of errors is logarithmic, has room for the noise floor and the limits, and ends at LEAST and MOST.
    What lies beyond a scale's ends, at most 16 decades apart, stands at its foot or at its top.
    """
    known = [min(value, _LARGEST) for value in values if math.isfinite(value)]
    if errors:
        known = [min(max(value, LEAST), MOST) for value in (*known, 1.0, FAIL_FACTOR)]
    elif not (known and 0 < 20 * min(known) < max(known)):
        highest = max(known, default=1.0)
        highest = highest if highest > 1 / _LARGEST else 1.0
        size = 10.0 ** math.floor(math.log10(highest))
        step = next(size * part for part in (0.2, 0.5, 1.0, 2.0) if highest / (size * part) <= 6)
        ticks = tuple(step * number for number in range(math.ceil(highest / step - 1e-9) + 1))
        return Scale(low=0.0, high=ticks[-1], logarithmic=False, ticks=ticks)
    top = math.ceil(math.log10(max(known)) - 1e-9)
    foot = max(min(math.floor(math.log10(min(known)) + 1e-9), top - 1), top - 16)
    powers = {*range(top, foot - 1, -max(1, math.ceil((top - foot) / 9))), foot}
    ticks = tuple(10.0**power for power in sorted(powers))
    return Scale(low=ticks[0], high=ticks[-1], logarithmic=True, ticks=ticks)


@dataclass(frozen=True, kw_only=True)
class _Area:
    """Where things stand in a figure: ``step`` is a column's width, ``foot`` where the values end."""

    versions: Sequence[str]
    step: float
    foot: float
    scale: Scale
    last: int

    def across(self, number: int, version: str) -> float:
        """Return where a line's point stands: lines stand side by side in a column."""
        aside = (number / self.last - 0.5) * min(0.62, 0.06 * self.last) if self.last else 0.0
        return round(LEFT + self.step * (self.versions.index(version) + 0.5 + aside), 1)

    def up(self, value: float) -> float:
        """Return how far down a value stands."""
        return round(TOP + (self.foot - TOP) * (1 - self.scale.share(value)), 1)

    def path(self, number: int, line: Series) -> str:
        """Return a line through the points of neighbouring versions; where one has no value is a gap."""
        at = {point.version: self.up(point.value) for point in line.points if point.value is not None}
        moves = [
            f"{'L' if n and self.versions[n - 1] in at else 'M'}{self.across(number, version)} {at[version]}"
            for n, version in enumerate(self.versions) if version in at
        ]  # fmt: skip
        return "".join(moves) if any(move[0] == "L" for move in moves) else ""


def render_figure(plot: Plot) -> str:
    """Return the plot with its title, its key and its data, or nothing where there are no values.

    A point's shape says its verdict, where its word starts with one: a disc passes, a cross fails, a ring is
    neither; a triangle has a known defect put in. Errors stand on a logarithmic scale with the noise floor at
    1 and the limits of right and wrong; other figures from zero on, or logarithmic where they span decades.
    """
    versions, errors = plot.versions, plot.unit == FLOORS
    if not versions:
        return ""
    shown = [end for _, point, value in plot.values() for end in (value, point.low, point.high)]
    scale, named = make_scale((end for end in shown if end is not None), errors=errors), _named(plot)
    right = WIDTH - (_LABELS if named else RIGHT)
    step = (right - LEFT) / len(versions)
    turned = any(step < 8 * len(version) for version in versions)
    foot = HEIGHT - (66 if turned else 30)
    area = _Area(versions=versions, step=step, foot=foot, scale=scale, last=len(plot.series) - 1)
    across, up, path = area.across, area.up, area.path
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
        extremes=_extremes(plot), axis=plot.unit + (", logarithmic" if scale.logarithmic else ""),
        ticks=[(up(tick), _tick(tick, plot, scale)) for tick in scale.ticks], turned=turned,
        columns=[(round(LEFT + step * (n + 0.5), 1), version) for n, version in enumerate(versions)],
        limits=[(up(1.0), "floor"), (up(PASS_FACTOR), "limit"), (up(FAIL_FACTOR), "limit")] if errors else [],
        paths=[
            (drawn, any(line is other for other in named)) for number, line in enumerate(plot.series)
            if (drawn := path(number, line))
        ],
        labels=[(*end, round(place, 1)) for end, place in zip(ends, places, strict=True)], dots=dots,
        data=[(line.label, {point.version: point for point in line.points}) for line in plot.series],
        short=short, counted=counted, pass_factor=PASS_FACTOR, fail_factor=FAIL_FACTOR,
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
    words = f"{tick:.12g}"
    if tick > 0 and abs(power := math.log10(tick)) >= 4 and abs(power - round(power)) < 1e-6:
        words = "10" + str(round(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return ("≤ " if below else "≥ " if above else "") + words


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


def _extremes(plot: Plot) -> list[str]:
    """Return the largest and the smallest value in words."""
    found = list(plot.values())
    worst = max(found, key=lambda item: (not math.isfinite(item[2]), item[2] if item[2] == item[2] else 0.0))
    least = min(found, key=lambda item: item[2] if math.isfinite(item[2]) else math.inf)
    return [f"{short(v)} {plot.unit} ({line.label} at {p.version})" for line, p, v in (worst, least)]


Values = Callable[[Entry], list[float]]  # one value for each engine of an entry
Middle = Callable[[list[float]], float]  # what stands for several engines


def make_plots(entries: Sequence[Entry], calibration: Calibration) -> tuple[Plot, ...]:
    """Return errors against the noise floor and latencies, by finding, of what has values at two versions."""
    found = (
        plot for number, table in enumerate(make_tables(entries)) for section in table.sections
        for plot in _plots(number, table, section, calibration)
    )  # fmt: skip
    return tuple(plot for plot in found if len(plot.versions) > 1)


def _plots(number: int, table: Table, section: Section, calibration: Calibration) -> Iterator[Plot]:
    """Yield errors by the worst engine, latencies by the middle one."""
    where, finding = table.title.partition(" · ")[0], section.repro.id
    kinds: tuple[tuple[str, str, str, Values, Middle], ...] = (
        ("error", "error against the noise floor", FLOORS, lambda e: floors_of(e, calibration),
         lambda values: max(values, key=nan_last)),
        ("latency", "latency", "ms", latencies_of, statistics.median),
    )  # fmt: skip
    for kind, title, unit, values, middle in kinds:
        series = []
        for row in section.rows:
            cells = zip(table.columns, row.entries, strict=True)
            points = tuple(_point(version.name, entry, values, middle) for version, entry in cells)
            if any(point.value is not None for point in points):
                series.append(Series(label=row.case.id, unit=unit, points=points))
        yield Plot(
            name=f"t{number}-{finding}-{kind}", title=f"{finding}: {title} ({where})", unit=unit,
            series=tuple(series), table=number, finding=finding,
            must_fail=frozenset(r.case.id for r in section.rows if r.case.control is Control.NEGATIVE),
        )  # fmt: skip


def _point(version: str, entry: Entry | None, values: Values, middle: Middle) -> Point:
    found = values(entry) if entry is not None else []
    if entry is None or not found:
        return Point(version=version, value=None)
    finite = sorted(value for value in found if math.isfinite(value))
    low, high = (finite[0], finite[-1]) if len(finite) > 1 else (None, None)
    return Point(version=version, word=cell_text(entry), value=middle(found), low=low, high=high)


def floors_of(entry: Entry, calibration: Calibration) -> list[float]:
    """Return the error of the worst output of each engine that an entry rests on, in noise floors."""
    found = []
    for record in entry.records:
        subject = subject_of(record, entry.cell.case, entry.cell.repro, calibration)
        for build in record.builds if record.ended == RAN and subject.noise else ():
            floors = read_floors(build, subject).values()
            found += [max(floors, key=nan_last)] if floors else []
    return found


def latencies_of(entry: Entry) -> list[float]:
    """Return the latency of each engine that an entry rests on, in milliseconds.

    It is what the backend measured over several runs, else what the case measured by itself; a single run is
    no latency.
    """
    found = []
    for record in entry.records:
        builds = record.data.get("builds") or [record.data]
        for build, measured in zip(builds, record.builds, strict=False) if record.ended == RAN else ():
            engine = build.get("engine")
            latency = engine.get("latency") if isinstance(engine, Mapping) else None
            value = latency.get("median_ms") if isinstance(latency, Mapping) else measured.scalars.get("ms")
            if isinstance(value, (int, float)) and math.isfinite(value) and value > 0:
                found.append(float(value))
    return found
