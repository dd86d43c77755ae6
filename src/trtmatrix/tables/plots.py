"""Plots of a figure over versions as inline SVG, with their text alternatives and their data as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from trtmatrix.common.short import short
from trtmatrix.judge.factors import FAIL_FACTOR, PASS_FACTOR
from trtmatrix.tables.html_pieces import count, fold, region, table, text
from trtmatrix.tables.scale import Scale, make_scale, tick_text

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
    """Lines over versions. ``name`` starts the ids in the page, ``label`` names the vertical axis.

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
        known = {point.version for line in self.series for point in line.points if point.value is not None}
        return tuple(version for version in order if version in known)

    def values(self) -> Iterator[tuple[Series, Point, float]]:
        """Yield each point that has a value."""
        for line in self.series:
            for point in line.points:
                if point.value is not None:
                    yield line, point, point.value


@dataclass(frozen=True, kw_only=True)
class _Canvas:
    """Where things stand: columns of versions across, the scale up."""

    plot: Plot
    scale: Scale
    versions: tuple[str, ...]
    named: tuple[Series, ...]

    @property
    def right(self) -> float:
        """Where the columns end, in units of the drawing."""
        return WIDTH - (_LABELS if self.named else RIGHT)

    @property
    def step(self) -> float:
        """The width of a version's column."""
        return (self.right - LEFT) / max(1, len(self.versions))

    @cached_property
    def numbers(self) -> dict[int, int]:
        """Each line's place among the lines; labels need not differ."""
        return {id(line): number for number, line in enumerate(self.plot.series)}

    def x(self, line: Series, version: str) -> float:
        """Return where a line's point stands: lines stand side by side in a column."""
        number, last = self.numbers[id(line)], len(self.plot.series) - 1
        aside = (number / last - 0.5) * min(0.62, 0.06 * last) if last else 0.0
        return LEFT + self.step * (self.versions.index(version) + 0.5 + aside)

    @cached_property
    def turned(self) -> bool:
        """Whether the versions' names are too long to stand side by side."""
        return any(self.step < 8 * len(version) for version in self.versions)

    @cached_property
    def foot(self) -> float:
        """Where the columns stand on."""
        return HEIGHT - (66 if self.turned else 30)

    def y(self, value: float) -> float:
        """Return where a value stands."""
        return TOP + (self.foot - TOP) * (1 - self.scale.share(value))


def render_plot(plot: Plot) -> str:
    """Return the plot as SVG, or nothing where no point has a value.

    A point's shape says its verdict, where its word starts with one: a disc passes, a cross fails, a ring is
    neither; a triangle has a known defect put in. Errors stand on a logarithmic scale with the noise floor at
    1 and the limits of right and wrong; other figures from zero on, or logarithmic where they span decades.
    """
    if not plot.versions:
        return ""
    canvas = _canvas(plot)
    parts = [*_grid(canvas), *_paths(canvas), *_labels(canvas), *_points(canvas)]
    ids = f'aria-labelledby="{plot.name}-t" aria-describedby="{plot.name}-d"'
    return "\n".join(
        (
            f'<svg class="plot chart" role="img" {ids} viewBox="0 0 {WIDTH} {HEIGHT}">',
            f'<title id="{plot.name}-t">{text(plot.title)}</title>',
            f'<desc id="{plot.name}-d">{text(describe_plot(plot))}</desc>',
            *parts,
            "</svg>",
        )
    )


def _canvas(plot: Plot) -> _Canvas:
    values = [value for _, _, value in plot.values()]
    ends = [end for _, point, _ in plot.values() for end in (point.low, point.high) if end is not None]
    errors = plot.unit == FLOORS
    positive = [value for value in values if 0 < value < math.inf]
    wide = bool(positive) and max(positive) > 20 * min(positive) and min(values) > 0
    scale = make_scale(
        (*values, *ends), logarithmic=errors or wide, around=(1.0, FAIL_FACTOR) if errors else (),
        ends=(LEAST, MOST) if errors else (0.0, math.inf),
    )  # fmt: skip
    return _Canvas(plot=plot, scale=scale, versions=plot.versions, named=tuple(_named(plot)))


def _named(plot: Plot) -> list[Series]:
    """Return the lines that are written beside: all of a few; of many those of errors that are too large."""
    if len(plot.series) <= _NAMED:
        return list(plot.series)
    worst: dict[str, float] = {}
    for line, _, value in plot.values():
        if plot.unit == FLOORS and not value <= PASS_FACTOR and line.label not in plot.must_fail:
            worst[line.label] = max(worst.get(line.label, 0.0), value if math.isfinite(value) else math.inf)
    most = sorted(worst, key=lambda label: worst[label], reverse=True)[:_MOST_NAMED]
    return [line for line in plot.series if line.label in most]


