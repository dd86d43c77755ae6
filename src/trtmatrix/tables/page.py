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
from itertools import accumulate, dropwhile, product
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
from trtmatrix.tables.answer import count_all, make_answer, short_names
from trtmatrix.tables.table import Row, Table, describe, find_remarks, make_tables, shorten, why_not_run


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
LEFT, RIGHT, TOP, FOOT = 62, 658, 16, 264
LEAST, MOST = 0.01, 1000.0
"""Errors beyond so many noise floors stand at the foot or at the top: how far beyond is of no matter."""
_NAMED, _SPACE = 14, 13.0
"""So many lines at most are written beside, the worst, and so far apart."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A line's value at a version; ``word`` is what its cell shows."""

    value: float
    word: str = ""

    @property
    def kind(self) -> str:
        """The kind of its mark: ``good``, ``bad`` or ``other``."""
        word = self.word.lstrip("[(")
        return "good" if word.startswith("PASS") else "bad" if word.startswith("FAIL") else "other"


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Lines by case, each of points by version; ``name`` is the id of its parts in the page.

    ``unit``: "noise floors" (logarithmic, the floor at 1) or "ms" (from zero on). ``versions``: those at
    which any line has a point, in their order. ``must_fail``: lines of which a known defect was put in.
    ``table``, ``finding``: which part of a matrix it is of.
    """

    name: str
    title: str
    unit: str
    versions: Sequence[str]
    lines: Mapping[str, Mapping[str, Point]]
    must_fail: frozenset[str] = frozenset()
    table: int = 0
    finding: str = ""


def make_scale(values: Iterable[float], *, errors: bool) -> tuple[Callable[[float], float], list[float]]:
    """Return how far up a value stands (0 to 1), and the values to be written beside the scale.

    That of errors is logarithmic, has room for the noise floor and the limits, and ends at LEAST and MOST;
    other values stand from zero on. NaN and infinity, the worst there is, stand at the top.
    """
    known = [value for value in values if math.isfinite(value)]
    if errors:
        known = [min(max(value, LEAST), MOST) for value in (*known, 1.0, FAIL_FACTOR)]
        powers = range(math.floor(math.log10(min(known))), math.ceil(math.log10(max(known))) + 1)
        ticks = [10.0**power for power in powers]
    else:
        high = max([*known, 1e-9])
        step = 10.0 ** math.floor(math.log10(high))
        step = next(step * part for part in (0.2, 0.5, 1.0, 2.0) if high / (step * part) <= 6)
        ticks = [step * number for number in range(math.ceil(high / step - 1e-9) + 1)]

    def share(value: float) -> float:
        if not ticks[0] < value < ticks[-1]:
            return float(not value <= ticks[0])
        return (
            math.log10(value / ticks[0]) / math.log10(ticks[-1] / ticks[0]) if errors else value / ticks[-1]
        )

    return share, ticks


def render_figure(plot: Plot) -> str:
    """Return the plot with its title, its key and its data.

    A point's shape says its verdict: a disc passes, a cross fails, a ring is neither; a triangle has a known
    defect put in.
    """
    errors, last = plot.unit == FLOORS, max(len(plot.lines) - 1, 1)
    values = (point.value for line in plot.lines.values() for point in line.values())
    share, ticks = make_scale(values, errors=errors)
    step = (RIGHT - LEFT) / len(plot.versions)
    columns = {name: round(LEFT + step * (n + 0.5), 1) for n, name in enumerate(plot.versions)}

    def up(value: float) -> float:
        return round(TOP + (FOOT - TOP) * (1 - share(value)), 1)

    paths, dots = dict[str, list[tuple[float, float]]](), []
    for number, (label, line) in enumerate(plot.lines.items()):
        aside = step * (number / last - 0.5) * min(0.62, 0.06 * last)  # lines stand side by side
        paths[label] = [(round(columns[name] + aside, 1), up(point.value)) for name, point in line.items()]
        dots += [
            {
                "x": x, "y": y, "kind": "must" if label in plot.must_fail else point.kind,
                "words": f"{label} at {version}: {point.word or short(point.value)}",
                "beyond": "" if math.isfinite(point.value) else short(point.value),
            }
            for (x, y), (version, point) in zip(paths[label], line.items(), strict=True)
        ]  # fmt: skip
    worst = {label: max(nan_last(p.value) for p in line.values()) for label, line in plot.lines.items()}
    named = sorted(worst, key=lambda label: worst[label], reverse=True)[:_NAMED]
    labels = sorted((y, x, shorten(label, 28)) for label in named for x, y in paths[label][-1:])
    return templates().get_template("plot.html").render(
        plot=plot, width=WIDTH, height=HEIGHT, left=LEFT, right=RIGHT, top=TOP, foot=FOOT, dots=dots,
        ticks=[(up(tick), f"{tick:g}") for tick in ticks], paths=paths, named=named, columns=columns,
        axis=plot.unit + (", logarithmic" if errors else ""),
        limits=[(up(1.0), "floor"), (up(PASS_FACTOR), "limit"), (up(FAIL_FACTOR), "limit")] if errors else [],
        labels=zip(labels, spread_apart([y for y, _, _ in labels], _SPACE, FOOT), strict=True),
        short=short, counted=counted, pass_factor=PASS_FACTOR, fail_factor=FAIL_FACTOR,
    )  # fmt: skip


def spread_apart(places: Sequence[float], space: float, limit: float) -> list[float]:
    """Move ascending places apart by ``space``, no further than needed, and keep them above the limit."""
    found = list(accumulate(places, lambda before, place: max(place, before + space)))
    return [min(place, limit - space * (len(found) - 1 - n)) for n, place in enumerate(found)]


def make_plots(entries: Sequence[Entry], calibration: Calibration) -> tuple[Plot, ...]:
    """Return errors against the noise floor and latencies, by finding, of what has values at two versions."""
    found = []
    for number, table in enumerate(make_tables(entries)):
        where, names = table.title.partition(" · ")[0], [version.name for version in table.columns]
        for section, unit in product(table.sections, (FLOORS, "ms")):
            finding, read = section.repro.id, partial(floors_of, calibration=calibration)
            kind, title = ("error", "error against the noise floor") if unit == FLOORS else ("latency",) * 2
            broken = frozenset(r.case.id for r in section.rows if r.case.control is Control.NEGATIVE)
            lines = dict[str, dict[str, Point]]()
            for row in section.rows:
                for name, entry in zip(names, row.entries, strict=True):
                    value = (read if unit == FLOORS else latency_of)(entry) if entry else None
                    if value is not None:
                        lines.setdefault(row.case.id, {})[name] = Point(value=value, word=cell_text(entry))
            versions = [name for name in names if any(name in line for line in lines.values())]
            if len(versions) > 1:
                found.append(Plot(
                    name=f"t{number}-{finding}-{kind}", title=f"{finding}: {title} ({where})", unit=unit,
                    versions=versions, lines=lines, must_fail=broken, table=number, finding=finding,
                ))  # fmt: skip
    return tuple(found)


def floors_of(entry: Entry, calibration: Calibration) -> float | None:
    """Return the error of the worst output of the worst engine of an entry's records, in noise floors."""
    ran = (record for record in entry.records if record.ended == RAN)
    found = (measured_in(record, FLOORS_MEASURE, entry.cell, calibration) for record in ran)
    return max((value for value in found if value is not None), key=nan_last, default=None)


