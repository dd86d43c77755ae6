"""Watches one array at a time: takes what it left, and does what is to be done about its tasks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trtmatrix.cluster import Cluster
from trtmatrix.core.slurm.fate import Attempt, Bury, Fate, Over, Submit, Wait, decide
from trtmatrix.core.slurm.gather import attempts_of
from trtmatrix.core.slurm.jobs import Phase
from trtmatrix.core.slurm.layout import array_folder, said_file
from trtmatrix.core.slurm.manifest import Sent, Try
from trtmatrix.core.slurm.parse import find_task
from trtmatrix.core.slurm.submission import task_numbers
from trtmatrix.core.slurm.words import Trouble
from trtmatrix.effects.slurm import SlurmAway
from trtmatrix.slurm_collecting import Collecting
from trtmatrix.slurm_following import Following
from trtmatrix.slurm_orphans import orphan_of
from trtmatrix.slurm_queue import Queue
from trtmatrix.slurm_submitting import Submitting
from trtmatrix.worklist import Worklist


@dataclass(frozen=True, kw_only=True)
class View:
    """What lies on the shared folder of an array at a moment."""

    tries: Sequence[Try]
    sents: Sequence[Sent]
    stopping: bool


@dataclass(kw_only=True)
class Watch:
    """What watches arrays for one client."""

    cluster: Cluster
    queue: Queue
    submitting: Submitting
    collecting: Collecting

    def follow(self, one: Following, work: Worklist) -> bool:
        """Take what is there, and act where that is to be done; returns whether something changed."""
        view = self._look(one)
        changed = self.collecting.take(one, work, view.tries)
        fates = {task: self._fate(one, task, view) for task in one.tasks}
        for task, fate in fates.items():
            changed = self._take(one, work, task, fate, view) or changed
        in_doubt = any(sent.is_open for sent in view.sents)
        may_send = self.submitting.may_send(one.key)
        steps = [fate.step for fate in fates.values() if fate is not None]
        if any(isinstance(step, Bury) or (isinstance(step, Submit) and may_send) for step in steps):
            with self.cluster.folder.lock():
                changed = self._act(one) or changed
        elif in_doubt and not self.queue.away:
            with self.cluster.folder.lock():
                self.submitting.recover(one, self.queue.jobs, self._silent(one))
        one.doubted = one.doubted if in_doubt else None
        self._tell(one, view)
        return changed

    def _look(self, one: Following) -> View:
        folder = self.cluster.folder
        sents = folder.submissions(one.key)  # first: a try that is seen has been submitted, or not at all
        return View(tries=folder.tries(one.key), sents=sents, stopping=bool(folder.stopping(one.key)))

    def _attempts(self, task: int, view: View) -> tuple[Attempt, ...]:
        return attempts_of(task, view.tries, view.sents, self.queue.seen, time.monotonic())

    def _fate(self, one: Following, task: int, view: View) -> Fate | None:
        """Return what becomes of a task; None while that hangs on a Slurm that does not answer."""
        attempts = self._attempts(task, view)
        last = attempts[-1].left if attempts else None
        if self.queue.away and not (last and last.published and last.trouble != Trouble.CANCELLED):
            return None
        pace = self.submitting.pace
        fate = decide(
            one.manifest.tasks[task], attempts, stopping=view.stopping, settle=pace.settle, silent=pace.silent
        )
        return self._held(one, fate)

    def _held(self, one: Following, fate: Fate) -> Fate:
        """Submit nothing while its image is not to be had: it waits, or is over where that lasts."""
        if not isinstance(fate.step, Submit):
            return fate
        failed = self.submitting.images.failure(one.launch.version, one.manifest.image)
        if failed is None:
            return fate
        over = Over(left=fate.step.indices, why=str(failed))
        return replace(fate, step=over if failed.lasting else Wait(why=str(failed)))

    def _take(self, one: Following, work: Worklist, task: int, fate: Fate | None, view: View) -> bool:
        """Record what a task left no record of, and note that it is over where it is."""
        if fate is None:
            return False
        for fault in fate.faults:
            if one.is_open(task, fault.index):
                said = self._with_import(one, fault.detail)
                see = self._see(one, task, fault.attempt, view)
                self.collecting.fault(one, work, task, replace(fault, detail=said), view.tries, see)
        match fate.step:
            case Over(left=left, why=why):
                last = max((each.attempt for each in view.tries if each.task == task), default=0)
                see = self._see(one, task, last, view)
                self.collecting.refuse(one, work, task, left, why or "its job was ended", see)
            case Wait() | Submit() | Bury():
                pass
        if one.is_settled(task):  # what is left of it, if any, is another client's wish
            one.over.add(task)
            return True
        return False

    def _with_import(self, one: Following, detail: str) -> str:
        """Return a detail with what the import of the image came to, where that is why."""
        trouble = self.submitting.images.trouble(one.launch.version, one.manifest.image)
        return f"{trouble} ({detail})" if trouble else detail

    def _see(self, one: Following, task: int, attempt: int, view: View) -> str:
        """Say where the words of an attempt's script lie, where it left some."""
        sents = [s.job for s in view.sents if s.job and s.attempt == attempt and task in s.tasks]
        jobs = [t.job for t in view.tries if (t.task, t.attempt) == (task, attempt) and t.job] or sents
        folder = array_folder(self.cluster.site.shared, one.key)
        files = [Path(said_file(folder, task, attempt, job)) for job in jobs]
        return next((f"; see {file}" for file in files if file.is_file() and file.stat().st_size), "")

    def _act(self, one: Following) -> bool:
        """Bury and submit, under the lock, by what lies on the shared folder now."""
        view, steps, buried = self._look(one), dict[int, Submit](), False
        for task in one.tasks:
            fate = self._fate(one, task, view)
            match fate.step if fate else None:
                case Bury() as step:
                    buried = self._bury(one, task, step, view) or buried
                case Submit() as step if self.submitting.may_send(one.key):
                    steps[task] = step
                case _:
                    pass
        self._tell_again(one, steps, view)
        if steps:
            self.submitting.send(one, steps)
            self.queue.hurry()
        return buried or bool(steps)

    def _tell_again(self, one: Following, steps: Mapping[int, Submit], view: View) -> None:
        """Say why tasks are attempted again, once for those that are for the same reason."""
        told: dict[str, list[int]] = {}
        for task, step in steps.items():
            if step.why and not step.again:
                told.setdefault(step.why.splitlines()[0][:300], []).append(task)
        for why, tasks in told.items():
            first = steps[tasks[0]]
            see = self._see(one, tasks[0], first.attempt - 1, view) if first.retry else ""
            word = "task" if len(tasks) == 1 else "tasks"
            self.submitting.note(f"{one.name}: {word} {task_numbers(tasks)} again: {why}{see}")

    def _bury(self, one: Following, task: int, step: Bury, view: View) -> bool:
        """Write down how a job ended of which only Slurm can tell, and cancel one that never runs."""
        last = self._attempts(task, view)[-1]
        sent = last.sent
        if step.cancel and sent is not None and sent.job:
            try:
                self.submitting.slurm.cancel([f"{sent.job}_{task}"])
            except SlurmAway:
                return False
        if step.state == "CANCELLED" and step.node and sent is not None and not last.left.job:
            step = self._launched(step, sent.job, task)
        self.cluster.folder.note_gone(one.key, task, step.attempt, step.state, step.reason, step.node)
        return True

    def _launched(self, step: Bury, job: str, task: int) -> Bury:
        """Return how a job ended on a node before its script began: by its launch, or by this user.

        Slurm cancels what it cannot launch; the node is out of use then, and Slurm says why. Only accounting
        knows who cancels a job in that moment.
        """
        slurm = self.submitting.slurm
        known = find_task(slurm.past([job]), job, task)
        if known is not None and slurm.is_person(known.by):
            return replace(step, node="")
        return replace(step, reason=slurm.drained(step.node) or step.reason)

    def _silent(self, one: Following) -> float:
        """Return for how long Slurm has answered since a submission was in doubt."""
        if one.doubted is None:
            one.doubted = self.queue.answered
        return self.queue.answered - one.doubted

    def close(self, one: Following) -> None:
        """Follow an array no longer; who is the last one closes it, where nothing more comes of it.

        Where more does, the command that began it goes on with it; that its jobs run on is told.
        """
        orphan = None
        with self.cluster.folder.lock():
            others = self.submitting.client.followed_by_others()
            if one.key not in others:
                if self._is_over(one):
                    self.cluster.folder.close_array(one.key, "collected")
                else:
                    orphan = orphan_of(self.cluster.folder, one.manifest, self.queue.jobs)
            self.submitting.client.leave([one.key])
        if orphan is not None and orphan.jobs:
            self.submitting.note(orphan.tell())

    def _is_over(self, one: Following) -> bool:
        """Whether no task of an array is left, those included of which not all was wanted here."""
        view = self._look(one)
        had = one.taken.union((each.task, each.indices[n]) for each in view.tries for n in each.records)
        left = (
            task for task, cells in enumerate(one.manifest.tasks)
            if any((task, index) not in had for index in range(len(cells)))
        )  # fmt: skip
        fates = (self._fate(one, task, view) for task in left)
        return all(fate is not None and isinstance(fate.step, Over) for fate in fates)

    def _tell(self, one: Following, view: View) -> None:
        """Say how many tasks run and wait, and why they do, where that changed."""
        jobs = {sent.job for sent in view.sents if sent.job}
        mine = [job for job in self.queue.jobs if job.job in jobs and job.phase is not Phase.GONE]
        phases = Counter(job.phase for job in mine)
        reasons = {job.reason for job in mine if job.phase is Phase.WAITING}
        reasons -= {"", "None"}
        counts = (("running", phases[Phase.RUNNING]), ("waiting", phases[Phase.WAITING]))
        said = ", ".join(f"{count} {word}" for word, count in counts if count)
        told = f"{said} ({', '.join(sorted(reasons))})" if reasons else said
        if told and told != one.told and (reasons or phases[Phase.RUNNING]):
            self.submitting.note(f"{one.name}: {told}")
        one.told = told
