"""Runs launches on a cluster: submits arrays, follows them, takes their records, submits again what was lost.

What is left to do is what has no record in the shared folder. A run is what one command submits; whoever
types that command again, or while it runs, follows the same jobs. All that decides what is submitted happens
under the shared folder's lock.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from trtmatrix.common.border import BorderError, read_json
from trtmatrix.common.errors import ExitCode, MachineryError
from trtmatrix.common.text import counted
from trtmatrix.judge.entry import Stored, outcome_word
from trtmatrix.judge.judge import judge
from trtmatrix.launchers.wheels import make_own_environment
from trtmatrix.plan.context import Context
from trtmatrix.plan.order import Seconds, estimate_seconds, known_seconds
from trtmatrix.plan.survey import Survey, digests_now
from trtmatrix.run.perform import Options
from trtmatrix.run.tasks import CELLS, PlannedJob, Run
from trtmatrix.slurm import commands
from trtmatrix.slurm.cluster import Cluster, record_names
from trtmatrix.slurm.commands import JobRefused, JobState, SlurmAway, Task
from trtmatrix.slurm.tasks import BEGAN, claim_of, cut_tasks, run_line, sbatch_words, task_script
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import CellId, Exclusion
from trtmatrix.suite.plan import Excluded, Launch
from trtprobe.files import write_json

TRIES = 3  # of a cell whose tasks leave no record of it and say nothing against trying again
SETTLE = 20  # looks at Slurm, one every few seconds, after which a file or job that is missing stays so
GONE_SECONDS = 45.0  # how long an interrupted run waits until its jobs are gone


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One sbatch of a run, in a folder of its own; ``tasks``: the ids of each task's cells."""

    folder: Path
    tasks: Sequence[Sequence[str]]

    @property
    def name(self) -> str:
        """The name of its jobs."""
        return f"trtmatrix-{self.folder.parent.name}.{self.folder.name}"

    @property
    def job(self) -> str:
        """The array's id; nothing as long as sbatch has not answered."""
        with contextlib.suppress(OSError):
            return (self.folder / "job").read_text().strip()
        return ""

    def codes(self) -> dict[int, int]:
        """Return the exit code of each task that has ended by itself."""
        found = {}
        for file in self.folder.glob("*.exit"):
            with contextlib.suppress(OSError, ValueError):
                found[int(file.stem)] = int(file.read_text())
        return found

    def said(self, task: int) -> tuple[bool, str]:
        """Return whether a task's script began, and the last that it says of itself, with its log."""
        log, lines = self.folder / f"{task}.log", list[str]()
        with contextlib.suppress(OSError):
            lines = log.read_text(errors="replace").strip().splitlines()
        ours = [line for line in lines if line.startswith(("trtmatrix: ", "[!!]", "slurmstepd"))]
        return BEGAN in lines, f"{(ours or lines or ['nothing'])[-1][:300]} ({log})"


@dataclass(frozen=True, kw_only=True)
class End:
    """How a task ended: its exit code, if it left one, Slurm's state and node, whether its script began."""

    code: int | None
    state: str
    node: str
    began: bool
    said: str

    @property
    def again(self) -> bool:
        """Whether what it left is tried again: no usage error, and nothing that a person cancelled."""
        return self.state != "CANCELLED" and self.code in {None, ExitCode.MACHINERY, ExitCode.INTERRUPTED}

    @property
    def is_late(self) -> bool:
        """Whether its last records may not be seen yet; with a missing exit code they were waited for."""
        waited = self.code is None and self.state in {"FAILED", ""}
        return self.began and self.code != ExitCode.USAGE and not waited

    def words(self, tries: int) -> str:
        """Say what kept the cells from being run."""
        how = f"{self.state or 'unknown to Slurm'}, exit code {'none' if self.code is None else self.code}"
        return f"the task ended on {self.node or 'no node'} ({how}), try {tries} of {TRIES}: {self.said}"