def mark_of(plot: Plot, line: Series, point: Point) -> str:
    """Return the kind of a point's mark: ``good``, ``bad``, ``other``, or ``must`` for a defect put in."""
    if line.label in plot.must_fail:
        return "must"
    word = point.word.lstrip("[(")
    return "good" if word.startswith("PASS") else "bad" if word.startswith("FAIL") else "other"


def _grid(canvas: _Canvas) -> Iterator[str]:
    left, right, foot = LEFT, canvas.right, canvas.foot
    values, scale = [value for _, _, value in canvas.plot.values()], canvas.scale
    below, above = any(value < scale.low for value in values), any(value > scale.high for value in values)
    for tick in scale.ticks:
        y = canvas.y(tick)
        said = "≤ " if below and tick == scale.low else "≥ " if above and tick == scale.high else ""
        said += tick_text(tick)
        yield f'<path class="grid" d="M{left} {y:.1f}H{right:.1f}"/>'
        yield f'<text class="tick" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{said}</text>'
    yield f'<path class="grid" d="M{left} {TOP}V{foot:.1f}"/>'
    axis = canvas.plot.unit + (", logarithmic" if canvas.scale.logarithmic else "")
    middle = (TOP + foot) / 2
    turned = f'transform="translate(13 {middle:.0f}) rotate(-90)" text-anchor="middle"'
    yield f'<text class="tick" {turned}>{text(axis)}</text>'
    for number, version in enumerate(canvas.versions):
        x = left + canvas.step * (number + 0.5)
        place = f"translate({x:.1f} {foot + 18:.1f})" + (" rotate(-38)" if canvas.turned else "")
        anchor = "end" if canvas.turned else "middle"
        bold = ' class="marked"' if version in canvas.plot.marked else ""
        yield f'<text{bold} transform="{place}" text-anchor="{anchor}">{text(version)}</text>'
    if canvas.plot.unit == FLOORS:
        yield from _limits(canvas)


def _limits(canvas: _Canvas) -> Iterator[str]:
    for value, kind in ((1.0, "floor"), (PASS_FACTOR, "limit"), (FAIL_FACTOR, "limit")):
        yield f'<path class="{kind}" d="M{LEFT} {canvas.y(value):.1f}H{canvas.right:.1f}"/>'


def _paths(canvas: _Canvas) -> Iterator[str]:
    """Draw a line through the points of neighbouring versions; where one has no value there is a gap."""
    for line in canvas.plot.series:
        at = {point.version: point.value for point in line.points if point.value is not None}
        moves, drawing = "", False
        for version in canvas.versions:
            if version not in at:
                drawing = False
                continue
            moves += f"{'L' if drawing else 'M'}{canvas.x(line, version):.1f} {canvas.y(at[version]):.1f}"
            drawing = True
        if "L" in moves:
            yield f'<path class="path{" told" if line in canvas.named else ""}" d="{moves}"/>'


def _points(canvas: _Canvas) -> Iterator[str]:
    for line, point, value in canvas.plot.values():
        x, y = canvas.x(line, point.version), canvas.y(value)
        if point.low is not None and point.high is not None:
            yield f'<path class="spread" d="M{x:.1f} {canvas.y(point.low):.1f}V{canvas.y(point.high):.1f}"/>'
        says = f"{line.label} at {point.version}: {point.word or short(value)}"
        says += f" ({point.note})" if point.note else ""
        beyond = (
            "" if math.isfinite(value) else f'<text x="{x + 8:.1f}" y="{y + 4:.1f}">{short(value)}</text>'
        )
        drawn = mark(mark_of(canvas.plot, line, point), x, y)
        yield f"<g><title>{text(says)}</title>{drawn}{beyond}</g>"


def mark(kind: str, x: float, y: float) -> str:
    """Return a point's mark: disc, cross, ring or triangle, so that its colour is not all there is."""
    match kind:
        case "good":
            return f'<circle class="good" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        case "bad":
            return f'<path class="bad" d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"/>'
        case "must":
            return f'<path class="must" d="M{x - 4:.1f} {y + 3:.1f}h8l-4 -7z"/>'
        case _:
            return f'<circle class="other" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'


