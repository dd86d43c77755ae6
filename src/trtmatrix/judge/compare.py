"""Cells, records and expectations to entries of the table; their exit codes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from trtmatrix.common.errors import ExitCode
from trtmatrix.judge.calibration import NOT_CALIBRATED, Calibration
from trtmatrix.judge.confirm import assess
from trtmatrix.judge.controls import apply_controls
from trtmatrix.judge.entry import BOARD, Entry, Stored, are_comparable, find_expectation, is_digest_of
from trtmatrix.judge.judge import read_figure
from trtmatrix.judge.record import Record
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Basis, CellId, Evidence, Exclusion, Outcome, Product, Verdict
from trtmatrix.suite.plan import Excluded


def is_current(record: Record, current: Mapping[str, str], cell: Cell) -> bool:
    """Whether a record was made with the present repro, probe, image, GPU variant and driver.

    On a site's nodes: with those of any board that was seen there. ``current`` holds the digests that are
    known here; what is not known is not compared.
    """
    digests = all(is_digest_of(record.digests.get(name), digest) for name, digest in current.items())
    if not cell.gpu.present:
        return digests and cell.version.product is not Product.TENSORRT
    return digests and cell.gpu.is_seen(*(record.gpu.get(name) for name in BOARD))


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
    groups, reasons = newest(stored), {item.cell.id: item for item in excluded}
    entries = []
    for cell in cells:
        records = groups.get(cell.id, [])
        said = find_expectation(cell)
        entry = Entry(cell=cell, evidence=Evidence.NONE)
        if records:
            entry = _from_records(cell, records, current.get(cell.id, {}), calibration)
        elif said and said.basis is not Basis.ASSUMED and said.verdict is not Verdict.INVALID:
            # that a case says nothing, nobody reports of a version
            outcome = Outcome(verdict=said.verdict, reason=said.note)
            entry = replace(entry, evidence=Evidence.REPORTED, outcome=outcome)
        ran = entry.record is not None and entry.record.run in executed
        entries.append(replace(entry, expectation=said, excluded=reasons.get(cell.id), executed=ran))
    return apply_controls(entries)


def _from_records(
    cell: Cell, stored: Sequence[Stored], current: Mapping[str, str], calibration: Calibration
) -> Entry:
    """Return what a cell's records come to; the first of those that count is shown."""
    measured = next((s for s in stored if s.local and is_current(s.record, current, cell)), None)
    chosen = (measured or stored[0]).record
    runs = {chosen.run: chosen}
    for item in stored:
        if are_comparable(chosen, item.record):
            runs.setdefault(item.record.run, item.record)
    entry = assess(cell, list(runs.values()), calibration)
    figure, value = read_figure(entry.records[0], cell.case, cell.repro, calibration)
    evidence = Evidence.MEASURED if measured else Evidence.RECORDED
    return replace(entry, evidence=evidence, figure=figure, value=value)


def without_refused(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the entries of a run that was to run every cell again (``--rerun``).

    A cell that could not be run is not known then: its record is not what was asked for.
    """
    return tuple(
        Entry(cell=entry.cell, evidence=Evidence.NONE, expectation=entry.expectation, excluded=entry.excluded)
        if entry.evidence is Evidence.MEASURED and entry.excluded is not None and not entry.executed
        else entry
        for entry in entries
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
    causes = {entry.outcome.cause for entry in measured if entry.outcome and entry.outcome.cause}
    answered = {entry.cell.version.name for entry in measured}
    left_out = [
        item for entry in asked
        if (item := entry.excluded) and entry.evidence is not Evidence.MEASURED
        # an image lacks what it lacks: a version's name does not ask for cases that can never run there
        and not (item.why is Exclusion.COMPONENT_MISSING and entry.cell.version.name in answered)
        and (gpu_named or item.why is not Exclusion.OTHER_GPU)
    ]  # fmt: skip
    known = {entry.verdict for entry in measured if entry.cell.gpu.present}
    none_ran = gpu_here and any(entry.cell.gpu.present for entry in asked) and known <= {Verdict.NO_VERDICT}
    if (by_name and left_out) or none_ran or any(cause.is_machinery for cause in causes):
        codes.add(ExitCode.MACHINERY)
    if not measured or not ran:
        codes.add(ExitCode.NOTHING)
    return codes