def latency_of(entry: Entry) -> float | None:
    """Return the median latency of the engines of an entry's records, in milliseconds.

    It is what the backend measured over several runs, else what the case measured by itself; a single run is
    no latency, nor is what was disturbed.
    """
    found = []
    for record in (record for record in entry.records if not record.is_disturbed):
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
    parts = [(n, controls, _part(t, controls)) for n, t in enumerate(tables) for controls in (False, True)]
    body = templates().get_template("report.html").render(
        title=TITLE, generated=generated, again=again, answer=make_answer(entries), tables=tables,
        plots=[(plot, render_figure(plot)) for plot in plots],
        parts=[part for part in parts if part[2].sections],
        counts=count_all(entries), remarks=list(find_remarks(entries)),
        legend=legend(entry for table in tables for entry in table.shown()),
        versions=[(table, list(_versions(table))) for table in tables],
        coverage=[(table.title, Counter(entry.evidence for entry in table.entries())) for table in tables],
        precisions=sorted({e.cell.case.precision for e in entries} - {""}), evidence=list(Evidence),
        verdicts=[verdict.value for verdict in Verdict], cell_text=cell_text, has_evidence=has_evidence,
        describe=_told, is_safe=is_safe, classes=_classes, traits=_traits, short_names=short_names,
    )  # fmt: skip
    style = make_style(read_template("matrix.css"))
    return render_page(TITLE, [body], style=style, script=read_template("filter.js"))


def _part(table: Table, controls: bool) -> Table:
    """Return a table of its findings alone, or of its controls, which are folded away."""
    sections = []
    for section in table.sections:
        rows, folded = (
            tuple(row for row in some if bool(row.case.control) is controls)
            for some in (section.rows, section.folded)
        )
        twins = () if controls else section.twins
        sections.append(replace(section, rows=rows, folded=folded, twins=twins))
    return replace(table, sections=tuple(s for s in sections if s.rows or s.folded))


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
    kinds = {"PASS": "pass", "FAIL": "fail", "BUILT": "none", Cause.UNSUPPORTED_BY_VERSION.value: "none"}
    kind = kinds.get(entry.word, "other")
    return f"{kind} {entry.evidence.value}{' surprise' if entry.surprise else ''}"
