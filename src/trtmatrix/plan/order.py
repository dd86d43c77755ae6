"""Why a cell is run, or that its records stand for it; and in which order a run does its work. Pure."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import TypeVar

from trtmatrix.common.text import counted
from trtmatrix.judge.compare import count_engines
from trtmatrix.judge.entry import BOARD, Entry, Stored, full_words, is_digest_of
from trtmatrix.judge.record import RAN, Record
from trtmatrix.launchers.wheels import environment_digest
from trtmatrix.prepare.cases import case_digest
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.matrix import ImageOrigin, WheelsOrigin
from trtmatrix.suite.model import CellId, Evidence, Gpu, Product
from trtmatrix.suite.plan import Host, Launch
from trtmatrix.suite.repro_files import LoadedRepro

Row = TypeVar("Row")
Seconds = Mapping[CellId, float]  # how long each cell is thought to take

PRECISION = re.compile(r" ?\bprecision=\S+")


def estimate_seconds(cells: Sequence[Cell], stored: Iterable[Stored]) -> dict[CellId, float]:
    """Return how long each cell took when it was last run, on whatever GPU; or its case on other versions.

    Where neither is known: as long as those of which it is, on the average; 1 s where nothing is known.
    """
    stored = list(stored)
    others = last_seconds(stored, lambda cell: (cell.repro, cell.case))
    rows = ((cell.id, (cell.repro.id, cell.case.id)) for cell in cells)
    known = {cell: others[row] for cell, row in rows if row in others} | known_seconds(cells, stored)
    usual = sum(known.values()) / len(known) if known else 1.0
    return {cell.id: known.get(cell.id, usual) for cell in cells}


def known_seconds(cells: Sequence[Cell], stored: Iterable[Stored]) -> dict[CellId, float]:
    """Return from start to end of the newest record of each cell's row, where it has both."""

    def row(cell: CellId) -> tuple[str, str, str]:
        return cell.repro, cell.case, cell.version

    found = last_seconds(stored, row)
    return {cell.id: found[row(cell.id)] for cell in cells if row(cell.id) in found}


def last_seconds(stored: Iterable[Stored], key: Callable[[CellId], Row]) -> dict[Row, float]:
    """Return from start to end of the newest record of each key, where it has both."""
    newest = {key(item.record.cell): item.record for item in by_age(stored)}
    found = {}
    for row, record in newest.items():
        with contextlib.suppress(ValueError, TypeError):
            moments = (record.started, record.finished)
            started, finished = (datetime.fromisoformat(each.replace("Z", "+00:00")) for each in moments)
            found[row] = max(0.0, (finished - started).total_seconds())
    return found


def by_age(stored: Iterable[Stored]) -> list[Stored]:
    """Return records as they were made, the oldest first."""
    return sorted(stored, key=lambda item: (item.record.started, item.record.run))


def order_launches(
    launches: Iterable[Launch], seconds: Seconds, is_here: Callable[[Launch], bool]
) -> list[Launch]:
    """Return launches in the order in which they start: what is here already, then the longest first."""

    def place(launch: Launch) -> tuple[bool, float]:
        return not is_here(launch), -sum(seconds.get(cell.id, 1.0) for cell in launch.cells)

    return sorted(launches, key=place)


