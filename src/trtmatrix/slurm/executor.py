"""Runs launches on a cluster: submits arrays, follows them, takes their records, submits again what was lost.

What is left to do is what has no record in the shared folder. A run is the cells that one command claims
there; whoever types that command again, or while it runs, follows the same jobs. All that decides what is
submitted happens under the shared folder's lock.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from trtmatrix.core.errors import MachineryError
from trtmatrix.core.expand import Cell
from trtmatrix.core.judge import judge
from trtmatrix.core.model import CellId, Exclusion
from trtmatrix.core.order import Seconds
from trtmatrix.core.plan import Excluded, Launch
from trtmatrix.core.words import outcome_word
from trtmatrix.effects.paths import Project
from trtmatrix.performed import Performed
from trtmatrix.slurm.cluster import Cluster
from trtmatrix.slurm.commands import JobState, Refused, Slurm, SlurmAway
from trtmatrix.slurm.shared import RunFolder, Submission
from trtmatrix.slurm.tasks import (
    RunOptions,
    claim_of,
    cut_tasks,
    run_line,
    sbatch_words,
    task_minutes,
    task_script,
)
from trtmatrix.workshop import CELLS, Workshop

TRIES = 3
"""How often a cell is submitted whose task leaves no record of it and says nothing against trying again."""
SETTLE = 20
"""Looks at Slurm, one every few seconds, after which what has not appeared will not: a file, a job, a client."""
GONE_SECONDS = 45.0
"""How long an interrupted run waits until its jobs are gone."""
USAGE, MACHINERY, INTERRUPTED = 2, 3, 130
States = Mapping[tuple[str, int], JobState]


def poll_seconds() -> float:
    """Return the seconds between two looks at Slurm (TRTMATRIX_SLURM_POLL)."""
    return float(os.environ.get("TRTMATRIX_SLURM_POLL", "3"))


@dataclass(frozen=True, kw_only=True)
class End:
    """How a task ended: its exit code, None where it left none; Slurm's state and node; where it ran."""

    code: int | None
    state: str
    node: str
    where: str

    @property
    def again(self) -> bool:
        """Whether what it left is tried again: no usage error, and nothing that a person cancelled."""
        return self.state != "CANCELLED" and self.code in {None, MACHINERY, INTERRUPTED}

    def words(self, tries: int) -> str:
        """Say what kept the cells from being run."""
        how = f"exit code {self.code}" if self.code is not None else "no exit code"
        on = f" on {self.node}" if self.node else ""
        return f"the task ended{on} ({self.state or 'unknown to Slurm'}, {how}) {self.where}, try {tries} of {TRIES}"


@dataclass(kw_only=True)
class Following:
    """One run that is looked at: this command's own, or one that has claimed cells which this one wants.

    ``claims``: its cells, where it is another command's. ``missing``: how many looks in a row each task was
    neither listed nor said how it ended; ``idle``: how many the whole had no task that lives.
    """

    run: RunFolder
    claims: frozenset[str] = frozenset()
    ends: dict[tuple[str, int], End] = field(default_factory=dict)
    missing: Counter[tuple[str, int]] = field(default_factory=Counter)
    idle: int = 0

    def living(self) -> dict[str, str]:
        """Return the arrays that have tasks which may live: name → job."""
        return {sent.name: sent.job for sent, task in self.tasks() if (sent.name, task) not in self.ends}

    def tasks(self) -> Iterator[tuple[Submission, int]]:
        """Yield each task that was submitted."""
        for sent in self.run.submissions():
            yield from ((sent, task) for task in range(len(sent.tasks)))

    def look(self, states: States, slurm: Slurm) -> None:
        """Note which tasks have ended: by their exit code, by Slurm's word, or as nobody knows of them."""
        codes = {sent.name: sent.codes() for sent in self.run.submissions()}
        for sent, task in self.tasks():
            key = sent.name, task
            if key in self.ends:
                continue
            state, code = states.get(key), codes[sent.name].get(task)
            if code is None and state is not None and state.is_stuck:
                slurm.cancel([sent.name])
                state = JobState(state="LAUNCH_FAILED", node=state.node, reason=state.reason)
            elif state is not None and not state.is_over:
                self.missing[key] = 0
                continue
            lasting = state is not None and state.state not in {"COMPLETED", "FAILED"}
            self.missing[key] += 1  # its last files may take a while to be seen here
            if code is None and not lasting and self.missing[key] < SETTLE:
                continue
            if state is None and code is None and sent.job:
                state = slurm.accounted(sent.job).get(task)
            said = state or JobState(state="")
            self.ends[key] = End(code=code, state=said.state, node=said.node, where=_said(sent, task))
        self.idle = 0 if self.living() else self.idle + 1


