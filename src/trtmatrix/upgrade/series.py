"""Error and latency over all versions of the product, of the case that speaks for each finding. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from trtmatrix.judge.entry import Entry
from trtmatrix.judge.words import has_evidence
from trtmatrix.suite.matrix import Version
from trtmatrix.tables.plots import Point, Series
from trtmatrix.upgrade.performance import engine_values
from trtmatrix.upgrade.report import FindingLine
from trtmatrix.upgrade.sides import Entries


def make_errors(
    findings: Sequence[FindingLine], entries: Entries, versions: Sequence[Version]
) -> tuple[Series, ...]:
    """Return each finding's error in noise floors, where any version has a number."""
    return _series(findings, entries, versions, "noise floors")


def make_latencies(
    findings: Sequence[FindingLine], entries: Entries, versions: Sequence[Version]
) -> tuple[Series, ...]:
    """Return each finding's latency in milliseconds, where any version has one."""
    return _series(findings, entries, versions, "ms")


def _series(
    findings: Sequence[FindingLine], entries: Entries, versions: Sequence[Version], unit: str
) -> tuple[Series, ...]:
    ordered = sorted(versions, key=lambda version: version.release)
    made = (_one(finding, entries, ordered, unit) for finding in findings)
    return tuple(series for series in made if any(point.value is not None for point in series.points))


def _one(finding: FindingLine, entries: Entries, versions: Sequence[Version], unit: str) -> Series:
    case = _speaker(finding)
    points = [_point(finding.repro, case, entries, version.name, unit) for version in versions]
    return Series(label=f"{finding.repro}/{case}", unit=unit, points=tuple(points))


def _speaker(finding: FindingLine) -> str:
    """Return the case that weighs most; among equals one that has numbers at both versions."""
    first = finding.cases[0]
    equal = [c for c in finding.cases if (c.weight, c.change) == (first.weight, first.change)]
    counts = [(c.before.floors is not None) + (c.after.floors is not None) for c in equal]
    return equal[counts.index(max(counts))].case


def _point(repro: str, case: str, entries: Entries, version: str, unit: str) -> Point:
    entry = entries.at(repro, case, version)
    if entry is None or not has_evidence(entry):
        return Point(version=version, value=None, note="no evidence")
    side = entries.side(repro, case, version)
    values = latencies(entry) if unit == "ms" else [] if side.floors is None else [side.floors]
    if not values:
        return Point(version=version, value=None, word=side.word, note=side.reason)
    return Point(
        version=version, value=statistics.median(values), low=min(values), high=max(values), word=side.word,
        note=side.reason,
    )  # fmt: skip


def latencies(entry: Entry) -> list[float]:
    """Return the latencies of an entry's engines in milliseconds."""
    return engine_values(entry.records, "latency")
