"""One version kept open: trials are handed in one at a time, and one warm process answers them all.

A search asks a version dozens of small questions. Each would start a container and pay for TensorRT's
first Builder (6.6 s at 8.6.0), while the trial itself takes under a second. A session starts the probe
once, with the first trial, and feeds it cell by cell as a run does (:mod:`.batch`). A process that
a trial crashes or hangs is replaced for the next one.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.interrupts import undisturbed
from trtmatrix.common.progress import NoProgress
from trtmatrix.judge.entry import Entry, Stored
from trtmatrix.judge.record import RAN, Record
from trtmatrix.launchers.launcher import Ready
from trtmatrix.plan.context import Context
from trtmatrix.plan.scene import digests_now, entries_of, look_around
from trtmatrix.plan.stale import find_reason
from trtmatrix.run.batch import Batch, Stopped
from trtmatrix.run.perform import Options, able, make_workshop, tidy
from trtmatrix.run.run import run_batch
from trtmatrix.run.storing import Kept, Storing
from trtmatrix.run.worklist import Task
from trtmatrix.run.workshop import Order, Workshop, new_run_id, utc_now
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Cause
from trtmatrix.suite.plan import Launch, Pull
from trtmatrix.suite.repro_files import LoadedRepro
from trtprobe.files import CaseFiles, strict
from trtprobe.measure import measure_output

POLL_SECONDS = 0.1
"""How often a caller who waits for a record looks whether the session itself has failed."""


class Session:
    """A version at which models are tried. A context manager: on every way out nothing is left running.

    For one thread. ``gpu``: the slug of the GPU, empty for the CPU.
    """

    def __init__(self, context: Context, version: str, gpu: str) -> None:
        """Take a context that has a case for the version; records go into its folder of results."""
        selection = replace(context.selection, versions=(version,), gpus=(gpu,) if gpu else (), cases=())
        self.version = version
        self._context = replace(context, controls=False, selection=selection)
        self._trials = HandedIn(new_run_id(utc_now))
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Session:
        """Look at what is here and which records there are; the first trial starts the container."""
        cache = self._context.project.cache
        (cache / "sessions").mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(dir=cache / "sessions"))
        try:
            self._folder.chmod(0o755)
            options = Options(confirm=False, quiet=True)
            scene = tidy(self._context, look_around(self._context, Pull.NEVER), options, frozenset())
            self._scene = able(self._context, scene, options, frozenset())
            shown = replace(self._context, project=replace(self._context.project, repros=self._folder))
            shop = make_workshop(shown, self._scene, options, NoProgress(sys.stderr))
            self._repros: dict[str, LoadedRepro] = {}
            self._shop = replace(shop, surfaces=None, repros=self._repros)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._stored = list(self._scene.stored)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """End the process and remove its container; a second interrupt does not cut that short."""
        with undisturbed():
            self._end(at_once=kind is not None)
            shutil.rmtree(self._folder, ignore_errors=True)

    def ask(self, loaded: LoadedRepro, *, builds: int = 0, results: Path | None = None) -> Entry:
        """Try a repro's only case and return what it shows; records that still stand are not made again.

        ``builds``: how many engines, if not as many as the case asks for. ``results``: the record is a
        lasting one and goes there, measured in a fresh process as a run would. :class:`MachineryError` where
        the version cannot be run here.
        """
        cell = self._cell_of(loaded, builds)
        known = replace(self._context, repros={loaded.repro.id: loaded})
        scene = replace(self._scene, cells=(cell,))
        mine = [item for item in self._stored if item.record.cell == cell.id]
        (entry,) = entries_of(known, scene, mine)
        current = digests_now(known, scene)[cell.id]
        if results is None and find_reason(entry, confirm=False, current=current) is None:
            return entry
        record = self._run(loaded, cell, results)
        stored = Stored(record=record, local=True)
        if results is None:
            self._stored.append(stored)
        (entry,) = entries_of(known, scene, [*mine, stored], executed=frozenset({record.run}))
        return entry

    def _cell_of(self, loaded: LoadedRepro, builds: int) -> Cell:
        launch = self._launch()
        (case,) = loaded.repro.cases
        if builds:
            case = replace(case, builds=builds)
        return replace(launch.cells[0], repro=replace(loaded.repro, cases=(case,)), case=case)

    def _launch(self) -> Launch:
        """Return how the version is started; :class:`MachineryError` with the reason where it is not."""
        plan = self._scene.plan
        launches = [launch for launch in plan.launches if launch.version.name == self.version]
        if not launches:
            reasons = {item.detail or item.why.value for item in plan.excluded} or {"nothing to run it with"}
            raise MachineryError(f"{self.version} cannot be run here: {'; '.join(sorted(reasons))}")
        boards = [board for board in plan.boards if board.slug == launches[0].gpu.slug]
        return launches[0].on(boards[0]) if boards and launches[0].gpu.present else launches[0]

    def _run(self, loaded: LoadedRepro, cell: Cell, results: Path | None) -> Record:
        """Run one cell in the open process and return its record."""
        if self._thread is None:
            self._start()
        folder = self._shop.cases.prepare(loaded, cell.case)
        self._shop.prepared.add((cell.repro.id, cell.case.id))
        order = Order(run=new_run_id(self._shop.clock), alone=results is not None)
        file = self._folder / f"{order.run.replace('-', '_')}.py"
        shutil.copyfile(loaded.file, file)
        self._repros[cell.repro.id] = replace(loaded, file=file)
        bare = None
        if results is None and not cell.case.tolerance:  # a tolerance is counted by the run itself
            bare = _without_reference(folder)
            order = replace(order, files=bare.name)
        try:
            self._storing.lasting = results
            return self._trials.run_one(Task(cell=cell, order=order), self._check)
        except BaseException:
            self._end(at_once=True)
            raise
        finally:
            file.unlink(missing_ok=True)
            if bare is not None:
                shutil.rmtree(bare, ignore_errors=True)

    def _start(self) -> None:
        if self._shop.stop.is_set():
            raise MachineryError(f"{self.version}: the session has ended")
        launch = self._launch()
        ready = self._shop.launcher_of(launch).make_ready(launch)
        self._storing = _StoringTrials(ready, self._shop, self._trials)
        self._thread = threading.Thread(target=self._serve, args=(ready,))
        self._thread.start()

    def _serve(self, ready: Ready) -> None:
        """Run the probe as long as there are trials; where it dies, it is started again for the next one."""
        try:
            while self._trials.wait():
                batch = Batch(ready, self._trials, self._storing, self._shop)
                batch.settle(run_batch(batch, self._shop.launcher_of(ready.launch), self._shop))
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
            self._error = error

    def _check(self) -> None:
        """Raise what ended the session, where something has."""
        if self._error is not None:
            raise self._error
        if self._thread is not None and not self._thread.is_alive():
            raise MachineryError(f"{self.version}: the session has ended")

    def _end(self, *, at_once: bool) -> None:
        if at_once:
            self._shop.stop.set()
        self._trials.close()
        if self._thread is not None:
            with undisturbed():
                self._thread.join()


class HandedIn:
    """The trials of a session, one at a time; what a batch takes in place of a worklist. For two threads."""

    def __init__(self, run: str) -> None:
        """Name the run that the job's folder is called by."""
        self.run = run
        self._changed = threading.Condition()
        self._waiting: list[Task] = []
        self._out: list[Task] = []
        self._answers: dict[str, Record] = {}
        self._closed = False

    def run_one(self, task: Task, check: Callable[[], None]) -> Record:
        """Hand in a task and wait for its record; ``check`` is called meanwhile and may raise."""
        with self._changed:
            self._waiting.append(task)
            self._changed.notify_all()
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: task.order.run in self._answers, POLL_SECONDS):
                    return self._answers.pop(task.order.run)
            check()

    def answer(self, task: Task, record: Record) -> None:
        """Take the record of a task."""
        with self._changed:
            self._answers[task.order.run] = record
            self._changed.notify_all()

    def wait(self) -> bool:
        """Wait until there is a trial; False where none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return bool(self._waiting)

    def close(self) -> None:
        """Say that no trial will come any more."""
        with self._changed:
            self._closed, self._waiting = True, []
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """Whether nothing is left to run, and nothing will come."""
        with self._changed:
            return self._closed and not (self._waiting or self._out)

    def take(self, most: int | None = None) -> list[Task]:
        """Return the tasks that can be run now."""
        with self._changed:
            taken, self._waiting = self._waiting[:most], self._waiting[len(self._waiting[:most]) :]
            self._out += taken
            return taken

    def ended(self, task: Task, engines: int = 0) -> None:
        """Note that a task is done; a trial is never confirmed."""
        del engines
        with self._changed:
            self._out.remove(task)

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Take back tasks that were not run."""
        with self._changed:
            self._out = [task for task in self._out if task not in tasks]
            self._waiting = [*tasks, *self._waiting]

    def drop(self) -> list[Task]:
        """Return all tasks and forget them."""
        with self._changed:
            left = [*self._out, *self._waiting]
            self._out, self._waiting = [], []
            return left