def _said(sent: Submission, task: int) -> str:
    """Return a task's log with the last that it says of itself."""
    with contextlib.suppress(OSError):
        lines = sent.log(task).read_text(errors="replace").strip().splitlines()
        ours = [line for line in lines if line.startswith(("trtmatrix: ", "[!!]", "slurmstepd"))]
        if lines:
            return f"{sent.log(task)}: {(ours or lines)[-1][:300]}"
    return f"{sent.log(task)}: it says nothing"


class SlurmRun:
    """What runs launches on the cluster for one command."""

    def __init__(
        self, cluster: Cluster, project: Project, shop: Workshop, options: RunOptions,
        claims: Mapping[CellId, str], known: Iterable[CellId], slurm: Slurm | None = None,
    ) -> None:  # fmt: skip
        """Keep what it works with.

        ``claims``: of all cells that the command means, those served from the store too, what tells each from
        the same cell wanted otherwise. ``known``: the cells of which it is known how long they take.
        """
        self.site, self.shared, self.project = cluster.site, cluster.shared, project
        self.shop, self.options, self.claims, self.known = shop, options, claims, frozenset(known)
        self.slurm = slurm or Slurm()
        command = sha256("\n".join([*sorted(claims.values()), *options.words(), str(options.rerun)]).encode()).hexdigest()[:10]
        self.own = Following(run=self.shared.run(command))
        self.others: dict[str, Following] = {}
        self.open: dict[CellId, Cell] = {}
        self.past: dict[CellId, set[str]] = {}
        self.poll = poll_seconds()
        self._told: set[str] = set()
        self._lost: Counter[CellId] = Counter()

    def run(self, launches: Sequence[Launch], run: str, seconds: Seconds, performed: Performed) -> None:
        """Run all launches to their end, or until the run is to stop: then no job is left behind."""
        del run  # each task has its own
        self.seconds = {cell: seconds[cell] for cell in self.known if cell in seconds}
        self.performed = performed
        self.open = {cell.id: cell for launch in launches for cell in launch.cells}
        before = (self.own.run.facts() or {"past": {}})["past"]
        for cell in self.open:
            self.past[cell] = set(before.get(str(cell)) or self.shared.known_here(cell, self.project))
        try:
            if self._look() and not self.own.living():
                self._close()  # what a client that died has left: all of it is tried anew
            self._work(launches)
            if self.shop.stop.is_set() and not self.shop.leave.is_set():
                self._cancel()
        except BaseException:
            self._tell_left()  # an error ends nothing that runs: it may take hours
            raise
        if self.shop.leave.is_set():
            self._tell_left()
            return
        self._close()

    def _close(self) -> None:
        """Take what came of the run, and close it."""
        with self.shared.lock():
            self._collect(self.past)
            self.shared.close(self.own.run)
        self.own = Following(run=self.shared.run(self.own.run.key))

    def _work(self, launches: Sequence[Launch]) -> None:
        """Go round until every cell has a record or a reason, and no job of ours runs any more."""
        waiting = list(launches)
        while (self.open or self.own.living()) and not self.shop.stop.is_set():
            for launch in list(waiting):
                if all((cell.repro.id, cell.case.id) in self.shop.prepared for cell in launch.cells):
                    waiting.remove(launch)
                    for cell in launch.cells:
                        loaded = self.shop.repros[cell.repro.id]
                        self.shared.stage_case(self.shop.cases.folder(loaded, cell.case))
            if self._look():
                self._collect(self.open)
                for launch in launches:
                    if launch not in waiting and any(map(self._is_idle, launch.cells)):
                        self._settle(launch)
            if self.open or self.own.living():
                self.shop.stop.wait(self.poll)

    def _look(self) -> bool:
        """Ask Slurm once for all that is followed; returns False where it does not answer."""
        followed = [self.own, *self.others.values()]
        try:
            states = self.slurm.jobs([name for each in followed for name in each.living()])
        except SlurmAway as error:
            self.note(f"Slurm does not answer, and is asked again: {error}")
            return False
        for each in followed:
            each.look(states, self.slurm)
        for key, other in list(self.others.items()):
            if other.run.facts() is None:
                del self.others[key]
            elif other.idle >= SETTLE:
                self.note(f"run {key} is nobody's any more: what it left is run here")
                with self.shared.lock():
                    self.shared.close(other.run)
                del self.others[key]
        counts = Counter(
            f"{state.state.lower()} ({state.reason})" if state.state == "PENDING" else state.state.lower()
            for (name, _), state in states.items() if name in self.own.living()
        )  # fmt: skip
        if counts:
            self.note("Slurm: " + ", ".join(f"{count} {words}" for words, count in sorted(counts.items())))
        return True

    def _collect(self, cells: Iterable[CellId]) -> None:
        """Take the records that came of cells; a cell of which there is one is not open any more."""
        for cell in list(cells):
            if not (new := self.shared.names(cell) - self.past[cell]):
                continue
            self.past[cell] |= new
            records = self.shared.take(cell, sorted(new), self.project)
            self.performed.records += records
            ours = [r for r in records if claim_of(cell, r.digests, self.options.rebuilds) == self.claims[cell]]
            if ours and cell in self.open:
                found = self.open.pop(cell)
                outcome = judge(ours[:1], found.case, found.version, found.repro, self.shop.calibration)
                self.shop.progress.step(CELLS, f"{cell}: {outcome_word(outcome)}")

    def _owner(self, cell: CellId) -> Following | None:
        """Return the other open run that has claimed a cell, wanted in the same way."""
        return next((o for o in self.others.values() if self.claims[cell] in o.claims), None)

    def _tries(self, cell: CellId) -> list[tuple[str, int]]:
        return [(sent.name, task) for sent, task in self.own.tasks() if str(cell) in sent.tasks[task]]

    def _is_idle(self, cell: Cell) -> bool:
        """Whether a cell has no record, and nobody is at it."""
        if cell.id not in self.open or self._owner(cell.id) is not None:
            return False
        tries = self._tries(cell.id)
        return not tries or tries[-1] in self.own.ends

    def _settle(self, launch: Launch) -> None:
        """Claim and submit the cells of a launch that nobody is at, as far as it is worth a try."""
        with self.shared.lock():
            self._find_others()
            todo, avoid, why = [], set[str](), ""
            for cell in filter(self._is_idle, launch.cells):
                tries = self._tries(cell.id)
                if not tries:
                    todo.append(cell)
                    continue
                end = self.own.ends[tries[-1]]
                self._lost[cell.id] += 1  # what a task left may take a while to be seen here
                if not end.again and end.code in {0, 1} and self._lost[cell.id] < SETTLE:
                    continue
                if not end.again or len(tries) >= TRIES:
                    self._give_up(cell, end.words(len(tries)))
                    continue
                why = end.words(len(tries))
                self.note(f"again: {launch.version.name} on {launch.gpu.name}: {why}")
                todo.append(cell)
                ends = [self.own.ends[one] for one in tries]
                avoid |= {one.node for one in ends if one.code == MACHINERY and one.node}
            if todo and not self.shop.stop.is_set():
                self._claim(todo)
                self._submit(launch.of(todo), avoid, why)

    def _find_others(self) -> None:
        """Look which open runs have claimed cells that are open here. Call it under the lock."""
        wanted = {self.claims[cell] for cell in self.open}
        for run in self.shared.runs():
            facts = run.facts() if run.key not in {self.own.run.key, *self.others} else None
            if facts is not None and wanted & set(facts["claims"]):
                other = Following(run=run, claims=frozenset(facts["claims"]))
                self.others[run.key] = other
                jobs = ", ".join(sorted(filter(None, other.living().values())))
                self.note(
                    f"another command runs {len(wanted & other.claims)} of these cells (run {run.key}, jobs "
                    f"{jobs or 'not submitted yet'}): they are not run twice, their records are waited for"
                )

    def _claim(self, cells: Iterable[Cell]) -> None:
        """Write down that cells are this run's. Call it under the lock."""
        facts = self.own.run.facts() or {"claims": [], "past": {}}
        mine = [cell.id for cell in cells]
        self.own.run.write({
            "claims": sorted({*facts["claims"], *(self.claims[cell] for cell in mine)}),
            "past": {**{str(cell): sorted(self.past[cell]) for cell in mine}, **facts["past"]},
        })  # fmt: skip

    def _submit(self, launch: Launch, avoid: Iterable[str], why: str) -> None:
        """Submit cells as one array; what Slurm refuses is told of and given up. Call it under the lock.

        ``why``: how the task ended that left them, where they were submitted before.
        """
        gpu, tasks = self.site.gpu(launch.gpu.slug), cut_tasks(launch, self.seconds, self.site)
        what = f"{launch.version.name} on {launch.gpu.name}"
        suite, python = self.shared.stage_suite(self.project), self.shared.python(self.site.python)
        sent = self.own.run.add(
            launch.version.name, launch.gpu.slug, [[cell.id for cell in task] for task in tasks]
        )
        folder, minutes = str(sent.folder), task_minutes(tasks, self.seconds, self.site)
        lines = [run_line(task, self.site, gpu, suite=suite, options=self.options) for task in tasks]
        (sent.folder / "commands").write_text("".join(f"{line}\n" for line in lines))
        script = sent.folder / "task.sh"
        script.write_text(task_script(self.site, suite=suite, folder=folder, python=python))
        words = sbatch_words(
            self.site, gpu, name=sent.name, folder=folder, tasks=len(tasks), minutes=minutes, avoid=avoid
        )
        try:
            job = self.slurm.submit(words, str(script))
        except Refused as error:
            self.own.run.drop(sent)
            said = str(error).splitlines()[0]
            self.note(f"{what}: no other node: {said}" if why else f"{what}: {error}")
            for cell in launch.cells:
                self._give_up(cell, why or said)
        except SlurmAway as error:
            if not error.unknown:
                self.own.run.drop(sent)
            self.note(f"{what}: {error}; it is tried again")
        else:
            (sent.folder / "job").write_text(job)
            self.note(
                f"{what}: job {job}, {len(launch.cells)} cells in {len(tasks)} tasks, "
                f"at most {minutes} minutes each"
            )

    def _give_up(self, cell: Cell, why: str) -> None:
        """Note why a cell is not run."""
        self.open.pop(cell.id, None)
        self.performed.not_ready.append(Excluded(cell=cell, why=Exclusion.NOT_READY, detail=why))
        self.shop.progress.step(CELLS, f"{cell.id}: not run")
        self.note(f"not run: {why}")

    def _cancel(self) -> None:
        """End all jobs of this run and wait until they are gone; what had come out is kept."""
        names, end = self.own.living(), time.monotonic() + GONE_SECONDS
        if not names:
            return
        self.slurm.cancel(names)
        while time.monotonic() < end and not self.shop.hurry.is_set():
            states = self.slurm.jobs(names)
            if all(state.is_over for state in states.values()):
                return
            time.sleep(min(0.5, self.poll))
        raise MachineryError(f"jobs still end: squeue -n {','.join(names)}")

    def _tell_left(self) -> None:
        """Say what goes on without this client, and how it is ended."""
        if names := self.own.living():
            self.note(
                f"jobs {', '.join(filter(None, names.values()))} go on; the same command follows them; "
                f"to end them: scancel -n {','.join(names)}"
            )

    def note(self, text: str) -> None:
        """Say a line, once; a run that is to stop ends its jobs though nobody hears of it any more."""
        if text not in self._told:
            self._told.add(text)
            with contextlib.suppress(OSError):
                self.shop.progress.note(text)
