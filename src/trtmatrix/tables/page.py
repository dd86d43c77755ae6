"""Pages of HTML: their shell and policy, plots as inline SVG, and the whole matrix as one page.

:func:`templates` is what JUnit's XML is rendered from, too.
"""

from __future__ import annotations

import math
import statistics
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from itertools import accumulate, dropwhile
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trtmatrix.common.text import counted, one_line, short
from trtmatrix.judge.entry import Entry, cell_text, has_evidence, legend
from trtmatrix.judge.factors import FAIL_FACTOR, PASS_FACTOR
from trtmatrix.judge.judge import FLOORS as FLOORS_MEASURE
from trtmatrix.judge.judge import measured_in, nan_last
from trtmatrix.judge.noise import Calibration
from trtmatrix.judge.record import RAN
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import Cause, Control, Evidence, Verdict
from trtmatrix.tables.answer import make_answer, short_names
from trtmatrix.tables.remarks import count_products, describe, find_remarks, headline, why_not_run
from trtmatrix.tables.table import Row, Section, Table, make_tables, shorten


@cache
def templates() -> Environment:
    """Return the environment of the templates: everything is escaped, and a wrong name is an error."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True,
    )  # fmt: skip
    found.filters["zip"] = zip
    found.filters["line"] = lambda text: one_line(text, 4000)
    return found


def read_template(name: str) -> str:
    """Return a file of the templates as it is, such as a script."""
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


GLYPHS = {"good": "✓", "bad": "✕", "warn": "!", "unsure": "?", "": "·"}
"""What stands beside a colour, so that colour is never all there is."""


def is_safe(url: str) -> bool:
    """Whether an address may become a link: https, and nothing that could end the attribute."""
    return url.startswith("https://") and url.isprintable() and not any(c.isspace() for c in url)


COPY = read_template("copy.js")
"""The script that puts a button beside each command."""


def make_style(*more: str) -> str:
    """Return the style of a page, with what only that page needs."""
    style, paper = (templates().get_template(name).render() for name in ("style.css", "print.css"))
    return "\n".join((style, *more, paper))


def render_page(title: str, body: Iterable[str], *, style: str, script: str = "") -> str:
    """Return the page: ``body`` is markup, all else text.

    Its policy forbids to load anything and to run anything but the style and script that are in it; each is
    named by its SHA-256. Source: https://www.w3.org/TR/CSP3/#external-hash.
    """
    policy = "default-src 'none'; "
    for kind, content in (("style", style), ("script", script)):
        digest = b64encode(sha256(content.encode()).digest()).decode()
        policy += f"{kind}-src 'sha256-{digest}'; " if content else ""
    return templates().get_template("page.html").render(
        title=title, body="\n".join(body), policy=f"{policy}base-uri 'none'; form-action 'none'", style=style,
        script=script,
    )  # fmt: skip


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


TITLE = "TensorRT version matrix"


def render_html(
    entries: Sequence[Entry], plots: Sequence[Plot] = (), *, generated: str, again: str = ""
) -> str:
    """Return the page; ``generated`` is the time to show, ``again`` the command that makes it."""
    tables = make_tables(entries)
    values = {
        "title": TITLE, "generated": generated, "again": again, "answer": make_answer(entries),
        "tables": tables, "plots": [(plot, render_figure(plot)) for plot in plots],
        "parts": [part for number, table in enumerate(tables) for part in _parts(table, number)],
        "counts": [headline(counts) for counts in count_products(entries)],
        "remarks": list(find_remarks(entries)),
        "legend": legend(entry for table in tables for entry in table.shown()),
        "versions": [(table, list(_versions(table))) for table in tables],
        "coverage": [(table.title, Counter(entry.evidence for entry in table.entries())) for table in tables],
        "precisions": sorted({e.cell.case.precision for e in entries} - {""}),
        "evidence": list(Evidence), "verdicts": [verdict.value for verdict in Verdict],
    }  # fmt: skip
    functions = {
        "cell_text": cell_text, "has_evidence": has_evidence, "describe": _told,
        "is_safe": is_safe, "classes": _classes, "traits": _traits, "short_names": short_names,
    }  # fmt: skip
    body = templates().get_template("report.html").render(**values, **functions)
    style = make_style(read_template("matrix.css"))
    return render_page(TITLE, [body], style=style, script=read_template("filter.js"))


def _parts(table: Table, number: int) -> Iterator[tuple[int, bool, Table]]:
    """Yield a table's findings, then its controls, which are folded away; with its number."""
    for controls in (False, True):
        sections = []
        for section in table.sections:
            rows, folded = (
                tuple(row for row in some if bool(row.case.control) is controls)
                for some in (section.rows, section.folded)
            )
            if rows or folded:
                twins = () if controls else section.twins
                sections.append(replace(section, rows=rows, folded=folded, twins=twins))
        if sections:
            yield number, controls, replace(table, sections=tuple(sections))


def _told(entry: Entry) -> tuple[tuple[str, str], ...]:
    """Return what unfolds in a cell; of thousands of cells, without what goes without saying.

    A record is named by its file: its folder is the cell's.
    """
    facts = {**dict(describe(entry)), "record": f"{entry.record.run}.json" if entry.record else ""}
    if entry.expectation is None and not entry.surprise and entry.cell.case.control is None:
        facts["expected"] = ""
    if entry.verdict is Verdict.BUILT and not entry.surprise:
        facts = {name: facts.get(name, "") for name in ("reason", "evidence", "not run", "record")}
    return tuple((name, value) for name, value in facts.items() if value)


def _traits(row: Row) -> str:
    """Return what a case can be filtered by: that it was measured, that it went wrong after it was right."""
    known = [entry for entry in row.entries if entry is not None and entry.outcome]
    after_right = dropwhile(lambda entry: entry.verdict is not Verdict.PASS, known)
    went_wrong = any(entry.verdict in {Verdict.FAIL, Verdict.FLAKY} for entry in after_right)
    measured = "measured" if any(entry.evidence.is_record for entry in known) else ""
    return f"{measured} {'regression' if went_wrong and not row.case.control else ''}".strip()


def _versions(found: Table) -> Iterator[tuple[Version, Counter[Evidence], str]]:
    """Yield each version, how many of its cells are known how, and why others are not."""
    for number, version in enumerate(found.columns):
        column = [row.entries[number] for s in found.sections for row in (*s.rows, *s.folded)]
        cells = [entry for entry in column if entry is not None]
        reasons = Counter(why_not_run(entry) for entry in cells if entry.evidence is Evidence.NONE)
        why = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(3))
        yield version, Counter(entry.evidence for entry in cells), why


def _classes(entry: Entry) -> str:
    """Return what a cell looks like; the words in it say the same."""
    if entry.outcome is None:
        return "none"
    kinds = {Verdict.PASS: "pass", Verdict.FAIL: "fail", Verdict.BUILT: "none"}
    silent = entry.outcome.cause is Cause.UNSUPPORTED_BY_VERSION
    kind = "none" if silent else kinds.get(entry.outcome.verdict, "other")
    return f"{kind} {entry.evidence.value}{' surprise' if entry.surprise else ''}"
