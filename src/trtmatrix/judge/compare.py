"""Cells, records and expectations to entries of the table; their exit codes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from trtmatrix.common.errors import ExitCode
from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.confirm import engines_wanted, overruled, part_set_aside
from trtmatrix.judge.controls import apply_controls
from trtmatrix.judge.entry import (
    BOARD,
    Entry,
    Expectations,
    Stored,
    are_comparable,
    expected_verdict,
    find_expectation,
    is_digest_of,
    is_surprise,
)
from trtmatrix.judge.judge import NOT_CALIBRATED, judge, measured_in, write_figure
from trtmatrix.judge.record import RAN, Record
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Basis, CellId, Product, Verdict
from trtmatrix.suite.outcome import Evidence, Exclusion, Outcome
from trtmatrix.suite.plan import Excluded
from trtmatrix.suite.repros import Expectation

__all__ = [
    "Entry",
    "Stored",
    "exit_codes",
    "expected_verdict",
    "find_expectation",
    "is_current",
    "is_surprise",
    "make_entries",
    "newest",
    "without_refused",
]


def is_current(record: Record, current: Mapping[str, str], cell: Cell) -> bool:
    """Whether a record was made with the present repro, probe, image, GPU variant and driver.

    On a site's nodes: with those of any board that was seen there. ``current`` holds the digests that are
    known here; what is not known is not compared.
    """
    digests = all(is_digest_of(record.digests.get(name), digest) for name, digest in current.items())
    gpu = cell.gpu
    if not gpu.present:
        return digests and cell.version.product is not Product.TENSORRT
    return digests and gpu.is_seen(*(record.gpu.get(name) for name in BOARD))


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
    calibration: Calibration = NOT_CALIBRATED,
) -> tuple[Entry, ...]:
    """Return one entry a cell, INVALID where its controls say so. ``executed``: the runs of this call."""
    groups = newest(stored)
    known = _Known(
        current=current, reasons={item.cell.id: item for item in excluded}, executed=executed,
        calibration=calibration,
    )  # fmt: skip
    return apply_controls([known.entry(cell, groups.get(cell.id, [])) for cell in cells])


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What is known beside the records."""

    current: Mapping[CellId, Mapping[str, str]]
    reasons: Mapping[CellId, Excluded]
    executed: frozenset[str]
    calibration: Calibration
    expectations: Expectations = field(default_factory=Expectations)

    def entry(self, cell: Cell, stored: Sequence[Stored]) -> Entry:
        """Return what a cell shows, of its records, the newest first."""
        current = self.current.get(cell.id, {})
        best = next((s for s in stored if s.local and is_current(s.record, current, cell)), None)
        chosen = best or next(iter(stored), None)
        if chosen is not None:
            evidence = Evidence.MEASURED if best else Evidence.RECORDED
            return self._judged(cell, evidence, _pool(chosen.record, stored))
        expectation, excluded = self.expectations.of(cell), self.reasons.get(cell.id)
        if expectation is not None and _is_report(expectation):
            outcome = Outcome(verdict=expectation.verdict, reason=expectation.note)
            return Entry(
                cell=cell, evidence=Evidence.REPORTED, outcome=outcome, expectation=expectation,
                excluded=excluded,
            )  # fmt: skip
        return Entry(cell=cell, evidence=Evidence.NONE, expectation=expectation, excluded=excluded)

    def _judged(self, cell: Cell, evidence: Evidence, records: Sequence[Record]) -> Entry:
        """Return the entry of a cell that has records; the first of those that count is shown."""
        counted, aside = part_set_aside(cell, records, self.calibration)
        record, value = counted[0], self._value(cell, counted[0])
        outcome = judge(counted, cell.case, cell.version, cell.repro, self.calibration)
        return Entry(
            cell=cell, evidence=evidence, record=record, records=counted, set_aside=aside, outcome=outcome,
            wanted=engines_wanted(cell, outcome, records, self.calibration),
            overruled=overruled(cell, outcome, counted, aside, self.calibration),
            figure=write_figure(record, value) if record.ended == RAN else "", value=value,
            expectation=self.expectations.of(cell), excluded=self.reasons.get(cell.id),
            executed=record.run in self.executed,
        )  # fmt: skip

    def _value(self, cell: Cell, record: Record) -> float | None:
        if record.ended != RAN:
            return None
        return measured_in(record, cell.repro.figure.measure, cell.case, cell.repro, self.calibration)


def _is_report(expectation: Expectation) -> bool:
    """Whether an expectation is evidence by itself: that a case says nothing, nobody reports of a version."""
    return expectation.basis is not Basis.ASSUMED and expectation.verdict is not Verdict.INVALID


def _pool(record: Record, stored: Sequence[Stored]) -> list[Record]:
    """Return a record and those of the same cell that are comparable with it, each run once."""
    runs = {record.run: record}
    for item in stored:
        if are_comparable(record, item.record):
            runs.setdefault(item.record.run, item.record)
    return list(runs.values())


def without_refused(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the entries of a run that was to run every cell again (``--rerun``).

    A cell that could not be run is not known then: its record is not what was asked for.
    """
    return tuple(_not_run(entry) if _is_refused(entry) else entry for entry in entries)


def _is_refused(entry: Entry) -> bool:
    return entry.evidence is Evidence.MEASURED and entry.excluded is not None and not entry.executed


def _not_run(entry: Entry) -> Entry:
    return Entry(
        cell=entry.cell, evidence=Evidence.NONE, expectation=entry.expectation, excluded=entry.excluded
    )


def exit_codes(
    entries: Sequence[Entry], *, by_name: bool, gpu_here: bool, ran: bool, gpu_named: bool = False
) -> set[ExitCode]:
    """Return every exit code that applies; ``ran``: cells were executed or served from the store.

    ``by_name``: versions, GPUs or runtimes were asked for by name. Tables of GPUs that are shown only
    because there are records of them (not ``gpu_named``) do not count as asked for. Of cells that are only
    there as controls, a surprise counts and nothing else.
    """
    codes = {ExitCode.AS_EXPECTED}
    if any(entry.surprise for entry in entries if entry.evidence is Evidence.MEASURED):
        codes.add(ExitCode.SURPRISE)
    asked = [entry for entry in entries if not entry.cell.companion]
    measured = [entry for entry in asked if entry.evidence is Evidence.MEASURED]
    if any(_machinery(entry) for entry in measured):
        codes.add(ExitCode.MACHINERY)
    answered = {entry.cell.version.name for entry in measured}
    if by_name and any(_left_out(entry, gpu_named, answered) for entry in asked):
        codes.add(ExitCode.MACHINERY)
    on_gpu = [entry for entry in asked if entry.cell.gpu.present]
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
