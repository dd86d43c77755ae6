"""Measures kept outputs again, by the defects and the noise that their cases have today."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtmatrix.judge.compare import Entry
from trtmatrix.judge.record import RAN, Record, record_from
from trtmatrix.plan.context import Context
from trtmatrix.plan.digests import cell_digests
from trtmatrix.prepare.cases import CaseCache, case_digest, read_content, read_noise_file
from trtmatrix.records.store import read_output, write_record
from trtmatrix.run.storing import with_fits
from trtmatrix.run.workshop import new_run_id, utc_now
from trtmatrix.suite.cells import Cell
from trtprobe.files import CaseFiles, strict
from trtprobe.measure import measure_with_signatures


@dataclass(frozen=True, kw_only=True)
class Remeasured:
    """What came of a record: the new one, or why it could not be measured again."""

    old: Record
    new: Record | None = None
    unknown: str = ""


def remeasure(context: Context, entries: Sequence[Entry]) -> list[Remeasured]:
    """Measure again what entries rest on, where their cases did not know a defect or their noise then.

    Records are never edited: what is measured now becomes a new one, which says of which run it is.
    """
    cases = CaseCache(context.project.cache)
    return [
        done
        for entry in entries
        for record in entry.records
        if record.ended == RAN and record.digests.get("case") == case_digest(entry.cell.case)
        if (done := _remeasure(record, entry.cell, cases, context)) is not None
    ]


def _remeasure(record: Record, cell: Cell, cases: CaseCache, context: Context) -> Remeasured | None:
    """Return what came of one record; None where it knows all."""
    if not record.data.get("kept"):
        lacking = knows_not(record, cell.case.defects)
        return Remeasured(old=record, unknown="its outputs were not kept") if lacking else None
    loaded = context.repros[cell.repro.id]
    folder = cases.prepare(loaded, cell.case)
    if not is_outdated(record, read_noise_file(folder)):
        return None
    builds, unknown = _measure(record, folder, context.project.cache)
    if unknown:
        return Remeasured(old=record, unknown=unknown)
    digests = {**cell_digests(cell, loaded), "probe": context.code.probe}
    return Remeasured(
        old=record, new=write_record(context.project.local, _renewed(record, builds, folder, digests))
    )


def knows_not(record: Record, defects: Iterable[str]) -> bool:
    """Whether a record lacks the signature of one of these defects."""
    return any(set(defects) - set(build.signatures) for build in record.builds)


def is_outdated(record: Record, today: Mapping[str, Any]) -> bool:
    """Whether a case has a defect or a noise today that a record does not know."""
    noise = {name: value for name, value in record.noise.items() if name != "fits"}
    return bool(today) and (knows_not(record, today["defects"]) or not _alike(noise, today))


def _alike(one: Any, other: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether two parts of JSON are the same, but for numbers that another host computes a bit otherwise."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=0.01, abs_tol=1e-6)
    return bool(one == other)


def _measure(record: Record, folder: Path, cache: Path) -> tuple[list[dict[str, Any]], str]:
    """Return what each engine's kept outputs measure today, or why that is unknown."""
    if record.digests.get("content", content := read_content(folder)) != content:
        return [], "its graph or its inputs were others"
    kept: Mapping[str, Mapping[str, Any]] = record.data.get("kept", {})
    files, found = CaseFiles(folder), []
    for number, build in enumerate(record.builds):
        measured: dict[str, Any] = {"outputs": {}, "signatures": {}}
        for name in build.outputs:
            facts = kept.get(f"{name}@{number}" if number else name, {})
            output = read_output(cache, str(facts.get("sha256", "")))
            if output is None or name not in files.reference:
                return [], f"its output {name} is gone" if facts else f"its output {name} was not kept"
            defects = {defect: d[name] for defect, d in files.defects.items() if name in d}
            values, signatures = measure_with_signatures(output, files.reference[name], defects)
            measured["outputs"][name] = values
            for defect, signature in signatures.items():
                measured["signatures"].setdefault(defect, {})[name] = signature
        found.append(measured)
    return found, ""


def _renewed(
    record: Record, builds: Sequence[Mapping[str, Any]], folder: Path, digests: Mapping[str, str]
) -> dict[str, Any]:
    """Return the data of a new record: the old one's, with the measurements of today."""
    data = dict(record.data)
    before = data.get("builds") or [{"measurements": data["measurements"]}]
    after = [
        {**old, "measurements": {**old["measurements"], **strict(new)}}
        for old, new in zip(before, builds, strict=True)
    ]
    data["measurements"] = after[0]["measurements"]
    if "builds" in data:
        data["builds"] = after
    data.update(
        run=new_run_id(utc_now), remeasured_from=record.run, noise=read_noise_file(folder),
        digests={**record.digests, **digests, "content": read_content(folder)},
    )  # fmt: skip
    data["noise"] = with_fits(record_from(data))
    return data


def remeasured_text(done: Sequence[Remeasured]) -> str:
    """Say how many records were measured again, and why the others could not be."""
    reasons: dict[str, list[Record]] = {}
    for item in done:
        if item.unknown:
            reasons.setdefault(item.unknown, []).append(item.old)
    lines = [f"{sum(item.new is not None for item in done)} records measured again"]
    lines += [
        f"{len(records)} unknown, only a run can tell: {reason} (such as {records[0].cell})"
        for reason, records in reasons.items()
    ]
    return "\n".join(lines)
