"""When a verdict is believed: how many engines must be built alone before it is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.entry import expected_verdict, find_expectation
from trtmatrix.judge.judge import NOT_CALIBRATED, judge, other_shapes
from trtmatrix.judge.record import BUILT, RAN, Record
from trtmatrix.judge.words import full_words
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Cause, Control, Product, Verdict
from trtmatrix.suite.outcome import Outcome

CONFIRMING_BUILDS = 3
"""Engines that are built in a fresh process before a failure is believed."""

DECIDING_BUILDS = 8
"""Engines that are built alone once more where those before contradict what a shared process said.

With three alone, a fault of one build in four would be missed in 42% of cases (0.75³), with eleven in 4%.
"""

FROM_THE_PROCESS = frozenset(
    {
        Cause.OUT_OF_GPU_MEMORY,
        Cause.OUT_OF_HOST_MEMORY,
        Cause.TIME_OUT,
        Cause.BUILD_FAILED,
        Cause.CRASHED,
        Cause.PROBE_FAILED,
    }
)
"""Why a cell has no verdict, where what ran in its process before may have done it."""


def count_engines(records: Iterable[Record]) -> int:
    """Return how many engines records hold; a process that builds its own counts as one."""
    return sum(record.engines for record in records)


def is_shared(record: Record) -> bool:
    """Whether other cells had run in a record's process before it; older records were made alone."""
    position = record.worker.get("position")
    return isinstance(position, int) and position > 0


def part_set_aside(
    cell: Cell, records: Sequence[Record], calibration: Calibration = NOT_CALIBRATED
) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """Part comparable records, the newest first, into those that count and those that are set aside.

    What a shared process said is set aside once it was tried again alone: the run that was confirmed, and
    older ones that were doubtful and never confirmed (a run that was interrupted leaves such).
    """
    alone = [i for i, r in enumerate(records) if r.confirms and not is_shared(r) and not _is_machinery(r)]
    if not alone:
        return tuple(records), ()
    tried = {records[i].confirms for i in alone}

    def is_aside(i: int, record: Record) -> bool:
        if not is_shared(record) or record.run in tried:
            return is_shared(record)
        return i > alone[0] and _is_doubtful(cell, _judge([record], cell, calibration))

    aside = {record.run for i, record in enumerate(records) if is_aside(i, record)}
    counted = tuple(record for record in records if record.run not in aside)
    return counted, tuple(record for record in records if record.run in aside)


def engines_wanted(
    cell: Cell, outcome: Outcome, records: Sequence[Record], calibration: Calibration = NOT_CALIBRATED
) -> int:
    """Return how many engines must be built alone in a fresh process before a verdict is believed; often 0.

    ``records``: all comparable ones of the cell, the newest first; ``outcome``: what they say together. Where
    some are set aside, the others are judged here.
    """
    counted, aside = part_set_aside(cell, records, calibration)
    if aside:
        outcome = _judge(counted, cell, calibration)
    newest, on_tensorrt = counted[0], cell.version.product is Product.TENSORRT
    if is_shared(newest):
        if not _is_doubtful(cell, outcome):
            return 0
        return CONFIRMING_BUILDS if on_tensorrt and newest.ended == RAN else 1
    if not on_tensorrt:
        return 0
    if aside and _is_first_try(newest, records, aside):
        said = (_judge([record], cell, calibration) for record in aside)
        if any(_contradicts(before, outcome) for before in said):
            return DECIDING_BUILDS
    return CONFIRMING_BUILDS if _must_be_seen_again(cell, outcome, counted) else 0


def overruled(
    cell: Cell,
    outcome: Outcome,
    counted: Sequence[Record],
    aside: Sequence[Record],
    calibration: Calibration = NOT_CALIBRATED,
) -> str:
    """Say in a sentence what the newest that was set aside said, where something else is believed."""
    said = (_judge([record], cell, calibration) for record in aside)
    other = next((o for o in said if (o.verdict, o.cause) != (outcome.verdict, outcome.cause)), None)
    if other is None:
        return ""
    engines = count_engines(record for record in counted if not is_shared(record))
    alone = "1 engine built alone says" if engines == 1 else f"{engines} engines built alone say"
    if not outcome.builds:
        alone = "alone it says"
    return f"a run in a shared process said {_words(other)}; {alone} {_words(outcome)}"


def _words(outcome: Outcome) -> str:
    return full_words(replace(outcome, builds=0))


def _judge(records: Sequence[Record], cell: Cell, calibration: Calibration) -> Outcome:
    return judge(records, cell.case, cell.version, cell.repro, calibration)


def _is_doubtful(cell: Cell, outcome: Outcome) -> bool:
    """Whether what ran in the process before may be why a cell came out so."""
    expected = expected_verdict(cell, find_expectation(cell))
    match outcome.verdict:
        case Verdict.PASS | Verdict.INVALID:
            return outcome.verdict is not expected
        case Verdict.FAIL:
            return cell.case.control is not Control.NEGATIVE or expected is not Verdict.FAIL
        case Verdict.FLAKY:
            return True
        case Verdict.BUILT:
            return False
        case Verdict.NO_VERDICT:
            return outcome.cause in FROM_THE_PROCESS


def _must_be_seen_again(cell: Cell, outcome: Outcome, records: Sequence[Record]) -> bool:
    """Whether what was made alone is luck, maybe: a FAIL, or a PASS where none was expected.

    Not where it was seen again, or where the records hold as many engines as that would give.
    """
    match outcome.verdict:
        case Verdict.FAIL:
            doubtful = cell.case.control is not Control.NEGATIVE
        case Verdict.PASS:
            doubtful = expected_verdict(cell, find_expectation(cell)) is not Verdict.PASS
        case _:
            return False
    seen_again = any(record.confirms and not _may_pass(record, cell) for record in records)
    return doubtful and not seen_again and count_engines(records) <= CONFIRMING_BUILDS


def _is_first_try(newest: Record, records: Sequence[Record], aside: Sequence[Record]) -> bool:
    """Whether the newest ran and is the only one made alone since what is set aside, of few in all."""
    doubted = {record.run for record in aside}
    since = list(takewhile(lambda record: record.run not in doubted, records))
    tries = [record for record in since if record.confirms and not _is_machinery(record)]
    alone = (record for record in records if not is_shared(record))
    few = count_engines(alone) < CONFIRMING_BUILDS + DECIDING_BUILDS
    return few and tries == [newest] and newest.ended == RAN


def _contradicts(before: Outcome, after: Outcome) -> bool:
    """Whether what was said before is not seen after; FLAKY shows both PASS and FAIL, FAIL that some fail."""
    seen = {
        Verdict.FLAKY: {Verdict.PASS, Verdict.FAIL, Verdict.FLAKY},
        Verdict.FAIL: {Verdict.FAIL, Verdict.FLAKY},
    }
    return before.verdict not in seen.get(after.verdict, {after.verdict})


def _is_machinery(record: Record) -> bool:
    if record.ended in {RAN, BUILT} or other_shapes(record):
        return False
    return Cause(record.ended).is_machinery


def _may_pass(record: Record, cell: Cell) -> bool:
    """Whether a record tells nothing, since it may end otherwise next time; not where that is the bug."""
    if record.ended in {RAN, BUILT} or other_shapes(record):
        return False
    cause = Cause(record.ended)
    return cause.may_pass and cause not in cell.case.bug_is


def has_engines(records: Sequence[Record], wanted: int) -> bool:
    """Whether so many engines were measured; how the newest ended otherwise, more would not tell."""
    return records[0].ended != RAN or count_engines(records) >= wanted
