"""Entries as data: JSON for programs, JUnit XML for continuous integration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trtmatrix.common.text import to_json
from trtmatrix.judge.compare import advise
from trtmatrix.judge.controls import count_controls
from trtmatrix.judge.entry import EVIDENCE_MEANINGS, Entry, full_words
from trtmatrix.judge.record import write_number
from trtmatrix.suite.model import Basis, Evidence, Verdict
from trtmatrix.tables.answer import count_all
from trtmatrix.tables.table import (
    describe,
    expected_words,
    find_contradicted,
    make_tables,
    record_file,
    twins_of,
    why_not_run,
)

SCHEMA = 1
"""The number of the JSON's shape."""


def render_json(entries: Sequence[Entry], *, generated: str) -> str:
    """Return strict JSON: ``generated`` as handed in, counts in words, and every cell once.

    A figure's ``value`` is a number, or one of the strings NaN, Infinity and -Infinity; ``file`` of
    a record is its path inside the results folder. What is not known is null.
    """
    controls = count_controls(entries)
    return to_json(
        {
            "schema": SCHEMA, "generated": generated, "summary": count_all(entries),
            "controls": {**vars(controls), "wrong": [str(entry.cell.id) for entry in controls.wrong]},
            "contradicted": list(find_contradicted(entries)),
            "cells": [_cell(entry) for entry in entries],
        }
    )  # fmt: skip


def _cell(entry: Entry) -> dict[str, Any]:
    cell, outcome, excluded, said = entry.cell, entry.outcome, entry.excluded, entry.expectation
    figure, record = cell.repro.figure, entry.record
    return {
        **vars(cell.id),
        "id": str(cell.id), "product": cell.version.product,
        "control": cell.case.control, "companion": cell.companion,
        "evidence": entry.evidence, "executed": entry.executed,
        **{name: getattr(outcome, name, None) for name in ("verdict", "cause", "reason")},
        "builds": outcome.builds if outcome else 0, "failed": outcome.failed if outcome else 0,
        "fit": outcome.fit or None if outcome else None,
        "twins": {
            twin.measure: {"value": _number(value), "reported": _number(reported)}
            for twin, value, reported in twins_of(entry)
        },
        "figure": {**vars(figure), "text": entry.figure, "value": _number(entry.value)}
        if entry.figure else None,
        "expected": {
            "verdict": entry.expected, "basis": said.basis if said else Basis.ASSUMED,
            **{name: getattr(said, name, None) or None for name in ("source", "on", "note")},
        },
        "surprise": entry.surprise,
        "advice": advise(entry) or None, "overruled": entry.overruled or None,
        "excluded": {"why": excluded.why, "detail": excluded.detail} if excluded else None,
        "record": {
            "run": record.run, "started": record.started, "file": record_file(record),
            **{name: record.gpu.get(name) for name in ("driver", "variant", "host")},
        } if record else None,
    }  # fmt: skip


def _number(value: float | None) -> float | str | None:
    return None if value is None else write_number(value)


def render_junit(entries: Sequence[Entry], *, recorded: bool = False) -> str:
    """Return JUnit XML: a suite a table, a test case a cell.

    As the exit code has it: a surprise is a failure, trouble with the machinery an error. What has no verdict
    or was not measured here is skipped, with the reason. ``recorded``: records from elsewhere count too.
    """
    from trtmatrix.tables.page import templates

    suites = []
    for table in make_tables(entries):
        cases = [
            (e.cell.repro.id, str(e.cell.id), describe(e), _result(e, recorded)) for e in table.entries()
        ]
        suites.append((table.title, cases))
    return templates().get_template("junit.xml").render(suites=suites)


def _result(entry: Entry, recorded: bool) -> tuple[str, str, str] | None:
    """Return what a test case ended in (element, message, type), or nothing where it is as expected."""
    outcome = entry.outcome
    counts = entry.evidence.is_record if recorded else entry.evidence is Evidence.MEASURED
    if not counts or outcome is None:
        known = f"{EVIDENCE_MEANINGS[entry.evidence]}: {full_words(outcome)}; " if outcome else ""
        return "skipped", f"{known}{why_not_run(entry)}", ""
    why = f"{full_words(outcome)}: {outcome.reason}".removesuffix(": ")
    if entry.surprise:
        return "failure", f"expected {expected_words(entry)}, seen {why} → {advise(entry)}", "surprise"
    if outcome.cause is not None and outcome.cause.is_machinery:
        return "error", why, outcome.cause.value
    return ("skipped", why, "") if outcome.verdict in {Verdict.NO_VERDICT, Verdict.INVALID} else None
