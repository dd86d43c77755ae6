"""When a verdict is believed: how many engines must be built alone before it is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import takewhile

from trtmatrix.judge.calibration import NOT_CALIBRATED, Calibration
from trtmatrix.judge.entry import Entry, expected_verdict, find_expectation, full_words
from trtmatrix.judge.judge import combine, judge_record, other_shapes
from trtmatrix.judge.record import BUILT, RAN, Record
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Cause, CellId, Control, Evidence, Outcome, Product, Verdict

CONFIRMING_BUILDS = 3
"""Engines that are built in a fresh process before a failure is believed."""
DECIDING_BUILDS = 8
"""Engines that are built alone once more where those before contradict what a shared process said.

With three alone, a fault of one build in four would be missed in 42% of cases (0.75³), with eleven in 4%.
"""
LEAST_SAMPLED = 10
"""Cells of a run from which on some are sampled: one cell alone would be run twice, and it shares nothing."""
SAMPLED = 50
"""Of so many cells of a run one is run again in a fresh process also where it passes, and one at least.

A cell can change what later ones in its process do, unseen. A fresh process on a GPU takes as long as several
cells: of a run of 49 it adds a twentieth to a twelfth.
"""
FROM_THE_PROCESS = {
    Cause.OUT_OF_GPU_MEMORY, Cause.OUT_OF_HOST_MEMORY, Cause.TIME_OUT, Cause.BUILD_FAILED, Cause.CRASHED,
    Cause.PROBE_FAILED,
}  # fmt: skip
"""Why a cell has no verdict, where what ran in its process before may have done it."""


def sample_cells(cells: Iterable[CellId], seed: bytes) -> frozenset[CellId]:
    """Return the cells of a run whose PASS is not believed before it was seen in a fresh process.

    ``seed``: what no cell can know, or it would lie where nobody looks.
    """
    ranked = sorted(cells, key=lambda cell: sha256(seed + str(cell).encode()).digest())
    return frozenset(ranked[: -(-len(ranked) // SAMPLED)] if len(ranked) >= LEAST_SAMPLED else ())


def assess(cell: Cell, records: Sequence[Record], calibration: Calibration = NOT_CALIBRATED) -> Entry:
    """Judge comparable records of a cell, the newest first, each once; says what they come to together."""
    judged = [judge_record(record, cell.case, cell.repro, calibration) for record in records]
    said = [combine([one], cell.case, cell.version) for one in judged]
    alone = [i for i, r in enumerate(records) if r.confirms and not is_shared(r) and not _is_machinery(r)]
    tried = {records[i].confirms for i in alone}
    aside = {
        record.run for i, record in enumerate(records)
        if alone and is_shared(record)
        and (record.run in tried or (i > alone[0] and _is_doubtful(cell, said[i])))
    }  # fmt: skip
    counted = [one for one in judged if one.record.run not in aside]
    doubted = [outcome for one, outcome in zip(judged, said, strict=True) if one.record.run in aside]
    outcome, kept = combine(counted, cell.case, cell.version), tuple(one.record for one in counted)
    found = (outcome.verdict, outcome.cause)
    overruled = ""
    if other := next((before for before in doubted if (before.verdict, before.cause) != found), None):
        engines = count_engines(record for record in kept if not is_shared(record))
        by = "1 engine built alone says" if engines == 1 else f"{engines} engines built alone say"
        before, after = (full_words(replace(one, builds=0)) for one in (other, outcome))
        by = by if outcome.builds else "alone it says"
        overruled = f"a run in a shared process said {before}; {by} {after}"
    return Entry(
        cell=cell, evidence=Evidence.RECORDED, outcome=outcome, record=kept[0], records=kept,
        set_aside=tuple(record for record in records if record.run in aside), overruled=overruled,
        wanted=_engines_wanted(cell, outcome, kept, records, doubted),
    )  # fmt: skip


def _engines_wanted(
    cell: Cell, outcome: Outcome, counted: Sequence[Record], records: Sequence[Record],
    doubted: Sequence[Outcome],
) -> int:  # fmt: skip
    """Return how many engines must be built alone; ``doubted``: what those that are set aside say."""
    newest, on_tensorrt = counted[0], cell.version.product is Product.TENSORRT
    if is_shared(newest):
        if not _is_doubtful(cell, outcome):
            return 0
        return CONFIRMING_BUILDS if on_tensorrt and newest.ended == RAN else 1
    if not on_tensorrt:
        return 0
    agree = {
        Verdict.FLAKY: {Verdict.PASS, Verdict.FAIL, Verdict.FLAKY},  # it shows both
        Verdict.FAIL: {Verdict.FAIL, Verdict.FLAKY},
    }.get(outcome.verdict, {outcome.verdict})
    if any(before.verdict not in agree for before in doubted):
        # the newest may be the only one made alone since what is set aside, of few in all
        kept = {record.run for record in counted}
        since = takewhile(lambda record: record.run in kept, records)
        tries = [record for record in since if record.confirms and not _is_machinery(record)]
        few = count_engines(r for r in records if not is_shared(r)) < CONFIRMING_BUILDS + DECIDING_BUILDS
        if few and tries == [newest] and newest.ended == RAN:
            return DECIDING_BUILDS
    match outcome.verdict:  # what was made alone is luck, maybe
        case Verdict.FAIL:
            doubtful = cell.case.control is not Control.NEGATIVE
        case Verdict.PASS:
            doubtful = expected_verdict(cell, find_expectation(cell)) is not Verdict.PASS
        case _:
            return 0
    for record in counted:
        cause = _cause_of(record)
        if record.confirms and not (cause and cause.may_pass and cause not in cell.case.bug_is):
            return 0  # it was seen again
    return CONFIRMING_BUILDS if doubtful and count_engines(counted) <= CONFIRMING_BUILDS else 0


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


def _is_machinery(record: Record) -> bool:
    cause = _cause_of(record)
    return cause is not None and cause.is_machinery


def _cause_of(record: Record) -> Cause | None:
    return None if record.ended in {RAN, BUILT} or other_shapes(record) else Cause(record.ended)


def is_shared(record: Record) -> bool:
    """Whether other cells had run in a record's process before it, or it ran an engine that another built.

    Older records were made alone.
    """
    position = record.worker.get("position")
    builds = record.data.get("builds") or [record.data]
    engines = (engine for build in builds for engine in (build.get("engine") or {}).get("engines", ()))
    first = not isinstance(position, int) or position <= 0
    return not first or any("shared_with" in engine for engine in engines)


def count_engines(records: Iterable[Record]) -> int:
    """Return how many engines records hold; a process that builds its own counts as one."""
    return sum(record.engines for record in records)
