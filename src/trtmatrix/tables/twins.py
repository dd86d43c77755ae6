"""A finding's own figure, where cases compare themselves with an equal formulation: lines of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from trtmatrix.judge.calibration import NOT_CALIBRATED
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.judge import measured_in
from trtmatrix.judge.record import RAN
from trtmatrix.judge.words import marked
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.repros import Case, Repro, Twin


@dataclass(frozen=True, kw_only=True)
class TwinRow:
    """A line of a twin's measure: one text a column, empty where nothing is known."""

    label: str
    texts: tuple[str, ...]


def make_twin_rows(
    repro: Repro, rows: Sequence[tuple[Case, Sequence[Entry | None]]], columns: Sequence[Version]
) -> Iterator[TwinRow]:
    """Yield a line for each case that has a measured value, of the rows that are shown.

    What was reported stands in parentheses, at its versions: in the first of the lines, or in one of its own.
    """
    for twin in repro.twins:
        mine = [(case, entries) for case, entries in rows if _fits(case, twin)]
        reported = [twin.reported.get(version.name) for version in columns]
        lines = [(case, [_measured(entry, twin) for entry in entries]) for case, entries in mine]
        lines = [(case, texts) for case, texts in lines if any(texts)]
        if not lines and mine and any(value is not None for value in reported):
            yield TwinRow(label=f"= {twin.label}", texts=tuple(_said(value) for value in reported))
        for number, (case, texts) in enumerate(lines):
            said = [_said(value) if not number else "" for value in reported]
            both = tuple(f"{ours} {theirs}".strip() for ours, theirs in zip(texts, said, strict=True))
            yield TwinRow(label=f"= {twin.label}: {case.id}", texts=both)


def twins_of(entry: Entry) -> Iterator[tuple[Twin, float | None, float | None]]:
    """Yield the twins of a cell, each with the value measured and the one reported of its version."""
    for twin in entry.cell.repro.twins:
        if _fits(entry.cell.case, twin):
            yield twin, _value(entry, twin), twin.reported.get(entry.cell.version.name)


def _fits(case: Case, twin: Twin) -> bool:
    return any(fnmatchcase(case.id, pattern) for pattern in twin.cases)


def _value(entry: Entry, twin: Twin) -> float | None:
    record, cell = entry.record, entry.cell
    if record is None or record.ended != RAN:
        return None
    return measured_in(record, twin.measure, cell.case, cell.repro, NOT_CALIBRATED)


def _measured(entry: Entry | None, twin: Twin) -> str:
    value = _value(entry, twin) if entry else None
    return marked(entry, _six_digits(value)) if entry and value is not None else ""


def _six_digits(value: float) -> str:
    """Write a number as a report has it, to compare with: ``1373.39``, ``0.2232``."""
    return f"{value:.6g}"


def _said(value: float | None) -> str:
    return f"({_six_digits(value)})" if value is not None else ""