def equal_boards(gpu: Gpu, boards: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return the boards that can stand for a GPU: of its model, variant and driver; at least itself."""
    facts = (gpu.slug, gpu.variant, gpu.driver)
    return tuple(b for b in boards if (b.slug, b.variant, b.driver) == facts) or (gpu,)


def split_launch(launch: Launch, parts: int, seconds: Seconds, stored: Iterable[Stored] = ()) -> list[Launch]:
    """Return a launch as at most so many stretches of its cells, each about equally long.

    Cells that have built the same engine, as ``stored`` records say, go together: only then it is built once.
    Those of one repro, which stand together, mostly stay so.
    """
    groups = share_engines(launch.cells, stored if parts > 1 else ())
    takes = [sum(seconds.get(cell.id, 1.0) for cell in group) for group in groups]
    shares, before, total = dict[int, list[Cell]](), 0.0, sum(takes) or 1.0
    for group, own in zip(groups, takes, strict=True):
        place = int(parts * (before + own / 2) / total)  # where its middle is; what takes no time has none
        shares.setdefault(min(place, parts - 1), []).extend(group)
        before += own
    return [launch.of(share) for share in shares.values()]


def share_engines(cells: Iterable[Cell], stored: Iterable[Stored]) -> list[list[Cell]]:
    """Return cells of one version in groups, in order; an engine that cells of two groups need is not known.

    The newest record of each case tells, of whatever version: an engine is named by its graph and options.
    """
    newest = {(item.record.cell.repro, item.record.cell.case): item.record for item in by_age(stored)}
    groups, owners = dict[int, list[Cell]](), dict[str, int]()
    for number, cell in enumerate(cells):
        record = newest.get((cell.repro.id, cell.case.id))
        builds = (record.data.get("builds") or [record.data]) if record else ()
        opened = (each for build in builds for each in (build.get("engine") or {}).get("engines", ()))
        names = {str(each.get("name")) for each in opened}
        mine, *others = sorted({owners[name] for name in names & owners.keys()}) or [number]
        groups.setdefault(mine, [])
        for other in others:
            groups[mine] += groups.pop(other)
            owners |= {name: mine for name, owner in owners.items() if owner == other}
        groups[mine].append(cell)
        owners |= dict.fromkeys(names, mine)
    return list(groups.values())


def group_cases(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return one cell of each case, those together that share work on the host, the largest group first.

    Cases that draw the same numbers share their reference, whatever the precision; those of a repro that
    emulates nothing may share all.
    """
    groups: dict[tuple[str, str], dict[str, Cell]] = {}
    for cell in cells:
        drawn = PRECISION.sub("", cell.case.noise_key)
        groups.setdefault((cell.repro.id, drawn), {}).setdefault(cell.case.id, cell)
    return sorted((list(group.values()) for group in groups.values()), key=len, reverse=True)


def cell_digests(cell: Cell, loaded: LoadedRepro) -> dict[str, str]:
    """Return the digests of a cell's repro and case, and of what is asked beside its parameters.

    Limits, expectations and the like are no part of what is asked: they judge what was measured.
    """
    case = cell.case
    asked: list[object] = [sorted(case.defects), case.builds, case.processes, case.seconds]
    if case.tolerance:  # the run counts what is beyond it
        asked.append(sorted(case.tolerance.items()))
    return {
        "repro": f"{loaded.digest[:HALF]}{loaded.code.authoring[:HALF]}",
        "case": case_digest(case),
        "asked": sha256(json.dumps(asked).encode()).hexdigest(),
    }


HALF = 32
"""A record's digest of a repro is that of its own code, then that of what it may import, so long each."""


def origin_digests(cell: Cell, host: Host, *, on_host: bool) -> dict[str, str]:
    """Return how a record's version must have been started to be current: the runtime, the image.

    A locked image is known whether it is here or not: under any of the IDs that engines give it.
    ``on_host``: interpreters of the host were asked for; their records are never a container's.
    """
    version, on_trt = cell.version, cell.version.product is Product.TENSORRT
    if on_host and on_trt:
        return {"runtime": "host"}
    image = None
    match version.origin:
        case WheelsOrigin(wheels=wheels):
            image = environment_digest(wheels)
        case ImageOrigin() as origin if cell.gpu.present or not on_trt:
            image = " ".join(origin.pin.ids) if origin.pin is not None else host.engine.held(origin)
    return {"runtime": version.runtime, **({"image": image} if image is not None else {})}


ELSEWHERE = "its records were published, not measured here"


def find_reason(
    entry: Entry, *, rerun: bool = False, rebuilds: int = 1, confirm: bool = True,
    current: Mapping[str, str] | None = None,
) -> str | None:  # fmt: skip
    """Return in words why a cell is run, or None where its records stand for it.

    They do where it was measured here, with what is here now; what came out is a fact; as many engines were
    measured as are asked for; and its verdict is believed. One that cannot run here is shown as it is.
    ``current``: the digests that it must have, which serve to say what has changed.
    """
    outcome, record, gpu = entry.outcome, entry.record, entry.cell.gpu
    if rerun:
        return "--rerun"
    if entry.evidence is not Evidence.MEASURED or outcome is None:
        if record is None:
            return "no record"
        if changes := find_changes(record, current or {}, entry.cell):
            return f"{'; '.join(changes)} changed since {record.started[:10]}"
        untold = "no job has told yet which boards and drivers the site's nodes have"
        return untold if gpu.remote and not gpu.seen else ELSEWHERE
    if outcome.cause is not None and outcome.cause.may_pass:
        return f"the last run failed for a reason that may be gone: {outcome.cause.value}"
    if entry.excluded is not None:
        return None
    if rebuilds > 1 and entry.records[0].ended == RAN and (built := count_engines(entry.records)) < rebuilds:
        return f"{counted(built, 'engine')} of the {rebuilds} asked for (--rebuilds)"
    if confirm and entry.wanted:
        seen = "it" if entry.cell.case.control is None else "the control"
        engines = f"{counted(entry.wanted, 'engine')} in a fresh process"
        return f"{seen} must be confirmed by {engines} ({full_words(outcome)})"
    return None


def find_changes(record: Record, current: Mapping[str, str], cell: Cell) -> list[str]:
    """Return in words what is not as it was when a record was made; ``current``: the digests to have.

    Of digests the first digits are told, as Docker shows them. Where no board is known, none has changed.
    """
    changes, gpu, case = list[str](), cell.gpu, f"{cell.repro.id}/{cell.case.id}"
    words = {
        "repro": f"repro {cell.repro.id}", "authoring": "what repros are built with (trtmatrix.authoring)",
        "case": f"parameters of {case}", "asked": f"defects, engines or time limit of {case}",
    }  # fmt: skip
    for name, now in current.items():
        before = str(record.digests.get(name, ""))
        if not is_digest_of(before, now):
            changed = "authoring" if name == "repro" and before[:HALF] == now[:HALF] else name
            old, new = (each.partition(" ")[0].rpartition(":")[2][:12] or "?" for each in (before, now))
            changes.append(words.get(changed, f"{changed} {old} → {new}"))
    boards: Sequence[Gpu] = () if not gpu.present else gpu.seen if gpu.remote else (gpu,)
    if not boards or gpu.is_seen(*(record.gpu.get(name) for name in BOARD)):
        return changes
    others = []
    for name, what in zip(BOARD, ("GPU", "GPU's variant", "driver"), strict=True):
        was, here = record.gpu.get(name), list(dict.fromkeys(getattr(board, name) for board in boards))
        if was not in here:
            others.append(f"{what} {was or '?'} → {' or '.join(str(value or 'none') for value in here)}")
    return [*changes, *(others or ["which boards have this driver"])]
