"""When a verdict is believed: how many engines it rests on, and whether it must be seen again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trtmatrix.core.entry import expected_verdict, find_expectation
from trtmatrix.core.expand import Cell
from trtmatrix.core.model import Cause, Control, Outcome, Product, Verdict
from trtmatrix.core.record import BUILT, RAN, Record

CONFIRMING_BUILDS = 3
"""Engines that are built in a fresh process before a failure is believed."""


def count_engines(records: Iterable[Record]) -> int:
    """Return how many engines records hold; a process that builds its own counts as one."""
    return sum(record.engines for record in records)


def needs_confirmation(cell: Cell, outcome: Outcome, records: Sequence[Record]) -> bool:
    """Whether a verdict must be seen in a fresh process first; ``records``: all that it rests on.

    Of TensorRT: a FAIL, unless it is a negative control's, and a PASS where none was expected. Not again
    where it was seen again, or where the records hold as many engines as that would give.
    """
    if cell.version.product is not Product.TENSORRT:
        return False
    match outcome.verdict:
        case Verdict.FAIL:
            doubtful = cell.case.control is not Control.NEGATIVE
        case Verdict.PASS:
            doubtful = expected_verdict(cell, find_expectation(cell)) is not Verdict.PASS
        case _:
            return False
    seen_again = any(record.confirms and not _may_pass(record) for record in records)
    return doubtful and not seen_again and count_engines(records) <= CONFIRMING_BUILDS


def _may_pass(record: Record) -> bool:
    return record.ended not in {RAN, BUILT} and Cause(record.ended).may_pass


def has_engines(records: Sequence[Record], wanted: int) -> bool:
    """Whether so many engines were measured; how the newest ended otherwise, more would not tell."""
    return records[0].ended != RAN or count_engines(records) >= wanted