class _StoringTrials(Storing):
    """Stores a trial's record and hands it to who waits for it; ``lasting``: where, instead of the usual."""

    def __init__(self, ready: Ready, shop: Workshop, trials: HandedIn) -> None:
        super().__init__(ready, shop)
        self._own, self._trials = shop, trials
        self.lasting: Path | None = None

    def store(self, task: Task, data: dict[str, Any], folder: Path) -> Kept:
        self.shop = replace(self._own, local=self.lasting / "local") if self.lasting else self._own
        if task.order.files:
            case = self.shop.cases.folder(self.shop.repros[task.cell.repro.id], task.cell.case)
            _measure(data, folder, CaseFiles(case))
        kept = super().store(task, data, folder)
        self._trials.answer(task, kept.record)
        return kept

    def fail(self, task: Task, cause: Cause, detail: str) -> Kept:
        kept = super().fail(task, cause, detail)
        self._trials.answer(task, kept.record)
        return kept


def _without_reference(case: Path) -> Path:
    """Return a copy of a case's folder that has no reference, so that the probe compares nothing.

    An output of another shape than its reference would cost the probe its warm process.
    """
    bare = Path(tempfile.mkdtemp(prefix="bare-", dir=case.parent))
    bare.chmod(0o755)
    for file in case.rglob("*"):
        inside = file.relative_to(case)
        if file.is_file() and inside.parts[0] not in {"reference", "defects"}:
            (bare / inside).parent.mkdir(parents=True, exist_ok=True)
            os.link(file, bare / inside)
    return bare


def _measure(data: dict[str, Any], folder: Path, case: CaseFiles) -> None:
    """Fill in a trial's measurements from the outputs that it left, as the probe would have done.

    An output of another shape than its reference has none; the record says so and names both shapes.
    """
    import numpy as np

    kept = data.pop("kept", {})
    reference, shapes = case.reference, dict[str, str]()
    if data["ended"] != RAN or not reference:
        return
    for number, build in [(0, data), *enumerate(data.get("builds", ()))]:
        measured: dict[str, Any] = {}
        for name in build["measurements"]["outputs"]:
            mark = f"@{number}" if number else ""
            output = np.load(folder / f"{name}{mark}.npy", mmap_mode="r") if name + mark in kept else None
            if output is None or name not in reference:
                continue
            if output.shape != reference[name].shape:
                shapes[name] = f"shape {output.shape}, the reference has {reference[name].shape}"
            else:
                measured[name] = strict(measure_output(np.asarray(output), reference[name]))
        build["measurements"]["outputs"] = measured
    if shapes:
        data["ended"] = Cause.PROBE_FAILED.value
        data["detail"] = "; ".join(f"{name}: {words}" for name, words in sorted(shapes.items()))
