"""Plots over the whole matrix: for each GPU and finding a line a case, of its error and of its latency."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.judge import subject_of
from trtmatrix.judge.numbers import nan_last, read_floors
from trtmatrix.judge.record import RAN
from trtmatrix.judge.words import cell_text
from trtmatrix.suite.model import Control
from trtmatrix.tables.plots import FLOORS, Plot, Point, Series
from trtmatrix.tables.table import Section, Table, make_tables

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
