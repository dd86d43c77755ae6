"""Why a cell is run, again or at all, or that its records stand for it: by the digests they must have."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Any

from trtmatrix.common.words import counted
from trtmatrix.judge.confirm import count_engines, has_engines
from trtmatrix.judge.entry import BOARD, Entry, is_digest_of
from trtmatrix.judge.record import Record
from trtmatrix.judge.words import full_words
from trtmatrix.launchers.wheels import environment_digest
from trtmatrix.prepare.cases import case_digest
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.matrix import ImageOrigin, WheelsOrigin
from trtmatrix.suite.model import CellId, Evidence, Gpu, Product, Seen
from trtmatrix.suite.plan import Host
from trtmatrix.suite.repro_files import LoadedRepro
from trtmatrix.suite.repros import Case

SCHEMA = 1
"""The number of the JSON's shape."""


class Why(str, Enum):
    """The kinds of reasons for which a cell is run."""

    RERUN = "rerun"
    NO_RECORD = "no record"
    CHANGED = "changed"
    ELSEWHERE = "measured elsewhere"
    TROUBLE = "trouble"
    FEW_ENGINES = "few engines"
    NOT_BELIEVED = "not believed"


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is another thing now than when a record was made; ``before`` and ``now`` as far as they tell."""

    what: str
    before: str = ""
    now: str = ""

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.what} {self.before or '?'} → {self.now}" if self.now else self.what


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why a cell is run: its kind and the words for it; what has changed since which record."""

    why: Why
    words: str
    changes: tuple[Change, ...] = ()
    since: Record | None = None


def find_reason(
    entry: Entry,
    *,
    rerun: bool = False,
    rebuilds: int = 1,
    confirm: bool = True,
    current: Mapping[str, str] | None = None,
) -> Reason | None:
    """Return why a cell is run, or None where its records stand for it.

    They do where it was measured here, with what is here now; what came out is a fact; as many engines were
    measured as are asked for; and its verdict is believed. One that cannot run here is shown as it is.
    ``current``: the digests that it must have, which serve to say what has changed.
    """
    outcome = entry.outcome
    if rerun:
        return Reason(why=Why.RERUN, words="--rerun")
    if entry.evidence is not Evidence.MEASURED or outcome is None:
        return _not_measured(entry, current or {})
    if outcome.cause is not None and outcome.cause.may_pass:
        words = f"the last run ended by what may pass: {outcome.cause.value}"
        return Reason(why=Why.TROUBLE, words=words, since=entry.record)
    if entry.excluded is not None:
        return None
    if rebuilds > 1 and not has_engines(entry.records, rebuilds):
        words = f"{counted(count_engines(entry.records), 'engine')} of the {rebuilds} asked for (--rebuilds)"
        return Reason(why=Why.FEW_ENGINES, words=words, since=entry.record)
    if confirm and entry.wanted:
        seen = "it" if entry.cell.case.control is None else "the control"
        engines = f"{counted(entry.wanted, 'engine')} alone first ({full_words(outcome)})"
        words = f"{seen} is not believed yet: {engines}"
        return Reason(why=Why.NOT_BELIEVED, words=words, since=entry.record)
    return None


def _not_measured(entry: Entry, current: Mapping[str, str]) -> Reason:
    record = entry.record
    if record is None:
        return Reason(why=Why.NO_RECORD, words="no record")
    changes, gpu = find_changes(record, current, entry.cell), entry.cell.gpu
    if changes:
        words = "; ".join(map(str, changes)) + " changed"
        return Reason(why=Why.CHANGED, words=words, changes=changes, since=record)
    words = "its records were published, not measured here"
    if gpu.remote and not gpu.seen:
        words = "no job has told yet which boards and drivers the site's nodes have"
    return Reason(why=Why.ELSEWHERE, words=words, since=record)


def find_changes(record: Record, current: Mapping[str, str], cell: Cell) -> tuple[Change, ...]:
    """Return what is not as it was when a record was made; ``current``: the digests that it must have."""
    changes: list[Change] = []
    for name, digest in current.items():
        before = str(record.digests.get(name, ""))
        if not is_digest_of(before, digest):
            changes += _digest_changes(name, before, digest, cell)
    if cell.gpu.present:
        changes += _board_changes(record, cell.gpu)
    return tuple(changes)


def _board_changes(record: Record, gpu: Gpu) -> Sequence[Change]:
    """Return what of a record's board none has that cells would run on; nothing where none is known."""
    boards: Sequence[Gpu | Seen] = gpu.seen if gpu.remote else (gpu,)
    if not boards or gpu.is_seen(*(record.gpu.get(name) for name in BOARD)):
        return ()
    changes = []
    for name, what in zip(BOARD, ("GPU", "GPU's variant", "driver"), strict=True):
        before, now = record.gpu.get(name), list(dict.fromkeys(getattr(board, name) for board in boards))
        if before not in now:
            here = " or ".join(str(value or "none") for value in now)
            changes.append(Change(what=what, before=str(before or ""), now=here))
    return changes or (Change(what="which boards have this driver"),)


HALF = 32
"""A record's digest of a repro is that of its own code, then that of what it may import, so long each."""