def _labels(canvas: _Canvas) -> Iterator[str]:
    """Write the named lines' labels at the right, moved apart where they would overlap."""
    ends: list[tuple[float, float, Series]] = []
    for line in canvas.named:
        shown = [(p.version, p.value) for p in line.points if p.value is not None]
        if shown:
            version, value = shown[-1]
            beyond = 0 if math.isfinite(value) else 28
            ends.append((canvas.y(value), canvas.x(line, version) + beyond, line))
    ends.sort(key=lambda end: end[0])
    places = spread_apart([end[0] for end in ends], _SPACE, TOP, canvas.foot)
    for (y, x, line), place in zip(ends, places, strict=True):
        start = canvas.right + 8
        yield f'<path class="leader" d="M{x + 6:.1f} {y:.1f}L{start - 3:.1f} {place:.1f}"/>'
        yield f'<text x="{start:.1f}" y="{place + 4:.1f}">{text(_squeezed(line.label))}</text>'


def _squeezed(label: str, most: int = 28) -> str:
    """Shorten a label in its middle: its start names the finding and its end tells cases apart."""
    return label if len(label) <= most else f"{label[: most // 2 - 1]}…{label[-most // 2 :]}"


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
    if not found:
        return "No values."
    worst = max(found, key=lambda item: (not math.isfinite(item[2]), item[2] if item[2] == item[2] else 0.0))
    least = min(found, key=lambda item: item[2] if math.isfinite(item[2]) else math.inf)
    parts = [
        f"{count(len(plot.series), 'line')} over {count(len(plot.versions), 'version')}: "
        f"{', '.join(plot.versions)}.",
        f"The largest value is {_said(worst, plot.unit)}, the smallest {_said(least, plot.unit)}.",
    ]
    if plot.unit == FLOORS:
        parts.append(f"Right is up to {PASS_FACTOR:g} noise floors, wrong from {FAIL_FACTOR:g} on.")
    return " ".join([*parts, "All values are in the table below."])


def _said(item: tuple[Series, Point, float], unit: str) -> str:
    line, point, value = item
    return f"{short(value)} {unit} ({line.label} at {point.version})"


def render_key(plot: Plot) -> str:
    """Return what the marks of a plot mean, those that occur."""
    errors = plot.unit == FLOORS
    meanings = {
        "good": "PASS", "bad": "FAIL", "other": "neither" if errors else "median, with lowest and highest",
        "must": "a known defect put in: must FAIL",
    }  # fmt: skip
    kinds = {mark_of(plot, line, point) for line, point, _ in plot.values()}
    signs = [
        f'<span class="nowrap"><svg class="plot key" viewBox="0 0 12 12" aria-hidden="true">'
        f"{mark(kind, 6, 6)}</svg> {meaning}</span>"
        for kind, meaning in meanings.items()
        if kind in kinds
    ]
    if errors:
        signs.append(
            f"solid line: the noise floor; dashed: {PASS_FACTOR:g} (right up to here) and {FAIL_FACTOR:g} "
            "(wrong from here on)"
        )
    return f'<p class="small soft">{"; ".join(signs)}</p>' if signs else ""


def render_plot_table(plot: Plot) -> str:
    """Return the plot's data as a table that folds open: a row a line, a column a version."""
    if not plot.versions:
        return ""
    rows = []
    for line in plot.series:
        at = {point.version: point for point in line.points}
        rows.append((text(line.label), *(_datum(at.get(version)) for version in plot.versions)))
    label = f"{plot.title}: data"
    return fold(
        f"Data of this plot as a table ({text(plot.unit)})",
        table(label, ["line", *plot.versions], rows, stacked=False),
    )


def _datum(point: Point | None) -> str:
    if point is None:
        return ""
    if point.value is None:
        return f'<span class="soft">{text(point.note or "no value")}</span>'
    spread = ""
    if point.low is not None and point.high is not None:
        spread = f' <span class="soft">({short(point.low)} to {short(point.high)})</span>'
    word = (
        f"{text(point.word)} · " if point.word and short(point.value) not in point.word else text(point.word)
    )
    number = "" if short(point.value) in point.word else short(point.value)
    return f"{word}{number}{spread}"


def render_figure(plot: Plot) -> str:
    """Return the plot with its title, its key and its data, or nothing where there are no values."""
    drawn = render_plot(plot)
    if not drawn:
        return ""
    frame = region(f"{plot.title}: plot", drawn)
    return (
        f"<figure>\n<figcaption>{text(plot.title)}</figcaption>\n{frame}\n{render_key(plot)}"
        f"{render_plot_table(plot)}\n</figure>"
    )
