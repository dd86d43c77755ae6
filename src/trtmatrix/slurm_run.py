"""Runs launches through Slurm: submits, watches the shared folder and the queue, stores, goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from trtmatrix.cluster import Cluster
from trtmatrix.core.container import Limits
from trtmatrix.core.model import CellId
from trtmatrix.core.order import Seconds
from trtmatrix.core.plan import Launch
from trtmatrix.effects.shared_clients import Client
from trtmatrix.effects.shared_lock import LockBusy
from trtmatrix.effects.slurm import Refused, Slurm, SlurmAway
from trtmatrix.performed import Performed
from trtmatrix.slurm_cancelling import Cancelling, scancel_words
from trtmatrix.slurm_collecting import Collecting
from trtmatrix.slurm_ending import Ending
from trtmatrix.slurm_following import Following
from trtmatrix.slurm_images import NotHad, SlurmImages
from trtmatrix.slurm_orphans import CLEANED_DAYS, look_after
from trtmatrix.slurm_pace import Pace, read_pace
from trtmatrix.slurm_queue import Queue
from trtmatrix.slurm_staging import stage_cases, stage_suite
from trtmatrix.slurm_submitting import Submitting
from trtmatrix.slurm_watching import Watch
from trtmatrix.worklist import Worklist
from trtmatrix.workshop import Workshop

HEARD_SECONDS = 0.5
"""So soon after a signal ended who reads what is told (``2>&1 | tee``), this process has heard it, too."""


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


class SlurmRun:
    """What runs launches on the cluster for one call of this program."""

    def __init__(
        self, cluster: Cluster, shop: Workshop, limits: Limits, known: frozenset[CellId] = frozenset(),
        *, slurm: Slurm | None = None, pace: Pace | None = None,
    ) -> None:  # fmt: skip
        """Keep what it works with. ``known``: the cells of which it is known how long they take."""
        self.cluster, self.shop, self.limits, self.known = cluster, shop, limits, known
        self.slurm, self.pace = slurm or Slurm(), pace or read_pace()
        self.queue = Queue(slurm=self.slurm, pace=self.pace, note=self.note)
        self.images = SlurmImages(cluster=cluster, slurm=self.slurm, note=self.note, pace=self.pace)
        self.cancelling = Cancelling(
            folder=cluster.folder, slurm=self.slurm, note=self.note, pace=self.pace, hurry=shop.hurry
        )

    def run(self, launches: Sequence[Launch], run: str, seconds: Seconds, performed: Performed) -> None:
        """Run all launches to their end, or until the run is to stop: then no job is left behind."""
        courses = [Course(launch=launch, work=Worklist(launch, run, self.shop)) for launch in launches]
        collecting = Collecting(cluster=self.cluster, shop=self.shop, performed=performed)
        self.cluster.folder.give_up = self.shop.stop.is_set
        client = Client(self.cluster.folder)
        try:
            with client:
                try:
                    self._go(courses, client, collecting, seconds)
                except (LockBusy, OSError):  # nobody waits any longer, or listens, as the run is to stop
                    if not self.shop.stop.wait(HEARD_SECONDS):
                        raise
                if self.shop.stop.is_set():
                    self._stop(courses, client, collecting)
        except Exception:
            self._tell_left(client)  # an error ends nothing that runs: it may take hours
            raise
        finally:
            collecting.close()

    def note(self, text: str) -> None:
        """Say a line that stays; a run that is to stop ends its jobs though nobody hears of it any more."""
        try:
            self.shop.progress.note(text)
        except OSError:
            if not self.shop.stop.is_set():
                raise

    def _go(
        self, courses: Sequence[Course], client: Client, collecting: Collecting, seconds: Seconds
    ) -> None:
        """Look round, then do the work."""
        submitting = self._submitting(client, seconds)
        watch = Watch(cluster=self.cluster, queue=self.queue, collecting=collecting, submitting=submitting)
        self._look_round([course.launch for course in courses], submitting)
        self._work(courses, watch)

    def _submitting(self, client: Client, seconds: Seconds) -> Submitting:
        return Submitting(
            cluster=self.cluster, shop=self.shop, slurm=self.slurm, client=client, images=self.images,
            limits=self.limits, pace=self.pace, seconds=seconds, known=self.known,
            suite=stage_suite(self.cluster, self.shop), note=self.note,
        )  # fmt: skip

    def _ending(self, client: Client) -> Ending:
        return Ending(
            cluster=self.cluster, client=client, images=self.images, cancelling=self.cancelling,
            note=self.note,
        )  # fmt: skip

    def _look_round(self, launches: Sequence[Launch], submitting: Submitting) -> None:
        """See to what others left, and begin to have images; nothing is begun for a run that is to stop."""
        if self.shop.stop.is_set():
            return
        self._ending(submitting.client).end_left()
        look_after(self.cluster, self.shop, self.slurm, launches, submitting.suite, self.note)
        self._have_images(launches)

    def _have_images(self, launches: Sequence[Launch]) -> None:
        """Begin to have images at once, while cases are prepared; remove what is old."""
        self.cluster.folder.clean(CLEANED_DAYS)
        with self.cluster.folder.lock():
            look = cache(self.slurm.jobs)
            versions = {self.cluster.key_of(launch.version): launch.version for launch in launches}
            for version in versions.values():
                if self.shop.stop.is_set():
                    return
                try:
                    self.images.job_for(version, look=look)
                except NotHad:  # one under way as this began has failed; the arrays that need it are held
                    continue
                except (Refused, SlurmAway):  # it is told of when an array needs it
                    return

    def _work(self, courses: Sequence[Course], watch: Watch) -> None:
        """Go round until all is over or the run is to stop."""
        while not all(course.is_over for course in courses):
            watch.collecting.drain()
            changed = [self._begin(course, watch.submitting) for course in courses]
            if any(course.arrays for course in courses):
                self.queue.ask()
            changed += [self._follow(course, watch) for course in courses]
            if any(changed):
                self.queue.hurry()
            if self.shop.stop.wait(0.0 if any(changed) else self.pace.folder):
                return

    def _begin(self, course: Course, submitting: Submitting) -> bool:
        """Give out what a launch has to be run now: all of it, or again what is in doubt."""
        work = course.work
        if course.arrays or work.over or not work.all_prepared or self.shop.stop.is_set():
            return False
        tasks = work.take()
        if not stage_cases(self.cluster, self.shop, tasks):
            return False
        with self.cluster.folder.lock():
            if self.shop.stop.is_set():  # while the lock was waited for
                return False
            course.arrays += submitting.begin(course.launch, work, tasks)
        return True

    def _follow(self, course: Course, watch: Watch) -> bool:
        changed = False
        for one in list(course.arrays):
            changed = watch.follow(one, course.work) or changed
            if not one.tasks:
                watch.collecting.drain(wait=True)
                watch.close(one)
                course.arrays.remove(one)
                changed = True
        return changed

    def _tell_left(self, client: Client) -> None:
        """Say what goes on without a client, and how it is ended."""
        if not client.follows:
            return
        keys = sorted(client.follows)
        sents = [(key, sent) for key in keys for sent in self.cluster.folder.submissions(key)]
        jobs = {sent.job for _, sent in sents if sent.job}
        doubtful = dict.fromkeys(key for key, sent in sents if sent.is_open)
        self.note(
            f"what runs on Slurm is left to run; the same command goes on with it: {', '.join(keys)}; "
            f"to end it: {scancel_words(jobs, doubtful)}"
        )

    def _stop(self, courses: Sequence[Course], client: Client, collecting: Collecting) -> None:
        """End what runs, or leave it running where nobody asked for its end; what came out is kept."""
        if self.shop.leave.is_set():
            self._tell_left(client)
            return
        self._ending(client).end(sorted(client.follows))
        for course in courses:
            for one in course.arrays:
                collecting.take(one, course.work, self.cluster.folder.tries(one.key))
