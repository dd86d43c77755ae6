"""Runs launches through Slurm: submits, watches the shared folder and the queue, stores, goes on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trtmatrix.cluster import Cluster
from trtmatrix.core.container import Limits
from trtmatrix.core.model import CellId
from trtmatrix.core.order import Seconds
from trtmatrix.core.plan import Launch
from trtmatrix.core.slurm.fate import Bury, Fate, Over, Submit, Wait, decide
from trtmatrix.core.slurm.gather import Sightings, attempts_of
from trtmatrix.core.slurm.jobs import JobStatus, Phase
from trtmatrix.core.slurm.manifest import Try
from trtmatrix.core.slurm.words import Trouble
from trtmatrix.effects.shared_clients import Client
from trtmatrix.effects.slurm import Refused, Slurm, SlurmAway
from trtmatrix.performed import Performed
from trtmatrix.slurm_collecting import Collecting
from trtmatrix.slurm_ending import end_arrays
from trtmatrix.slurm_following import Following
from trtmatrix.slurm_images import SlurmImages
from trtmatrix.slurm_pace import Pace, read_pace
from trtmatrix.slurm_staging import stage_cases, stage_suite
from trtmatrix.slurm_submitting import Submitting
from trtmatrix.worklist import Worklist
from trtmatrix.workshop import Workshop


@dataclass(kw_only=True, eq=False)
class Course:
    """A launch on its way: what is left of it, and the arrays that have what was given out."""

    launch: Launch
    work: Worklist
    arrays: list[Following] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return not self.arrays and self.work.over


@dataclass(kw_only=True)
class Queue:
    """What Slurm said last of our jobs, and when it is asked again."""

    jobs: tuple[JobStatus, ...] = ()
    seen: Sightings = field(default_factory=Sightings)
    answered: float | None = None
    first: float | None = None
    due: float = 0.0
    wait: float = 0.0
    away: str = ""


class SlurmRun:
    """What runs launches on the cluster for one call of this program."""

    def __init__(
        self, cluster: Cluster, shop: Workshop, limits: Limits, known: frozenset[CellId] = frozenset(),
        slurm: Slurm | None = None, pace: Pace | None = None,
    ) -> None:  # fmt: skip
        """Keep what it works with. ``known``: the cells of which it is known how long they take."""
        self.cluster, self.shop, self.limits, self.known = cluster, shop, limits, known
        self.slurm, self.pace = slurm or Slurm(), pace or read_pace()
        self.queue = Queue(wait=self.pace.squeue)
        self.images = SlurmImages(cluster=cluster, slurm=self.slurm, note=shop.progress.note)

    def run(self, launches: Sequence[Launch], run: str, seconds: Seconds, performed: Performed) -> None:
        """Run all launches to their end, or until the run is to stop: then no job is left behind."""
        suite = stage_suite(self.cluster, self.shop)
        courses = [Course(launch=launch, work=Worklist(launch, run, self.shop)) for launch in launches]
        collecting = Collecting(cluster=self.cluster, shop=self.shop, performed=performed)
        with Client(self.cluster.folder) as client:
            submitting = Submitting(
                cluster=self.cluster, shop=self.shop, slurm=self.slurm, client=client, images=self.images,
                limits=self.limits, pace=self.pace, seconds=seconds, known=self.known, suite=suite,
                note=self.shop.progress.note,
            )  # fmt: skip
            try:
                self._have_images(launches)
                while not all(course.is_over for course in courses):
                    if self.shop.stop.wait(
                        0 if self._advance(courses, submitting, collecting) else self.pace.folder
                    ):
                        break
                if self.shop.stop.is_set() and not self.shop.leave.is_set():
                    arrays = [one for course in courses for one in course.arrays]
                    end_arrays(arrays, self, client)
                    self._collect(courses, collecting)
                elif self.shop.stop.is_set():
                    self._tell_left(courses)
            finally:
                collecting.close()

    def _have_images(self, launches: Sequence[Launch]) -> None:
        """Begin to have images at once: cases are prepared meanwhile."""
        with self.cluster.folder.lock():
            for launch in launches:
                try:
                    self.images.job_for(launch.version)
                except (Refused, SlurmAway):  # it is told of when an array needs it
                    return

    def _advance(self, courses: Sequence[Course], submitting: Submitting, collecting: Collecting) -> bool:
        """Do once all that can be done now; returns whether something changed."""
        changed = False
        collecting.drain()
        for course in courses:
            if not course.arrays and not course.work.over and course.work.all_prepared:
                changed = self._begin(course, submitting) or changed
        self._ask()
        for course in courses:
            for one in list(course.arrays):
                changed = self._follow(course, one, submitting, collecting) or changed
                if not one.tasks:
                    collecting.drain(wait=True)
                    course.arrays.remove(one)
                    self._close(one, submitting.client)
                    changed = True
        if changed:
            self.queue.wait = self.pace.squeue
        return changed

    def _begin(self, course: Course, submitting: Submitting) -> bool:
        """Give out what a launch has to be run now: all of it, or again what is in doubt."""
        tasks = course.work.take()
        if not tasks:
            return False
        stage_cases(self.cluster, self.shop, tasks)
        with self.cluster.folder.lock():
            course.arrays += submitting.begin(course.launch, course.work, tasks)
        self.queue.due = 0.0
        return True

    def _ask(self) -> None:
        """Ask Slurm for our jobs, where it is time to; that it does not answer is told once."""
        queue, now = self.queue, time.monotonic()
        if now < queue.due:
            return
        try:
            jobs = tuple(self.slurm.jobs())
        except SlurmAway as error:
            if not queue.away:
                self.shop.progress.note(f"Slurm does not answer; it is waited for: {error}")
            queue.away = str(error)
        else:
            if queue.away:
                self.shop.progress.note("Slurm answers again")
            if jobs != queue.jobs:
                queue.wait = self.pace.squeue
            queue.away, queue.jobs, queue.answered = "", jobs, now
            queue.seen.look(jobs, now)
        queue.due = time.monotonic() + queue.wait
        queue.wait = self.pace.slower(queue.wait)

    def _follow(self, course: Course, one: Following, submitting: Submitting, collecting: Collecting) -> bool:
        """Take what an array left, and do what is to be done about its tasks; returns whether that changed."""
        tries = self.cluster.folder.tries(one.key)
        changed = collecting.take(one, course.work, tries)
        fates = {task: self._fate(one, task, tries) for task in one.tasks}
        for task, fate in fates.items():
            changed = self._take_fate(course, one, task, fate, tries, collecting) or changed
        if any(fate is not None and isinstance(fate.step, Submit | Bury) for fate in fates.values()):
            with self.cluster.folder.lock():
                changed = self._act(one, submitting) or changed
        elif self._is_in_doubt(one):
            with self.cluster.folder.lock():
                submitting.recover(one, self.queue.jobs, self._silent(one))
        self._tell(one, [fate for fate in fates.values() if fate is not None])
        return changed

    def _fate(self, one: Following, task: int, tries: Sequence[Try]) -> Fate | None:
        """Return what becomes of a task; None while that hangs on a Slurm that does not answer."""
        sents = self.cluster.folder.submissions(one.key)
        now = time.monotonic()
        attempts = attempts_of(task, tries, sents, self.queue.seen, now)
        last = attempts[-1].left if attempts else None
        if self.queue.away and not (last and last.published and last.trouble != Trouble.CANCELLED):
            return None
        stopping = bool(self.cluster.folder.stopping(one.key))
        return decide(one.manifest.tasks[task], attempts, stopping=stopping, settle=self.pace.settle)

    def _take_fate(
        self, course: Course, one: Following, task: int, fate: Fate | None, tries: Sequence[Try],
        collecting: Collecting,
    ) -> bool:  # fmt: skip
        if fate is None:
            return False
        for fault in fate.faults:
            trouble = self.images.trouble(one.launch.version)
            said = replace(fault, detail=f"{fault.detail}: {trouble}") if trouble else fault
            collecting.fault(one, course.work, task, said, tries)
        match fate.step:
            case Over(left=left, why=why):
                collecting.refuse(one, course.work, task, left, why or "the run was ended")
                one.over.add(task)
                return True
            case Wait() | Submit() | Bury():
                settled = all(not one.is_open(task, i) for t, i in one.wanted if t == task)
                if settled:  # what is left of it is not ours
                    one.over.add(task)
                return settled

    def _act(self, one: Following, submitting: Submitting) -> bool:
        """Bury and submit, under the lock, by what lies on the shared folder now."""
        tries = self.cluster.folder.tries(one.key)
        steps = dict[int, Submit]()
        acted = False
        for task in one.tasks:
            fate = self._fate(one, task, tries)
            match fate.step if fate else None:
                case Bury() as step:
                    self._bury(one, task, step, tries)
                    acted = True
                case Submit() as step:
                    steps[task] = step
                    if step.why:
                        self.shop.progress.note(
                            f"{_name(one)}: task {task} again: {step.why.splitlines()[0]}"
                        )
                case _:
                    pass
        if steps:
            submitting.send(one, steps)
            self.queue.due = 0.0
        return acted or bool(steps)

    def _bury(self, one: Following, task: int, step: Bury, tries: Sequence[Try]) -> None:
        attempts = attempts_of(
            task, tries, self.cluster.folder.submissions(one.key), self.queue.seen, time.monotonic()
        )
        sent = attempts[-1].sent
        if step.cancel and sent is not None and sent.job:
            self.slurm.cancel([f"{sent.job}_{task}"])
        self.cluster.folder.note_gone(one.key, task, step.attempt, step.state, step.reason, step.node)

    def _is_in_doubt(self, one: Following) -> bool:
        return any(sent.is_open for sent in self.cluster.folder.submissions(one.key))

    def _silent(self, one: Following) -> float:
        """Return for how long Slurm has answered since a submission was in doubt."""
        now = self.queue.answered or 0.0
        if one.doubted is None:
            one.doubted = now
        return now - one.doubted

    def _collect(self, courses: Sequence[Course], collecting: Collecting) -> None:
        """Take a last time what is there."""
        for course in courses:
            for one in course.arrays:
                collecting.take(one, course.work, self.cluster.folder.tries(one.key))

    def _close(self, one: Following, client: Client) -> None:
        """Follow an array no longer; who is the last one closes it."""
        with self.cluster.folder.lock():
            if one.key not in client.followed_by_others() and self._all_over(one):
                self.cluster.folder.close_array(one.key, "collected")
            client.leave([one.key])

    def _all_over(self, one: Following) -> bool:
        """Whether no task of an array is left, those included of which nothing was wanted here."""
        tries = self.cluster.folder.tries(one.key)
        every = range(len(one.manifest.tasks))
        fates = [self._fate(one, task, tries) for task in every if task not in one.over]
        return all(fate is not None and isinstance(fate.step, Over) for fate in fates)

    def _tell(self, one: Following, fates: Sequence[Fate]) -> None:
        """Say how many tasks run and wait, and why they do, where that changed."""
        jobs = {sent.job for sent in self.cluster.folder.submissions(one.key) if sent.job}
        mine = [job for job in self.queue.jobs if job.job in jobs and job.phase is not Phase.GONE]
        phases = Counter(job.phase for job in mine)
        reasons = sorted({job.reason for job in mine if job.phase is Phase.WAITING and job.reason})
        waits = f" ({', '.join(reasons)})" if reasons else ""
        running, waiting = phases[Phase.RUNNING], phases[Phase.WAITING]
        told = f"{running} running, {waiting} waiting{waits}" if mine else ""
        if told and told != one.told and fates and (running or reasons):
            self.shop.progress.note(f"{_name(one)}: {told}")
        one.told = told

    def _tell_left(self, courses: Sequence[Course]) -> None:
        keys = [one.key for course in courses for one in course.arrays]
        if keys:
            self.shop.progress.note(
                f"{len(keys)} arrays are left on Slurm; the same command goes on with them: {', '.join(keys)}"
            )


def _name(one: Following) -> str:
    return f"{one.launch.gpu.name} {one.launch.version.name}"
