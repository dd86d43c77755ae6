"""One version kept open: models are tried one at a time, and one warm process answers them all.

A search asks a version dozens of small questions. Each would start a container and pay for TensorRT's
first Builder (6.6 s at 8.6.0), while the trial itself takes under a second. A session starts the probe
once, with the first trial, and feeds it task by task as a run does (:mod:`.worker`). A process that
a trial crashes or hangs is replaced for the next one.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from trtmatrix.common.border import remove_tree
from trtmatrix.common.errors import MachineryError, undisturbed
from trtmatrix.common.progress import Progress
from trtmatrix.judge.entry import Entry, Stored
from trtmatrix.judge.record import Record
from trtmatrix.plan.context import Context
from trtmatrix.plan.order import find_reason
from trtmatrix.plan.survey import digests_now, entries_of, take_survey
from trtmatrix.run.execute import run_tasks
from trtmatrix.run.perform import Options, make_ready, make_run
from trtmatrix.run.tasks import Task, TaskQueue, new_run_id
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.plan import Launch, Pull
from trtmatrix.suite.repro_files import LoadedRepro

POLL_SECONDS = 0.02


class Session:
    """A version at which models are tried. A context manager: on every way out nothing is left running.

    For one thread. ``gpu``: the slug of the GPU, empty for the CPU.
    """

    def __init__(self, context: Context, version: str, gpu: str) -> None:
        """Take a context that has a case for the version; records go into its folder of results."""
        selection = replace(context.selection, versions=(version,), gpus=(gpu,) if gpu else (), cases=())
        self.version = version
        self._context = replace(context, controls=False, selection=selection)
        self._queue = TaskQueue(closed=False)
        self._threads = ThreadPoolExecutor(1)
        self._serving: Future[None] | None = None  # runs the probe as long as there are trials

    def __enter__(self) -> Session:
        """Look at what is here and which records there are; the first trial starts the container."""
        sessions = self._context.project.cache / "sessions"
        sessions.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(dir=sessions))
        try:
            self._folder.chmod(0o755)
            options = Options(confirm=False, quiet=True)
            self._survey = make_ready(self._context, take_survey(self._context, Pull.NEVER), options)
            shown = replace(self._context, project=replace(self._context.project, repros=self._folder))
            run = make_run(shown, self._survey, options, Progress(sys.stderr, quiet=True))
            self._repros: dict[str, LoadedRepro] = {}
            self._run = replace(run, repros=self._repros, reads_api=False)
        except BaseException:
            remove_tree(self._folder)
            raise
        self._stored = list(self._survey.stored)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """End the process and remove its container; a second interrupt does not cut that short."""
        with undisturbed():
            self._end(at_once=kind is not None)
            remove_tree(self._folder)

    def ask(self, loaded: LoadedRepro, *, builds: int = 0, results: Path | None = None) -> Entry:
        """Try a repro's only case and return what it shows; records that still stand are not made again.

        ``builds``: how many engines, if not as many as the case asks for. ``results``: where the record goes
        and lasts, measured in a fresh process. :class:`MachineryError` where the version cannot be run here.
        """
        (case,) = loaded.repro.cases
        case = replace(case, builds=builds) if builds else case
        cell = replace(self._launch().cells[0], repro=replace(loaded.repro, cases=(case,)), case=case)
        known = replace(self._context, repros={loaded.repro.id: loaded})
        survey = replace(self._survey, cells=(cell,))
        mine = [item for item in self._stored if item.record.cell == cell.id]
        (entry,) = entries_of(known, survey, mine)
        current = digests_now(known, survey)[cell.id]
        if results is None and find_reason(entry, confirm=False, current=current) is None:
            return entry
        record = self._measure(loaded, cell, results)
        stored = Stored(record=record, local=True)
        if results is None:
            self._stored.append(stored)
        (entry,) = entries_of(known, survey, [*mine, stored], executed=frozenset({record.run}))
        return entry

    def _launch(self) -> Launch:
        """Return how the version is started; :class:`MachineryError` with the reason where it is not."""
        plan = self._survey.plan
        launches = [launch for launch in plan.launches if launch.version.name == self.version]
        if not launches:
            reasons = {item.detail or item.why.value for item in plan.excluded} or {"nothing to run it with"}
            raise MachineryError(f"{self.version} cannot be run here: {'; '.join(sorted(reasons))}")
        boards = [board for board in plan.boards if board.slug == launches[0].gpu.slug]
        return launches[0].on(boards[0]) if boards else launches[0]

    def _measure(self, loaded: LoadedRepro, cell: Cell, results: Path | None) -> Record:
        """Run one cell in the open process, which the first one starts, and return its record."""
        run = self._run
        if self._serving is None and not run.stop.is_set():
            launch = self._launch()
            ready = run.launcher_of(launch).make_ready(launch)
            self._serving = self._threads.submit(run_tasks, ready, self._queue, run)
        run.cases.prepare(loaded, cell.case)
        number = new_run_id(run.clock())
        file = self._folder / f"{number.replace('-', '_')}.py"
        shutil.copyfile(loaded.file, file)
        self._repros[cell.repro.id] = replace(loaded, file=file)
        run.local = (results or self._context.project.results) / "local"
        lasting = results is not None
        try:
            self._queue.add(Task(cell=cell, run=number, alone=lasting, keep=lasting))
            found, lives = list[Record](), True
            while lives and not found:
                time.sleep(POLL_SECONDS)
                lives = self._serving is not None and not self._serving.done()
                found = [record for record in run.records if record.run == number]
        except BaseException:
            self._end(at_once=True)
            raise
        finally:
            file.unlink(missing_ok=True)
        if not found:
            self._end(at_once=True)
            error = self._serving and self._serving.exception()
            raise error or MachineryError(f"{self.version}: the session has ended")
        run.records.clear()
        return found[0]

    def _end(self, *, at_once: bool) -> None:
        if at_once:
            self._run.stop.set()
        self._queue.close()
        with undisturbed():
            self._threads.shutdown()
