"""Plots over the whole matrix: for each GPU and finding a line a case, of its error and of its latency."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.judge import subject_of
from trtmatrix.judge.numbers import nan_last, read_floors
from trtmatrix.judge.record import RAN, Record
from trtmatrix.judge.words import cell_text
from trtmatrix.suite.model import Control
from trtmatrix.tables.plots import FLOORS, Plot, Point, Series
from trtmatrix.tables.table import Section, Table, make_tables

Values = Callable[[Entry], list[float]]
"""What gives one value an engine of an entry."""


@dataclass(frozen=True, kw_only=True)
class MatrixPlot:
    """A plot of one finding on one GPU; ``table`` is the number of its table, ``finding`` the repro's id."""

    table: int
    finding: str
    plot: Plot


def make_plots(entries: Sequence[Entry], calibration: Calibration) -> tuple[MatrixPlot, ...]:
    """Return what there are values for, finding by finding: errors against the noise floor, latencies."""
    return tuple(
        MatrixPlot(table=number, finding=section.repro.id, plot=plot)
        for number, table in enumerate(make_tables(entries))
        for section in table.sections
        for plot in _plots(table, section, f"t{number}-{section.repro.id}", calibration)
    )


def _plots(table: Table, section: Section, name: str, calibration: Calibration) -> Iterator[Plot]:
    where = table.title.partition(" · ")[0]
    for kind, title, unit, values in (
        ("error", "error against the noise floor", FLOORS, lambda e: floors_of(e, calibration)),
        ("latency", "latency", "ms", latencies_of),
    ):
        series = tuple(_series(table, section, unit, values))
        plot = Plot(
            name=f"{name}-{kind}", title=f"{section.repro.id}: {title} ({where})", unit=unit, series=series,
            must_fail=frozenset(r.case.id for r in section.rows if r.case.control is Control.NEGATIVE),
        )  # fmt: skip
        if plot.versions:
            yield plot


def _series(table: Table, section: Section, unit: str, values: Values) -> Iterator[Series]:
    for row in section.rows:
        points = tuple(
            _point(version.name, entry, values)
            for version, entry in zip(table.columns, row.entries, strict=True)
        )
        if any(point.value is not None for point in points):
            yield Series(label=row.case.id, unit=unit, points=points)


def _point(version: str, entry: Entry | None, values: Values) -> Point:
    """Return a point: errors by the worst engine, latencies by the middle one."""
    found = values(entry) if entry is not None else []
    if entry is None or not found:
        return Point(version=version, value=None)
    finite = [value for value in found if math.isfinite(value)]
    several = len(finite) > 1
    return Point(
        version=version, word=cell_text(entry),
        value=statistics.median(found) if values is latencies_of else max(found, key=nan_last),
        low=min(finite) if several else None, high=max(finite) if several else None,
    )  # fmt: skip


def floors_of(entry: Entry, calibration: Calibration) -> list[float]:
    """Return the error of the worst output of each engine that an entry rests on, in noise floors."""
    found = []
    for record in _ran(entry):
        subject = subject_of(record, entry.cell.case, entry.cell.repro, calibration)
        for build in record.builds:
            floors = read_floors(build, subject).values()
            found += [max(floors, key=nan_last)] if floors else []
    return found


def latencies_of(entry: Entry) -> list[float]:
    """Return the latency of each engine that an entry rests on, in milliseconds.

    It is what the backend measured over several runs, else what the case measured by itself; a single run is
    no latency.
    """
    return [value for record in _ran(entry) for value in _latencies(record)]


def _ran(entry: Entry) -> Iterator[Record]:
    return (record for record in entry.records if record.ended == RAN)


def _latencies(record: Record) -> Iterator[float]:
    data = record.data
    for build, measured in zip(data.get("builds") or [data], record.builds, strict=False):
        engine = build.get("engine")
        latency = engine.get("latency") if isinstance(engine, Mapping) else None
        value = latency.get("median_ms") if isinstance(latency, Mapping) else measured.scalars.get("ms")
        if isinstance(value, (int, float)) and math.isfinite(value) and value > 0:
            yield float(value)
