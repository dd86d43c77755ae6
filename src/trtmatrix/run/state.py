"""What a run works with and what comes of it: one object that the workers, executors and sessions share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trtmatrix.common.progress import Progress
from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.compare import Stored
from trtmatrix.judge.record import Record
from trtmatrix.launchers.launcher import Launcher
from trtmatrix.plan.order import Seconds
from trtmatrix.prepare.case_pool import Preparer
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.run.tasks import Clock, Task, new_run_id, utc_now
from trtmatrix.suite.gpus import Gpu
from trtmatrix.suite.model import CellId
from trtmatrix.suite.outcome import Exclusion
from trtmatrix.suite.plan import Excluded, Isolation, Launch
from trtmatrix.suite.repro_files import LoadedRepro

if TYPE_CHECKING:  # where nothing runs in an image, and no TensorRT, neither is imported
    from trtmatrix.api.section import SurfaceIntake
    from trtmatrix.launchers.images import Images

CELLS = "tests"
"""What progress calls cells."""


@dataclass(kw_only=True)
class Run:
    """One run. ``records`` and ``not_ready`` (cells whose launch could not be made ready) come of it.

    ``launchers``: by runtime. ``rebuilds``: the least number of engines of each cell. ``confirm``: failures
    are run again to be believed. ``stored``: the records that were there before. ``is_here``: whether a
    launch can start without a pull or an installation. ``surfaces`` asks for API surfaces that are not known.
    ``images`` is told which are wanted. ``sampled``: the cells whose PASS is seen again in a fresh process.
    ``prepared``: the cases (repro, case) whose files are there.
    ``stop``: the run is to end; ``leave``: what other hosts run goes on, as nobody asked for its end;
    ``hurry``: whoever ends it is not to wait for other hosts any longer.
    """

    id: str
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
    is_here: Callable[[Launch], bool] = lambda launch: not launch.lacks_image
    clock: Clock = utc_now
    stop: threading.Event = field(default_factory=threading.Event)
    leave: threading.Event = field(default_factory=threading.Event)
    hurry: threading.Event = field(default_factory=threading.Event)
    sampled: frozenset[CellId] = frozenset()
    prepared: set[tuple[str, str]] = field(default_factory=set)
    records: list[Record] = field(default_factory=list)
    not_ready: list[Excluded] = field(default_factory=list)

    def launcher_of(self, launch: Launch) -> Launcher:
        """Return what starts a launch."""
        return self.launchers["host" if launch.python else launch.version.runtime]

    def tasks_of(self, launch: Launch) -> list[Task]:
        """Return the first try of each of a launch's cells."""
        alone = self.isolation is not Isolation.WORKER
        return [
            Task(cell=cell, run=self.id, rebuilds=self.rebuilds, alone=alone) for cell in launch.cells
        ]  # fmt: skip

    def tasks_to_confirm(self, doubted: Sequence[tuple[Task, int]]) -> list[Task]:
        """Return the second try of tasks, alone and with so many engines each, as one run of its own."""
        self.progress.note(f"{doubted[0][0].cell.version.name}: {len(doubted)} verdicts are to be confirmed")
        self.progress.more(CELLS, len(doubted))
        run = new_run_id(self.clock)
        return [
            Task(cell=task.cell, run=run, rebuilds=engines, confirms=task.run, alone=True)
            for task, engines in doubted
        ]

    def leave_out(self, launch: Launch, detail: str) -> None:
        """Note that the cells of a launch are not run."""
        self.not_ready += [
            Excluded(cell=cell, why=Exclusion.NOT_READY, detail=detail) for cell in launch.cells
        ]


class Executor(Protocol):
    """Runs the launches on other hosts' GPUs, while this host runs its own (:mod:`.schedule`)."""

    def run(self, launches: Sequence[Launch], run: Run, seconds: Seconds) -> None:
        """Run all of them, and leave none behind where the run is to stop."""

    def jobs(self, launches: Iterable[Launch], stored: Sequence[Stored]) -> Sequence[PlannedJob]:
        """Return what it would submit for these launches; nothing is submitted."""


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job that an executor would submit: the cells of each task, its time limit, and the command."""

    version: str
    gpu: str
    tasks: tuple[tuple[str, ...], ...]
    minutes: int
    command: str