@dataclass(kw_only=True)
class Submitted:
    """One command's cells on their way, in a folder whose logs stay when it is closed.

    ``tries``: the tasks that had each cell. ``missing``: how many looks in a row a task was neither listed
    nor said how it ended; ``idle``: how many none lived.
    """

    folder: Path
    tries: dict[str, list[Task]] = field(default_factory=dict)
    ends: dict[Task, End] = field(default_factory=dict)
    missing: Counter[Task] = field(default_factory=Counter)
    idle: int = 0

    def past(self) -> dict[str, list[str]] | None:
        """Return each cell's records that were there before; None where it is closed."""
        data = _read(self.folder / "run.json")
        return None if data is None else data["past"]

    def submissions(self) -> list[Submission]:
        """Return what was submitted, in order."""
        read = [(folder, _read(folder / "tasks.json")) for folder in self.folder.glob("[0-9]*")]
        found = [Submission(folder=folder, tasks=data["tasks"]) for folder, data in read if data]
        return sorted(found, key=lambda sent: int(sent.folder.name))

    def add(self, tasks: Sequence[Sequence[str]]) -> Submission:
        """Make the folder of the next submission."""
        numbers = [int(folder.name) for folder in self.folder.glob("[0-9]*")]
        folder = self.folder / str(max(numbers, default=-1) + 1)
        folder.mkdir()
        write_json(folder / "tasks.json", {"tasks": tasks})
        return Submission(folder=folder, tasks=tasks)

    def living(self) -> dict[str, str]:
        """Return the arrays that have tasks which may live: name → job."""
        return {
            sent.name: sent.job for sent in self.submissions()
            if any((sent.name, task) not in self.ends for task in range(len(sent.tasks)))
        }  # fmt: skip

    def refresh(self) -> None:
        """Read anew what was submitted."""
        self.tries = {}
        for sent in self.submissions():
            for task, cells in enumerate(sent.tasks):
                for cell in cells:
                    self.tries.setdefault(cell, []).append((sent.name, task))

    def look(self, states: Mapping[Task, JobState]) -> None:
        """Note which tasks have ended: by Slurm's word, their exit code, or as nobody knows of them."""
        closed, arrays = self.past() is None, [(sent, sent.codes()) for sent in self.submissions()]
        for sent, codes, task in ((s, c, n) for s, c in arrays for n in range(len(s.tasks))):
            key = sent.name, task
            if key in self.ends:
                continue
            state, code = states.get(key), codes.get(task)
            if state is not None and state.is_stuck and sent.job:
                with contextlib.suppress(MachineryError):  # it is seen again at the next look
                    commands.run_command(["scancel", f"{sent.job}_{task}"])
            elif state is not None and not state.is_over:
                self.missing[key] = 0
                continue
            sure = closed or code is not None or (state and state.state not in {"COMPLETED", "FAILED"})
            self.missing[key] += 1  # its last files may take a while to be seen here
            if not sure and self.missing[key] < SETTLE:
                continue
            state, (began, said) = state or JobState(state=""), sent.said(task)
            if state.state == "CANCELLED" and state.node and not (began or closed):  # its prolog failed
                state = JobState(state="LAUNCH_FAILED", node=state.node)
            self.ends[key] = End(code=code, state=state.state, node=state.node, began=began, said=said)
        self.idle = 0 if self.living() else self.idle + 1


def open_run(root: Path, key: str) -> Submitted:
    """Return the open run of a command, or a new one, which is not there before it submits something."""
    new = root / "runs" / f"{key}.{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    files = sorted(root.glob(f"runs/{key}.*/run.json"))
    return Submitted(folder=files[0].parent if files else new)


def _read(file: Path) -> dict[str, Any] | None:
    """Return a JSON object of ours; None where it is not there, or damaged."""
    try:
        return read_json(file)
    except (OSError, BorderError):
        return None