def _digest_changes(name: str, before: str, now: str, cell: Cell) -> list[Change]:
    """Return a digest's change in words; of images the first digits are told, as Docker shows them."""
    case, version = f"{cell.repro.id}/{cell.case.id}", cell.version.name
    match name:
        case "repro":
            own = [Change(what=f"repro {cell.repro.id}")] if before[:HALF] != now[:HALF] else []
            shared = before[HALF:] != now[HALF:] and (before or not own)
            return own + ([Change(what="what repros are built with (trtmatrix.authoring)")] if shared else [])
        case "image":
            short = [digest.partition(" ")[0].rpartition(":")[2][:12] for digest in (before, now)]
            return [Change(what=f"image of {version}", before=short[0], now=short[1])]
        case "runtime":
            return [Change(what="runtime", before=before, now=now)]
    words = {"case": f"parameters of {case}", "asked": f"defects, engines or time limit of {case}"}
    return [Change(what=words.get(name, name))]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A cell that could run here, with the reason why it is run, or the record that stands for it."""

    cell: Cell
    reason: Reason | None
    record: Record | None

    @property
    def words(self) -> str:
        """Return why it is run, or what stands for it."""
        if self.reason is None:
            return f"not run again: {_run(self.record)}" if self.record else "not run again"
        since = f" since {_run(self.reason.since)}" if self.reason.changes else ""
        return self.reason.words + since


def _run(record: Record | None) -> str:
    return f"run {record.run} of {record.started[:10]}" if record else ""


def stale_text(findings: Sequence[Finding]) -> str:
    """Return the counts by reason, then a line a cell."""
    if not findings:
        return "no selected cell can run here (python -m trtmatrix doctor says why)"
    lines = [f"{words}: {counted(count, 'cell')}" for words, count in count_reasons(findings)]
    return "\n".join([*lines, "", *(f"{finding.cell.id}: {finding.words}" for finding in findings)])


def count_reasons(findings: Iterable[Finding]) -> list[tuple[str, int]]:
    """Return each reason with its number of cells, the commonest first; what is not run again comes last."""
    general = {
        Why.NOT_BELIEVED: "not believed yet", Why.FEW_ENGINES: "fewer engines than asked for (--rebuilds)",
    }  # fmt: skip
    groups: dict[tuple[bool, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        reason = finding.reason
        words = general.get(reason.why, reason.words) if reason else "not run again"
        groups[reason is None, words].append(finding)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1]))
    return [(words + _since(group), len(group)) for (_, words), group in ordered]


def _since(group: Sequence[Finding]) -> str:
    """Return the days of the records since which something has changed."""
    reasons = [finding.reason for finding in group if finding.reason and finding.reason.changes]
    days = sorted({reason.since.started[:10] for reason in reasons if reason.since})
    if not days:
        return ""
    return f" since {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "")


def stale_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the same as plain data; what is not known is null."""
    return {
        "schema": SCHEMA,
        "summary": [{"reason": words, "count": count} for words, count in count_reasons(findings)],
        "cells": [_cell(finding) for finding in findings],
    }


def _cell(finding: Finding) -> dict[str, Any]:
    reason = finding.reason
    record = reason.since if reason else finding.record
    return {
        "id": str(finding.cell.id), "run": reason is not None, "companion": finding.cell.companion,
        "why": reason.why.value if reason else None, "reason": finding.words,
        "changes": [
            {"what": c.what, "before": c.before or None, "now": c.now or None}
            for c in (reason.changes if reason else ())
        ],
        "record": {"run": record.run, "started": record.started, "file": record.file} if record else None,
    }  # fmt: skip


def current_digests(
    cells: Sequence[Cell],
    repros: Mapping[str, LoadedRepro],
    probe: str,
    origin: Callable[[Cell], Mapping[str, str]],
) -> dict[CellId, dict[str, str]]:
    """Return the digests that a record of each cell must have to count as current (see ``is_digest_of``).

    ``origin`` gives those that its version and GPU have at any case.
    """
    cases: dict[tuple[str, str], dict[str, str]] = {}
    columns: dict[tuple[str, str], Mapping[str, str]] = {}
    found = {}
    for cell in cells:
        row, column = (cell.repro.id, cell.case.id), (cell.version.name, cell.gpu.slug)
        if row not in cases:
            cases[row] = {**cell_digests(cell, repros[cell.repro.id]), "probe": probe}
        if column not in columns:
            columns[column] = origin(cell)
        found[cell.id] = {**cases[row], **columns[column]}
    return found


def cell_digests(cell: Cell, loaded: LoadedRepro) -> dict[str, str]:
    """Return the digests of a cell's repro and case, and of what is asked of it."""
    return {
        "repro": f"{loaded.repro.digest[:32]}{loaded.code.authoring[:32]}",
        "case": case_digest(cell.case),
        "asked": asked_digest(cell.case),
    }


def asked_digest(case: Case) -> str:
    """Return the SHA-256 of what is asked of a case's measurement beside its parameters (hexadecimal).

    Its limits, expectations and the like are no part of it: they judge what was measured.
    """
    asked: list[object] = [sorted(case.defects), case.builds, case.processes, case.seconds]
    if case.tolerance:  # the run counts what is beyond it
        asked.append(sorted(case.tolerance.items()))
    return sha256(json.dumps(asked).encode()).hexdigest()


def origin_digests(cell: Cell, host: Host, *, on_host: bool) -> dict[str, str]:
    """Return how a record's version must have been started to be current: the runtime, the image.

    ``on_host``: interpreters of the host were asked for; their records are never a container's.
    """
    if on_host and cell.version.product is Product.TENSORRT:
        return {"runtime": "host"}
    image = image_digest(cell, host)
    return {"runtime": cell.version.runtime, **({"image": image} if image is not None else {})}


def image_digest(cell: Cell, host: Host) -> str | None:
    """Return the digest that a record's image must have to be current, where it is known here.

    A locked image is known whether it is here or not: under any of the IDs that engines give it.
    """
    match cell.version.origin:
        case WheelsOrigin(wheels=wheels):
            return environment_digest(wheels)
        case ImageOrigin() as origin if cell.gpu.present or cell.version.product is not Product.TENSORRT:
            return " ".join(origin.pin.ids) if origin.pin is not None else host.engine.held(origin)
        case _:
            return None
