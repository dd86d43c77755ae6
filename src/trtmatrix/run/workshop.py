"""What a run works with, and what the host adds to every record."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from trtmatrix.api.section import SurfaceIntake
from trtmatrix.common.progress import Progress
from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.compare import Stored
from trtmatrix.judge.record import SCHEMA, Record
from trtmatrix.launchers.images import Images
from trtmatrix.launchers.launcher import Launcher
from trtmatrix.plan.digests import cell_digests
from trtmatrix.prepare.case_pool import Preparer
from trtmatrix.prepare.cases import CaseCache, read_content
from trtmatrix.records.store import keep_record
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.gpus import Gpu
from trtmatrix.suite.model import Cause
from trtmatrix.suite.plan import Isolation, Launch
from trtmatrix.suite.repro_files import LoadedRepro


class Clock(Protocol):
    """Tells the time in UTC."""

    def __call__(self) -> datetime:
        """Return now, with its time zone."""


def utc_now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(timezone.utc)


CELLS = "cells"
"""The stretch of work that progress tells of."""


def has_image(launch: Launch) -> bool:
    """Whether nothing must be pulled or built for a launch."""
    return not launch.lacks_image


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """What a run works with: launchers by runtime, folders, digests, progress, clock.

    ``rebuilds``: the least number of engines of each cell. ``confirm``: failures are run again to be
    believed. ``stored``: the records that were there before. ``is_here``: whether a launch can start without
    a pull or an installation. ``surfaces`` asks for API surfaces that nobody has. ``images`` hears which are
    wanted. ``stop``: the run is to end; ``leave``: with what runs on other hosts left running, as nobody
    asked for its end; ``hurry``: who ends it is to wait for that no longer. ``prepared``: the cases (repro,
    case) whose files are there.
    """

    launchers: Mapping[str, Launcher]
    repros: Mapping[str, LoadedRepro]
    cases: CaseCache
    preparer: Preparer
    cache: Path
    local: Path
    probe_digest: str
    progress: Progress
    gpu_clocks: Callable[[Gpu], dict[str, Any]]
    output_bytes: int
    calibration: Calibration
    stored: Sequence[Stored] = ()
    surfaces: SurfaceIntake | None = None
    images: Images | None = None
    rebuilds: int = 1
    confirm: bool = True
    isolation: Isolation = Isolation.WORKER
    is_here: Callable[[Launch], bool] = has_image
    clock: Clock = utc_now
    stop: threading.Event = field(default_factory=threading.Event)
    leave: threading.Event = field(default_factory=threading.Event)
    hurry: threading.Event = field(default_factory=threading.Event)
    prepared: set[tuple[str, str]] = field(default_factory=set)

    def launcher_of(self, launch: Launch) -> Launcher:
        """Return who starts a launch."""
        return self.launchers["host" if launch.python else launch.version.runtime]


@dataclass(frozen=True, kw_only=True)
class Order:
    """How a cell is run: its run's id, the least number of engines, the run that is confirmed.

    ``alone``: in a fresh process that serves no other cell. ``files``: the folder of the case's files, where
    it is another than the case's own.
    """

    run: str
    rebuilds: int = 1
    confirms: str = ""
    alone: bool = False
    files: str = ""


def new_run_id(clock: Clock) -> str:
    """Return an id that sorts by time and that no other run has."""
    return f"{clock().strftime('%Y%m%dt%H%M%S')}-{os.urandom(4).hex()}"


def host_facts(
    cell: Cell, digests: Mapping[str, str], clocks: Mapping[str, Any], shop: Workshop
) -> dict[str, Any]:
    """Return what the host adds to a record: digests, and the GPU as NVML sees it."""
    loaded = shop.repros[cell.repro.id]
    own = {"probe": shop.probe_digest}
    if (folder := shop.cases.folder(loaded, cell.case)).is_dir():  # a launch may fail before a case is there
        own["content"] = read_content(folder)
    return {"digests": {**cell_digests(cell, loaded), **digests, **own}, "gpu": gpu_facts(cell.gpu, clocks)}


def gpu_facts(gpu: Gpu, clocks: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record says of its GPU; only the name where nobody knows which board it was.

    A board of a node has its host, as a hash: drivers are a host's. One of this host has none: a
    workstation's name says who sits before it, and the board's own hash tells it apart.
    """
    if not gpu.present:
        return {}
    if not gpu.is_board:
        return {"name": gpu.name}
    host = {"host": gpu.host} if gpu.host else {}
    return {
        "name": gpu.name, "compute": gpu.compute, "variant": gpu.variant, "driver": gpu.driver,
        "uuid_sha256": gpu.uuid_hash, "clocks": dict(clocks), **host,
    }  # fmt: skip


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
    shop.progress.step(CELLS, f"{cell.id}: {cause.value}")
    return keep_record(shop.local, data)
