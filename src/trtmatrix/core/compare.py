"""Cells, records and expectations to entries of the table. Pure."""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from trtmatrix.core.errors import ExitCode
from trtmatrix.core.expand import Cell
from trtmatrix.core.judge import figure_text, judge
from trtmatrix.core.model import (
    Basis,
    CellId,
    Control,
    Evidence,
    Exclusion,
    Expectation,
    Outcome,
    Product,
    Verdict,
)
from trtmatrix.core.plan import Excluded
from trtmatrix.core.record import Record


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A record with where it lies: measured on this host, or published."""

    record: Record
    local: bool


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What one cell shows: its outcome and how that is known, what was expected, why it did not run."""

    cell: Cell
    evidence: Evidence
    outcome: Outcome | None = None
    figure: str = ""
    record: Record | None = None
    expectation: Expectation | None = None
    excluded: Excluded | None = None
    executed: bool = False

    @property
    def surprise(self) -> bool:
        """Whether a measured or recorded verdict differs from the expectation, either way."""
        if self.outcome is None or self.evidence not in {Evidence.MEASURED, Evidence.RECORDED}:
            return False
        return is_surprise(self.outcome.verdict, expected_verdict(self.cell, self.expectation))


def find_expectation(cell: Cell) -> Expectation | None:
    """Return the first expectation of the repro that fits the case and the version."""
    for expectation in cell.repro.expectations:
        if (
            expectation.product is cell.version.product
            and expectation.versions.contains(cell.version.release, prereleases=True)
            and any(fnmatch.fnmatchcase(cell.case.id, pattern) for pattern in expectation.cases)
        ):
            return expectation
    return None


def expected_verdict(cell: Cell, expectation: Expectation | None) -> Verdict:
    """Return what is expected: what the repro says, else a control's verdict, else PASS."""
    if expectation is not None:
        return expectation.verdict
    return Verdict.FAIL if cell.case.control is Control.NEGATIVE else Verdict.PASS


def is_surprise(verdict: Verdict, expected: Verdict) -> bool:
    """Whether a verdict contradicts what was expected.

    BUILT and INVALID say nothing about numbers, NO VERDICT says nothing about the version: neither
    is a surprise. FLAKY always is, unless it was expected.
    """
    match verdict:
        case Verdict.PASS | Verdict.FAIL | Verdict.FLAKY:
            return verdict is not expected
        case Verdict.BUILT | Verdict.INVALID | Verdict.NO_VERDICT:
            return False


def is_current(record: Record, current: Mapping[str, str], cell: Cell) -> bool:
    """Whether a record was made with the present repro, probe, image, GPU variant and driver.

    ``current`` holds the digests that are known here; what is not known is not compared.
    """
    digests = all(record.digests.get(name) == digest for name, digest in current.items())
    gpu = cell.gpu
    if not gpu.present:
        return digests and cell.version.product is not Product.TENSORRT
    same_gpu = (record.gpu.get("name"), record.gpu.get("variant"), record.gpu.get("driver")) == (
        gpu.name, gpu.variant, gpu.driver,
    )  # fmt: skip
    return digests and same_gpu


def newest(stored: Iterable[Stored]) -> dict[CellId, list[Stored]]:
    """Group records by cell, the newest first (by start, then run; no matter the order read)."""
    groups: dict[CellId, list[Stored]] = defaultdict(list)
    for item in stored:
        groups[item.record.cell].append(item)
    for items in groups.values():
        items.sort(key=lambda item: (item.record.started, item.record.run, item.local), reverse=True)
    return dict(groups)


def make_entries(
    cells: Sequence[Cell],
    stored: Iterable[Stored],
    current: Mapping[CellId, Mapping[str, str]],
    excluded: Iterable[Excluded],
    executed: frozenset[str] = frozenset(),
) -> tuple[Entry, ...]:
    """Return one entry a cell. ``executed`` holds the runs of this call."""
    groups = newest(stored)
    reasons = {item.cell.id: item for item in excluded}
    return tuple(
        _entry(cell, groups.get(cell.id, []), current.get(cell.id, {}), reasons.get(cell.id), executed)
        for cell in cells
    )


def _entry(
    cell: Cell,
    stored: Sequence[Stored],
    current: Mapping[str, str],
    excluded: Excluded | None,
    executed: frozenset[str],
) -> Entry:
    expectation = find_expectation(cell)
    best = next((s for s in stored if s.local and is_current(s.record, current, cell)), None)
    chosen = best or next(iter(stored), None)
    if chosen is not None:
        record = chosen.record
        return Entry(
            cell=cell, evidence=Evidence.MEASURED if best else Evidence.RECORDED,
            outcome=judge(record, cell.case, cell.version), record=record,
            figure=figure_text(record, cell.repro.figure), expectation=expectation,
            excluded=excluded, executed=record.run in executed,
        )  # fmt: skip
    if expectation is not None and expectation.basis is not Basis.ASSUMED:
        outcome = Outcome(verdict=expectation.verdict, reason=expectation.note)
        return Entry(
            cell=cell, evidence=Evidence.REPORTED, outcome=outcome, expectation=expectation,
            excluded=excluded,
        )  # fmt: skip
    return Entry(cell=cell, evidence=Evidence.NONE, expectation=expectation, excluded=excluded)


def exit_codes(
    entries: Sequence[Entry], *, by_name: bool, gpu_here: bool, ran: bool, gpu_named: bool = False
) -> set[ExitCode]:
    """Return every exit code that applies; ``ran``: cells were executed or served from the store.

    ``by_name``: versions, GPUs or runtimes were asked for by name. Tables of GPUs that are shown only
    because there are records of them (not ``gpu_named``) do not count as asked for.
    """
    codes = {ExitCode.AS_EXPECTED}
    measured = [entry for entry in entries if entry.evidence is Evidence.MEASURED]
    if any(entry.surprise for entry in measured):
        codes.add(ExitCode.SURPRISE)
    if any(_machinery(entry) for entry in measured):
        codes.add(ExitCode.MACHINERY)
    answered = {entry.cell.version.name for entry in measured}
    if by_name and any(_left_out(entry, gpu_named, answered) for entry in entries):
        codes.add(ExitCode.MACHINERY)
    on_gpu = [entry for entry in entries if entry.cell.gpu.present]
    if gpu_here and on_gpu and not any(_has_verdict(entry) for entry in on_gpu):
        codes.add(ExitCode.MACHINERY)
    if not measured or not ran:
        codes.add(ExitCode.NOTHING)
    return codes


def _has_verdict(entry: Entry) -> bool:
    """Whether a cell ran here and something can be said of it."""
    verdict = entry.outcome.verdict if entry.outcome else Verdict.NO_VERDICT
    return entry.evidence is Evidence.MEASURED and verdict is not Verdict.NO_VERDICT


def _left_out(entry: Entry, gpu_named: bool, answered: Set[str]) -> bool:
    """Whether a cell that was asked for did not run and has no current record.

    A version's image lacks what it lacks: naming a version does not ask for cases that can never run
    there, as long as others answered.
    """
    if entry.excluded is None or entry.evidence is Evidence.MEASURED:
        return False
    if entry.excluded.why is Exclusion.COMPONENT_MISSING and entry.cell.version.name in answered:
        return False
    return gpu_named or entry.excluded.why is not Exclusion.OTHER_GPU


def _machinery(entry: Entry) -> bool:
    outcome = entry.outcome
    return outcome is not None and outcome.cause is not None and outcome.cause.is_machinery
