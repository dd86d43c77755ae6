"""Runs launches on a cluster: submits arrays, follows them, takes their records, submits again what was lost.

What is left to do is what has no record in the shared folder. A run is what one command submits; whoever
types that command again after its client died follows the same jobs, and while it is at work waits for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from trtmatrix.common.border import read_json
from trtmatrix.common.errors import ExitCode, MachineryError
from trtmatrix.common.text import counted
from trtmatrix.judge.entry import outcome_word
from trtmatrix.judge.judge import judge
from trtmatrix.launchers.wheels import make_own_environment
from trtmatrix.plan.context import Context
from trtmatrix.plan.order import known_seconds
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

    def words(self, tries: int) -> str:
        """Say what kept the cells from being run."""
        how = f"{self.state or 'unknown to Slurm'}, exit code {'none' if self.code is None else self.code}"
        return f"the task ended on {self.node or 'no node'} ({how}), try {tries} of {TRIES}: {self.said}"


@dataclass(kw_only=True)
class Submission:
    """One sbatch of a run, in a folder of its own.

    ``tasks``: the ids of each task's cells; ``job``: the array's id, nothing where sbatch has not answered.
    ``missing``: how many looks in a row a task was neither listed nor said how it ended.
    """

    folder: Path
    tasks: Sequence[Sequence[str]]
    job: str = ""
    ends: dict[int, End] = field(default_factory=dict)
    missing: Counter[int] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        """The name of its jobs."""
        return f"trtmatrix-{self.folder.parent.name}.{self.folder.name}"

    def look(self, states: Mapping[Task, JobState]) -> None:
        """Note which tasks have ended: by Slurm's word, their exit code, or as nobody knows of them."""
        for task in range(len(self.tasks)):
            if task in self.ends:
                continue
            state, code = states.get((self.name, task)), None
            with contextlib.suppress(OSError, ValueError):
                code = int((self.folder / f"{task}.exit").read_text())
            if state is not None and state.is_stuck and self.job:
                with contextlib.suppress(MachineryError):  # it is seen again at the next look
                    commands.run_command(["scancel", f"{self.job}_{task}"])
            elif state is not None and not state.is_over:
                self.missing[task] = 0
                continue
            sure = code is not None or (state and state.state not in {"COMPLETED", "FAILED"})
            self.missing[task] += 1  # its last files may take a while to be seen here
            if not sure and self.missing[task] < SETTLE:
                continue
            state, (began, said) = state or JobState(state=""), self._said(task)
            failed = state.state == "CANCELLED" and state.node and not began  # its prolog
            told = "LAUNCH_FAILED" if failed else state.state
            self.ends[task] = End(code=code, state=told, node=state.node, began=began, said=said)

    def _said(self, task: int) -> tuple[bool, str]:
        """Return whether a task's script began, and the last that it says of itself, with its log."""
        log, lines = self.folder / f"{task}.log", list[str]()
        with contextlib.suppress(OSError):
            lines = log.read_text(errors="replace").strip().splitlines()
        ours = [line for line in lines if line.startswith(("trtmatrix: ", "[!!]", "slurmstepd"))]
        return BEGAN in lines, f"{(ours or lines or ['nothing'])[-1][:300]} ({log})"


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
        self.known, self.stored = known_seconds(survey.cells, survey.stored), survey.stored
        wanted = [*sorted(self.claims.values()), *self.options, str(options.rerun)]
        self.key = sha256("\n".join(wanted).encode()).hexdigest()[:10]
        self._begin()
        self.poll = float(os.environ.get("TRTMATRIX_SLURM_POLL", "3"))
        self._told: set[str] = set()
        self._lost: Counter[CellId] = Counter()
        self._pause = 0.0

    def jobs(self, launches: Iterable[Launch]) -> list[PlannedJob]:
        """Return the arrays that would be submitted first; RUN stands for the run's folder."""
        site, folder, planned = self.site, f"{self.site.shared}/runs/RUN/0", []
        for launch in launches:
            tasks, gpu = cut_tasks(launch, self.known, site, self.stored), site.gpu(launch.gpu.slug)
            words = sbatch_words(site, gpu, name="trtmatrix-RUN.0", folder=folder, tasks=len(tasks))
            planned.append(PlannedJob(
                version=launch.version.name, gpu=launch.gpu.slug, minutes=site.limits.minutes,
                tasks=tuple(tuple(str(cell.id) for cell in task) for task in tasks),
                command=shlex.join(["sbatch", *words, f"{folder}/task.sh"]),
            ))  # fmt: skip
        return planned

    def run(self, launches: Sequence[Launch], run: Run) -> None:
        """Run all launches to their end, or until the run is to stop: then no job is left behind."""
        self.state = run
        self.open = {cell.id: cell for launch in launches for cell in launch.cells}
        there, ours = self.cluster.local, self.project.local
        self.past = {cell: record_names(there, cell) & record_names(ours, cell) for cell in self.open}
        with self._alone():
            if run.stop.is_set():
                return
            self._resume()
            try:
                if self._look() and not self._living():
                    self._close()  # what a client that died has left: all of it is tried anew
                self._work(launches)
                if not run.stop.is_set() or (not run.leave.is_set() and self._cancel()):
                    self._close()
            finally:  # an error or a hang-up ends nothing that runs: it may take hours
                if names := ",".join(self._living()):
                    self.note(f"jobs go on, which the same command follows; to end them: scancel -n {names}")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until no other client of this command is at work, or the run is to stop."""
        with (self.cluster.root / "runs" / f"{self.key}.lock").open("a") as stream:
            while not self.state.stop.is_set():
                try:
                    fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except (BlockingIOError, PermissionError):
                    self.note("another client of this command is at work: what comes of it is waited for")
                    self.state.stop.wait(self.poll)
            yield

    def _begin(self) -> None:
        """Begin a run, whose folder is not there before something is submitted."""
        name = f"{self.key}.{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        self.folder, self.sent = self.cluster.root / "runs" / name, list[Submission]()

    def _resume(self) -> None:
        """Go on with the run that a client of this command has left open, if there is one."""
        for file in sorted(self.cluster.root.glob(f"runs/{self.key}.*/run.json"))[:1]:
            self.folder = file.parent
            past = read_json(file)["past"]
            self.past |= {cell: set(past[str(cell)]) for cell in self.open if str(cell) in past}
            tasks = self.folder.glob("[0-9]*/tasks.json")
            for sent in sorted((each.parent for each in tasks), key=lambda folder: int(folder.name)):
                job = sent / "job"
                self.sent.append(Submission(
                    folder=sent, tasks=read_json(sent / "tasks.json")["tasks"],
                    job=job.read_text() if job.is_file() else "",
                ))  # fmt: skip

    def _living(self) -> list[str]:
        """Return the names of the arrays that have tasks which may live."""
        return [sent.name for sent in self.sent if len(sent.ends) < len(sent.tasks)]

    def _close(self) -> None:
        """Take what came of the run, and close it; its logs stay."""
        self._collect(self.past)
        with contextlib.suppress(FileNotFoundError):  # nothing was submitted
            (self.folder / "run.json").rename(self.folder / "closed.json")
        self._begin()

    def _work(self, launches: Sequence[Launch]) -> None:
        """Go round until every cell has a record or a reason, and no job of ours runs any more."""
        waiting = list(launches)
        while (self.open or self._living()) and not self.state.stop.is_set():
            for launch in list(waiting):
                if all((cell.repro.id, cell.case.id) in self.state.prepared for cell in launch.cells):
                    waiting.remove(launch)
                    for cell in launch.cells:
                        loaded = self.state.repros[cell.repro.id]
                        self.cluster.stage_case(self.state.cases.folder(loaded, cell.case))
            if self._look():
                self._collect(self.open)
                for launch in (launch for launch in launches if launch not in waiting):
                    self._settle(launch)
            if self.open or self._living():  # a task that lives may confirm what it has recorded
                self.state.stop.wait(self.poll)

    def _look(self) -> bool:
        """Ask Slurm once for all that is followed; returns False where it does not answer."""
        try:
            states = commands.jobs(self._living())
        except SlurmAway as error:
            self.note(f"Slurm does not answer, and is asked again: {error}")
            return False
        for sent in self.sent:
            sent.look(states)
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

    def _settle(self, launch: Launch) -> None:
        """Submit the cells of a launch that nobody is at, as far as it is worth a try."""
        if time.monotonic() < self._pause:
            return
        tries = defaultdict[str, list[End | None]](list)  # how each task ended that had a cell, if it has
        for sent in self.sent:
            for task, cells in enumerate(sent.tasks):
                for name in cells:
                    tries[name].append(sent.ends.get(task))
        todo, avoid, why = [], set[str](), ""
        for cell in launch.cells:
            ends = [end for end in tries[str(cell.id)] if end]
            if cell.id not in self.open or len(ends) < len(tries[str(cell.id)]):
                continue
            self._lost[cell.id] += bool(ends)  # what a task left may take a while to be seen here
            late = bool(ends) and ends[-1].began and ends[-1].code != ExitCode.USAGE
            if late and self._lost[cell.id] < SETTLE * len(ends):
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
        gpu = self.site.gpu(launch.gpu.slug)
        what = f"{launch.version.name} on {launch.gpu.name}"
        if why:
            self.note(f"again: {what}: {why}")
        tasks = cut_tasks(launch, self.known, self.site, self.stored)
        suite = self.cluster.stage_suite(self.project)
        python = str(make_own_environment(self.cluster.root, self.site.python, self.note))
        folder = self.folder / str(len([*self.folder.glob("[0-9]*")]))
        folder.mkdir(parents=True)
        if not (self.folder / "run.json").exists():
            past = {str(cell): sorted(names) for cell, names in self.past.items()}
            write_json(self.folder / "run.json", {"past": past})
        sent = Submission(folder=folder, tasks=[[str(cell.id) for cell in task] for task in tasks])
        lines = [run_line(task, self.site, gpu, suite=suite, options=self.options) for task in tasks]
        (folder / "commands").write_text("".join(f"{line}\n" for line in lines))
        script, own = folder / "task.sh", str(folder)
        script.write_text(task_script(self.site, suite=suite, folder=own, python=python))
        words = sbatch_words(self.site, gpu, name=sent.name, folder=own, tasks=len(tasks), avoid=avoid)
        write_json(folder / "tasks.json", {"tasks": sent.tasks})
        try:
            sent.job = commands.submit(words, str(script))
            (folder / "job").write_text(sent.job)
            cells = f"{counted(len(launch.cells), 'cell')} in {counted(len(tasks), 'task')}"
            self.note(f"{what}: job {sent.job}, {cells}")
        except JobRefused as error:
            (folder / "tasks.json").unlink()
            said = str(error).splitlines()[0]
            self.note(f"{what}: no other node: {said}" if why else f"{what}: {error}")
            for cell in launch.cells:
                self._give_up(cell, why or said)
            return
        except SlurmAway as error:
            self.note(f"{what}: {error}; it is tried again (fewer jobs at once: limits.tasks in slurm.yaml)")
            if not error.unknown:
                (folder / "tasks.json").unlink()
                self._pause = time.monotonic() + 10 * self.poll
                return
        self.sent.append(sent)

    def _give_up(self, cell: Cell, why: str) -> None:
        self.open.pop(cell.id, None)
        self.state.not_ready.append(Excluded(cell=cell, why=Exclusion.NOT_READY, detail=why))
        self.state.progress.step(CELLS, f"{cell.id}: not run")
        self.note(f"not run: {why}")

    def _cancel(self) -> bool:
        """End all jobs of this run and wait until they are gone; returns whether they are."""
        names, end, told = self._living(), time.monotonic() + GONE_SECONDS, False
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