class SlurmExecutor:
    """Runs launches on the cluster for one command."""

    def __init__(self, cluster: Cluster, context: Context, survey: Survey, options: Options) -> None:
        self.site, self.cluster, self.project = cluster.site, cluster, context.project
        self.options = [
            f"--memory={options.memory}", f"--output-size={options.output_size}",
            f"--rebuilds={options.rebuilds}", f"--isolation={options.isolation.value}",
            f"--keep={options.keep.value}", *([] if options.confirm else ["--no-confirm"]),
            *(["--locked"] if options.locked else []), *(["--offline"] if context.offline else []),
            *([f"--registry={context.matrix.registry}"] if context.matrix.registry else []),
        ]  # fmt: skip
        digests = digests_now(context, survey)
        # Of all cells that the command means, those served from the store too: what tells each from the same
        # cell wanted otherwise.
        self.claims = {
            cell.id: claim_of(cell.id, digests[cell.id])
            for launch in survey.plan.away for cell in launch.cells
        }  # fmt: skip
        self.known = known_seconds(survey.cells, survey.stored)
        wanted = [*sorted(self.claims.values()), *self.options, str(options.rerun)]
        self.key = sha256("\n".join(wanted).encode()).hexdigest()[:10]
        self.own = open_run(self.cluster.root, self.key)
        self.poll = float(os.environ.get("TRTMATRIX_SLURM_POLL", "3"))
        self._told: set[str] = set()
        self._lost: Counter[CellId] = Counter()
        self._pause = 0.0

    def jobs(self, launches: Iterable[Launch], stored: Sequence[Stored]) -> list[PlannedJob]:
        """Return the arrays that would be submitted first; RUN stands for the run's folder."""
        site, folder, planned = self.site, f"{self.site.shared}/runs/RUN/0", []
        for launch in launches:
            seconds = estimate_seconds(launch.cells, stored)
            tasks = cut_tasks(launch, {cell: s for cell, s in seconds.items() if cell in self.known}, site)
            gpu = site.gpu(launch.gpu.slug)
            words = sbatch_words(site, gpu, name="trtmatrix-RUN.0", folder=folder, tasks=len(tasks))
            planned.append(PlannedJob(
                version=launch.version.name, gpu=launch.gpu.slug, minutes=site.limits.minutes,
                tasks=tuple(tuple(str(cell.id) for cell in task) for task in tasks),
                command=shlex.join(["sbatch", *words, f"{folder}/task.sh"]),
            ))  # fmt: skip
        return planned

    def run(self, launches: Sequence[Launch], run: Run, seconds: Seconds) -> None:
        """Run all launches to their end, or until the run is to stop: then no job is left behind."""
        self.state = run
        self.seconds = {cell: seconds[cell] for cell in self.known if cell in seconds}
        self.open = {cell.id: cell for launch in launches for cell in launch.cells}
        past = self.own.past() or {}
        there, ours = self.cluster.local, self.project.local
        self.past = {
            cell: set(past[str(cell)])
            if str(cell) in past
            else record_names(there, cell) & record_names(ours, cell)
            for cell in self.open
        }
        try:
            if self._look() and not self.own.living():
                self._close()  # what a client that died has left: all of it is tried anew
            self._work(launches)
            if not run.stop.is_set():
                self._close()
            elif not run.leave.is_set() and self._cancel():
                self._close(cancelled=True)
        finally:  # an error or a hang-up ends nothing that runs: it may take hours
            if names := ",".join(self.own.living()):
                self.note(f"jobs go on, which the same command follows; to end them: scancel -n {names}")

    def _close(self, *, cancelled: bool = False) -> None:
        """Take what came of the run, and close it, unless another client has submitted more of it."""
        with self.cluster.lock():
            self._collect(self.past)
            if cancelled or not self.own.living():
                with contextlib.suppress(FileNotFoundError):  # another client was sooner
                    (self.own.folder / "run.json").rename(self.own.folder / "closed.json")
        self.own = open_run(self.cluster.root, self.key)

    def _work(self, launches: Sequence[Launch]) -> None:
        """Go round until every cell has a record or a reason, and no job of ours runs any more."""
        waiting = list(launches)
        while (self.open or self.own.living()) and not self.state.stop.is_set():
            for launch in list(waiting):
                if all((cell.repro.id, cell.case.id) in self.state.prepared for cell in launch.cells):
                    waiting.remove(launch)
                    for cell in launch.cells:
                        loaded = self.state.repros[cell.repro.id]
                        self.cluster.stage_case(self.state.cases.folder(loaded, cell.case))
            if self._look():
                self._collect(self.open)
                if self.own.tries and self.own.past() is None and self.own.idle > 2:
                    for cell in list(self.open.values()):
                        self._give_up(cell, "another client of this command ended it")
                for launch in (launch for launch in launches if launch not in waiting):
                    if idle := [cell for cell in launch.cells if self._is_idle(cell)]:
                        self._settle(launch, idle)
            if self.open or self.own.living():  # a task that lives may confirm what it has recorded
                self.state.stop.wait(self.poll)

    def _look(self) -> bool:
        """Ask Slurm once for all that is followed; returns False where it does not answer."""
        try:
            states = commands.jobs(self.own.living())
        except SlurmAway as error:
            self.note(f"Slurm does not answer, and is asked again: {error}")
            return False
        self.own.refresh()
        self.own.look(states)
        if counts := Counter(map(str, states.values())):
            self.note("Slurm: " + ", ".join(f"{count} {words}" for words, count in sorted(counts.items())))
        return True

    def _collect(self, cells: Iterable[CellId]) -> None:
        """Take the records that came of cells; a cell of which there is one is not open any more."""
        for cell in list(cells):
            if not (new := record_names(self.cluster.local, cell) - self.past[cell]):
                continue
            self.past[cell] |= new
            records = self.cluster.take(cell, new, self.project)
            self.state.records += records
            ours = [r for r in records if self.claims[cell] == claim_of(cell, r.digests)]
            if ours and (found := self.open.pop(cell, None)):
                outcome = judge(ours[:1], found, self.state.calibration)
                self.state.progress.step(CELLS, f"{cell}: {outcome_word(outcome)}")

    def _is_idle(self, cell: Cell) -> bool:
        """Whether a cell has no record, and no task is at it."""
        tries = self.own.tries.get(str(cell.id))
        return cell.id in self.open and (not tries or tries[-1] in self.own.ends)

    def _settle(self, launch: Launch, idle: Sequence[Cell]) -> None:
        """Submit the cells of a launch that nobody is at, as far as it is worth a try."""
        if time.monotonic() < self._pause:
            return
        with self.cluster.lock():
            if self.own.past() is None:  # another client of this command may have begun meanwhile
                if self.own.tries:
                    return
                self.own = open_run(self.cluster.root, self.key)
            self.own.refresh()
            todo, avoid, why = [], set[str](), ""
            for cell in filter(self._is_idle, idle):
                ends = [self.own.ends[task] for task in self.own.tries.get(str(cell.id), [])]
                self._lost[cell.id] += bool(ends)  # what a task left may take a while to be seen here
                if ends and ends[-1].is_late and self._lost[cell.id] < SETTLE * len(ends):
                    continue
                said = ends[-1].words(len(ends)) if ends else ""
                if ends and (not ends[-1].again or len(ends) >= TRIES):
                    self._give_up(cell, said)
                    continue
                todo.append(cell)
                why = why or said
                avoid |= {end.node for end in ends if end.code == ExitCode.MACHINERY and end.node}
            if todo and not self.state.stop.is_set():
                self._submit(launch.of(todo), avoid, why)

    def _submit(self, launch: Launch, avoid: Iterable[str], why: str) -> None:
        """Submit cells as one array; what Slurm refuses is told of and given up.

        ``why``: how the task ended that left them, where they were submitted before.
        """
        own, gpu = self.own, self.site.gpu(launch.gpu.slug)
        what = f"{launch.version.name} on {launch.gpu.name}"
        if why:
            self.note(f"again: {what}: {why}")
        past = {str(cell.id): sorted(self.past[cell.id]) for cell in launch.cells}
        own.folder.mkdir(exist_ok=True)
        write_json(own.folder / "run.json", {"past": {**past, **(own.past() or {})}})
        tasks = cut_tasks(launch, self.seconds, self.site)
        suite = self.cluster.stage_suite(self.project)
        python = str(make_own_environment(self.cluster.root, self.site.python, self.note))
        sent = own.add([[str(cell.id) for cell in task] for task in tasks])
        folder = str(sent.folder)
        lines = [run_line(task, self.site, gpu, suite=suite, options=self.options) for task in tasks]
        (sent.folder / "commands").write_text("".join(f"{line}\n" for line in lines))
        script = sent.folder / "task.sh"
        script.write_text(task_script(self.site, suite=suite, folder=folder, python=python))
        words = sbatch_words(self.site, gpu, name=sent.name, folder=folder, tasks=len(tasks), avoid=avoid)
        try:
            job = commands.submit(words, str(script))
        except JobRefused as error:
            (sent.folder / "tasks.json").unlink()  # its number stays taken: others may know it
            said = str(error).splitlines()[0]
            self.note(f"{what}: no other node: {said}" if why else f"{what}: {error}")
            for cell in launch.cells:
                self._give_up(cell, why or said)
        except SlurmAway as error:
            if not error.unknown:
                (sent.folder / "tasks.json").unlink()
                self._pause = time.monotonic() + 10 * self.poll
            self.note(f"{what}: {error}; it is tried again (fewer jobs at once: limits.tasks in slurm.yaml)")
        else:
            (sent.folder / "job").write_text(job)
            self.note(
                f"{what}: job {job}, {counted(len(launch.cells), 'cell')} in {counted(len(tasks), 'task')}"
            )

    def _give_up(self, cell: Cell, why: str) -> None:
        self.open.pop(cell.id, None)
        self.state.not_ready.append(Excluded(cell=cell, why=Exclusion.NOT_READY, detail=why))
        self.state.progress.step(CELLS, f"{cell.id}: not run")
        self.note(f"not run: {why}")

    def _cancel(self) -> bool:
        """End all jobs of this run and wait until they are gone; returns whether they are."""
        names, end, told = self.own.living(), time.monotonic() + GONE_SECONDS, False
        while time.monotonic() < end and not self.state.hurry.is_set():
            with contextlib.suppress(MachineryError):
                for name in [] if told else names:
                    commands.run_command(["scancel", "-n", name])
                told = True
                if all(state.is_over for state in commands.jobs(names).values()):
                    return True
            time.sleep(min(0.5, self.poll))
        return not names

    def note(self, text: str) -> None:
        """Say a line, once; a run that is to stop ends its jobs though nobody hears of it any more."""
        if text not in self._told:
            self._told.add(text)
            with contextlib.suppress(OSError):
                self.state.progress.note(text)
