"""What a run works with, and what the host adds to every record."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from trtmatrix.core.calibration import Calibration
from trtmatrix.core.compare import Stored
from trtmatrix.core.expand import Cell
from trtmatrix.core.model import Cause, CellId, Gpu
from trtmatrix.core.record import SCHEMA, Record
from trtmatrix.effects.cases import CaseCache, case_digest, digest_authoring, read_content
from trtmatrix.effects.launcher import Launcher
from trtmatrix.effects.progress import Progress
from trtmatrix.effects.repro_files import LoadedRepro
from trtmatrix.effects.store import write_record


class Clock(Protocol):
    """Tells the time in UTC."""

    def __call__(self) -> datetime:
        """Return now, with its time zone."""


def utc_now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(timezone.utc)


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """What a run works with: launchers by runtime, folders, digests, progress, clock.

    ``rebuilds``: the least number of engines of each cell. ``confirm``: failures are run again to be
    believed. ``stored``: the records that were there before.
    """

    launchers: Mapping[str, Launcher]
    repros: Mapping[str, LoadedRepro]
    cases: CaseCache
    cache: Path
    local: Path
    probe_digest: str
    progress: Progress
    gpu_clocks: Callable[[Gpu], dict[str, Any]]
    output_bytes: int
    calibration: Calibration
    stored: Sequence[Stored] = ()
    rebuilds: int = 1
    confirm: bool = True
    clock: Clock = utc_now
    stop: threading.Event = field(default_factory=threading.Event)
    prepared: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, kw_only=True)
class Order:
    """How cells are run: their run's id, the least number of engines, the run that is confirmed."""

    run: str
    rebuilds: int = 1
    confirms: str = ""


def new_run_id(clock: Clock) -> str:
    """Return an id that sorts by time and that no other run has."""
    return f"{clock().strftime('%Y%m%dt%H%M%S')}-{os.urandom(4).hex()}"


def current_digests(
    cells: Sequence[Cell],
    repros: Mapping[str, LoadedRepro],
    probe: str,
    origin: Callable[[Cell], Mapping[str, str]],
) -> dict[CellId, dict[str, str]]:
    """Return the digests that a record of each cell must have to count as current.

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
    """Return the digests of a cell's repro and case."""
    return {
        "repro": f"{loaded.repro.digest[:32]}{digest_authoring()[:32]}",
        "case": case_digest(cell.case),
    }


def host_facts(
    cell: Cell, digests: Mapping[str, str], clocks: Mapping[str, Any], shop: Workshop
) -> dict[str, Any]:
    """Return what the host adds to a record: digests, and the GPU as NVML sees it."""
    loaded = shop.repros[cell.repro.id]
    gpu: dict[str, Any] = {}
    if cell.gpu.present:
        gpu = {
            "name": cell.gpu.name, "compute": cell.gpu.compute, "variant": cell.gpu.variant,
            "driver": cell.gpu.driver, "uuid_sha256": cell.gpu.uuid_hash, "clocks": dict(clocks),
        }  # fmt: skip
    own = {"probe": shop.probe_digest, "content": read_content(shop.cases.folder(loaded, cell.case))}
    return {"digests": {**cell_digests(cell, loaded), **digests, **own}, "gpu": gpu}


def failed_record(
    cell: Cell, order: Order, cause: Cause, detail: str, digests: Mapping[str, str], shop: Workshop
) -> Record:
    """Store the record of a cell for which the probe could not leave one."""
    moment = shop.clock().strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    data = {
        "schema": SCHEMA, "cell": vars(cell.id), "run": order.run, "product": cell.version.product.value,
        "ended": cause.value, "detail": detail[:4000], "started": moment, "finished": moment,
        "attempts": 1, "observed": {}, "environment": {}, "engine": {},
        "measurements": {"outputs": {}, "scalars": {}}, "log": "", **host_facts(cell, digests, {}, shop),
        **({"confirms": order.confirms} if order.confirms else {}),
    }  # fmt: skip
    shop.progress.step(f"{cell.id}: {cause.value}")
    return write_record(shop.local, data)
