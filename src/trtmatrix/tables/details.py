"""Everything there is to say about one cell."""

from __future__ import annotations

from collections.abc import Iterator

from trtmatrix.common.short import short
from trtmatrix.judge.advice import advise
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.record import Record
from trtmatrix.judge.words import EVIDENCE_MEANINGS, full_words
from trtmatrix.suite.outcome import Evidence
from trtmatrix.tables.remarks import expected_words
from trtmatrix.tables.summary import why_not_run
from trtmatrix.tables.table import one_line
from trtmatrix.tables.twins import twins_of


def describe(entry: Entry) -> tuple[tuple[str, str], ...]:
    """Return a cell's facts as names and values, those that it has."""
    outcome, expectation, record = entry.outcome, entry.expectation, entry.record
    label = entry.cell.repro.figure.label
    facts = (
        ("cell", str(entry.cell.id)),
        ("verdict", full_words(outcome) if outcome else ""),
        ("reason", one_line(outcome.reason, 1000) if outcome else ""),
        ("figure", f"{label} = {entry.figure}" if entry.figure else ""),
        ("precision", f"{outcome.fit}, as the outputs show" if outcome and outcome.fit else ""),
        ("twin", "; ".join(_twins(entry))),
        ("control", "not selected: it controls others" if entry.cell.companion else ""),
        ("evidence", EVIDENCE_MEANINGS[entry.evidence]),
        ("board", _board(record) if record else ""),
        ("expected", expected_words(entry)),
        ("surprise", f"the verdict is not the expected one: {advise(entry)}" if entry.surprise else ""),
        ("source", expectation.source if expectation else ""),
        ("note", one_line(expectation.note) if expectation else ""),
        ("not run", why_not_run(entry) if entry.evidence is not Evidence.MEASURED else ""),
        ("record", record_file(record) if record else ""),
    )
    return tuple((name, value) for name, value in facts if value)


def _board(record: Record) -> str:
    """Return what of its board a record is compared by, and which host it was on."""
    gpu = record.gpu
    parts = (("", gpu.get("variant")), ("driver ", gpu.get("driver")), ("host ", gpu.get("host")))
    return one_line(", ".join(f"{word}{value}" for word, value in parts if value))


def _twins(entry: Entry) -> Iterator[str]:
    for twin, value, reported in twins_of(entry):
        said = f"reported {short(reported)}: {one_line(twin.source)}" if reported is not None else ""
        if value is not None:
            yield f"{twin.label} = {short(value)}" + (f" ({said})" if said else "")
        elif said:
            yield f"{twin.label}: {said}"


def record_file(record: Record) -> str:
    """Return a record's path inside the results folder: a page must not name a host's paths."""
    cell = record.cell
    tail = f"{cell.gpu}/{cell.version}/{cell.repro}/{cell.case}/{record.run}.json"
    return f"local/{tail}" if record.file.endswith(f"/local/{tail}") else tail
