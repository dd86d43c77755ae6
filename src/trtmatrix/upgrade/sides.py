"""Entries as sides of a comparison: what is known of a case at one version, with its sources. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from trtmatrix.judge.calibration import NOT_CALIBRATED, Calibration
from trtmatrix.judge.controls import Controls
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.judge import FLOORS, measured_in
from trtmatrix.judge.record import RAN
from trtmatrix.judge.words import cell_text
from trtmatrix.suite.gpus import Gpu
from trtmatrix.suite.model import Product, Verdict
from trtmatrix.suite.outcome import Evidence, Exclusion
from trtmatrix.suite.repros import Expectation
from trtmatrix.upgrade.report import Side, Source

_ABSENT = frozenset({Exclusion.COMPONENT_MISSING, Exclusion.UNSUPPORTED_GPU})
_THREAD = re.compile(r"https://github\.com/([^/]+/[^/]+)/(?:issues|pull)/(\d+)")


class Entries:
    """The entries of one GPU, by case and version."""

    def __init__(self, entries: Sequence[Entry], calibration: Calibration = NOT_CALIBRATED) -> None:
        """Sort them once; controls are looked for among all."""
        self.all, self.calibration = tuple(entries), calibration
        self._by_key = {(e.cell.repro.id, e.cell.case.id, e.cell.version.name): e for e in entries}
        self._controls = Controls(entries)
        self._sides: dict[tuple[str, str, str], Side] = {}

    def at(self, repro: str, case: str, version: str) -> Entry | None:
        """Return what a case shows at a version; None where it is no case of that version's product."""
        return self._by_key.get((repro, case, version))

    def side(self, repro: str, case: str, version: str) -> Side:
        """Return the same as a side of a comparison."""
        key = (repro, case, version)
        if key not in self._sides:
            entry = self.at(*key)
            self._sides[key] = self._side(entry) if entry else _nothing(version)
        return self._sides[key]

    def _side(self, entry: Entry) -> Side:
        invalid = entry.outcome is not None and entry.outcome.verdict is Verdict.INVALID
        doubted = invalid and self._controls.wrong_of(entry) is not None
        return make_side(entry, self.calibration, doubted=doubted)


def _nothing(version: str) -> Side:
    return Side(version=version, verdict=None, evidence=Evidence.NONE, absent=True)


def make_side(entry: Entry, calibration: Calibration = NOT_CALIBRATED, *, doubted: bool = False) -> Side:
    """Return an entry as a side of a comparison. ``doubted``: a control beside it came out wrong."""
    if _names_no_version(entry) or _is_on_unsupported(entry):
        entry = replace(entry, evidence=Evidence.NONE, outcome=None)
    cell, outcome = entry.cell, entry.outcome
    return Side(
        version=cell.version.name, verdict=outcome.verdict if outcome else None, evidence=entry.evidence,
        word=cell_text(entry), reason=outcome.reason if outcome else _why_not(entry),
        builds=outcome.builds if outcome else 0, failed=outcome.failed if outcome else 0,
        floors=_floors(entry, calibration), driver=_driver(entry), cell=str(cell.id), sources=_sources(entry),
        cause=outcome.cause if outcome else None, counted=cell.version.product is Product.TENSORRT,
        doubted=doubted, absent=outcome is None and _is_absent(entry), feared=_feared(entry),
    )  # fmt: skip


def _is_on_unsupported(entry: Entry) -> bool:
    """Whether what is reported cannot be so here: the version does not support the GPU."""
    excluded = entry.excluded
    return entry.record is None and excluded is not None and excluded.why is Exclusion.UNSUPPORTED_GPU


def _names_no_version(entry: Entry) -> bool:
    """Whether a report is of no version in particular: what is expected everywhere was seen at few."""
    expectation = entry.expectation
    reported = entry.evidence is Evidence.REPORTED and expectation is not None
    return reported and expectation is not None and not expectation.versions.text


def _is_absent(entry: Entry) -> bool:
    return entry.excluded is not None and entry.excluded.why in _ABSENT


def _why_not(entry: Entry) -> str:
    """Say why there is no evidence, where it can never be had; else that the repro fears the worst."""
    if entry.excluded is not None and _is_absent(entry):
        return entry.excluded.detail or entry.excluded.why.value
    feared = _feared(entry)
    return f"{entry.expected.value} is feared (assumed from {feared.title})" if feared else ""


def _feared(entry: Entry) -> Source | None:
    """Return what lets a repro assume that a case fails of which there is no evidence."""
    expectation = entry.expectation
    if entry.outcome is not None or expectation is None or _is_absent(entry):
        return None
    return report_source(expectation) if expectation.verdict in {Verdict.FAIL, Verdict.FLAKY} else None


def _floors(entry: Entry, calibration: Calibration) -> float | None:
    """Return the worst error of all records in noise floors; NaN where one has it."""
    cell, found = entry.cell, []
    for record in entry.records:
        if record.ended == RAN:
            value = measured_in(record, FLOORS, cell.case, cell.repro, calibration)
            found += [] if value is None else [value]
    return max(found, key=lambda v: math.inf if math.isnan(v) else v, default=None)


def _driver(entry: Entry) -> str:
    return str(entry.record.gpu.get("driver") or "") if entry.record else ""


def _sources(entry: Entry) -> tuple[Source, ...]:
    """Return the records' files, else the page that reports it."""
    if entry.records:
        return tuple(Source(title=record.file or str(entry.cell.id)) for record in entry.records)
    if entry.evidence is Evidence.REPORTED and entry.expectation is not None:
        return (report_source(entry.expectation),)
    return ()


def report_source(expectation: Expectation) -> Source:
    """Return where a report can be read; what this project measured once stands in the repro itself."""
    on = f", of {expectation.on}" if expectation.on else ""
    if not expectation.source:
        return Source(title=f"the repro's own note{on}")
    return Source(title=name_source(expectation.source) + on, url=expectation.source)


def name_source(url: str) -> str:
    """Return an address as people name it: ``NVIDIA/TensorRT#4333``, or its host with the last part."""
    if found := _THREAD.match(url):
        return f"{found.group(1)}#{found.group(2)}"
    parts = url.removeprefix("https://").rstrip("/").split("/")
    return parts[0] if len(parts) == 1 else f"{parts[0]}/…/{parts[-1]}" if len(parts) > 2 else "/".join(parts)


def reported_elsewhere(entry: Entry, gpu: Gpu) -> str:
    """Return the GPU that an entry's only evidence is reported of, where it is another; else nothing."""
    expectation = entry.expectation
    if entry.evidence is not Evidence.REPORTED or expectation is None or not expectation.on:
        return ""
    if _names_no_version(entry):
        return ""
    on = expectation.on
    return "" if on.lower().split()[-1] in gpu.name.lower().split() else on
