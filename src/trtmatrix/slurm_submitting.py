"""Decides, under the shared folder's lock, what is submitted: nothing that is under way already."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from trtmatrix.batch import cell_words, job_words
from trtmatrix.cluster import Cluster
from trtmatrix.core.container import Limits
from trtmatrix.core.counting import counted
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.gpu_names import slug_of
from trtmatrix.core.model import CellId, Gpu
from trtmatrix.core.order import Seconds
from trtmatrix.core.plan import Isolation, Launch
from trtmatrix.core.slurm.cut import cut_arrays, cut_tasks, task_minutes
from trtmatrix.core.slurm.fate import FIRST, Submit
from trtmatrix.core.slurm.gather import find_job
from trtmatrix.core.slurm.jobs import JobStatus, job_name
from trtmatrix.core.slurm.layout import SCRIPT, array_folder
from trtmatrix.core.slurm.manifest import Asked, Manifest, Sent
from trtmatrix.core.slurm.scripts import TaskScript, task_script
from trtmatrix.core.slurm.site import SiteGpu
from trtmatrix.core.slurm.submission import array_words
from trtmatrix.digests import cell_digests
from trtmatrix.effects.shared_clients import Client
from trtmatrix.effects.slurm import Refused, Slurm, SlurmAway, TakesLater
from trtmatrix.slurm_adopting import adopt
from trtmatrix.slurm_following import Following
from trtmatrix.slurm_images import NotHad, SlurmImages
from trtmatrix.slurm_pace import Pace
from trtmatrix.worklist import Task, Worklist
from trtmatrix.workshop import Workshop


def site_gpu(cluster: Cluster, gpu: Gpu) -> SiteGpu:
    """Return how the site is asked for a GPU."""
    return next(entry for entry in cluster.site.gpus if slug_of(entry.name) == gpu.slug)


def asked_words(gpu: SiteGpu) -> str:
    """Say what a site is asked for, in the words of its settings."""
    fields = ("gres", "constraint", "partition", "account", "qos")
    return ", ".join(f"{name} {value}" for name in fields if (value := getattr(gpu, name)))


def task_spec(
    cluster: Cluster, launch: Launch, *, key: str, suite: str, minutes: int, limits: Limits
) -> TaskScript:
    """Return what the script of an array is made from; ``minutes``: the ``--time`` of its jobs."""
    driver = launch.version.driver
    return TaskScript(
        site=cluster.site, gpu=site_gpu(cluster, launch.gpu), slug=launch.gpu.slug, key=key,
        version=launch.version.name, image=cluster.key_of(launch.version), suite=suite, minutes=minutes,
        driver_least=driver.least if driver else "", limits=limits,
    )  # fmt: skip


class Words(Protocol):
    """Makes the words of sbatch for an attempt; ``avoid``: nodes that it is not to run on."""

    def __call__(self, *, avoid: Sequence[str]) -> tuple[str, ...]:
        """Return them."""


def known_seconds(seconds: Seconds, known: frozenset[CellId]) -> Seconds:
    """Return how long cells take, those alone of which it is known."""
    return {cell: time for cell, time in seconds.items() if cell in known}


FULL_TRIES = 3
"""So often a limit on jobs is met by a user without any job before it is taken for one that stays."""


@dataclass(kw_only=True)
class _Full:
    """An array that Slurm had no room for: how often so far, and when it is tried again (monotonic clock)."""

    tries: int = 0
    due: float = 0.0


@dataclass(kw_only=True)
class Submitting:
    """What submits for one client. Its methods are called under the folder's lock.

    ``known``: the cells of which it is known how long they take.
    """

    cluster: Cluster
    shop: Workshop
    slurm: Slurm
    client: Client
    images: SlurmImages
    limits: Limits
    pace: Pace
    seconds: Seconds
    known: frozenset[CellId]
    suite: str
    note: Callable[[str], None]
    _full: dict[str, _Full] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def begin(self, launch: Launch, work: Worklist, tasks: Sequence[Task]) -> list[Following]:
        """Return the arrays that have or will have these cells: those under way first, then new ones."""
        wishes = {self.asked(task).wish: task for task in tasks}
        followed, left = adopt(self.cluster, self.suite, launch, work, wishes)
        if followed:
            count = sum(len(one.wanted) for one in followed)
            are = f"{counted(count, 'cell')} {'is' if count == 1 else 'are'}"
            self.note(f"{followed[0].name}: {are} under way already, and followed")
            self.client.follow([one.key for one in followed])
        return followed + (self._new(launch, left) if left else [])

    def _new(self, launch: Launch, tasks: Sequence[Task]) -> list[Following]:
        """Write and submit new arrays; no further one once the run is to stop."""
        by_cell = {task.cell.id: task for task in tasks}
        of = launch.of(task.cell for task in tasks)
        single = self.shop.isolation is Isolation.CONTAINER
        limits, guess = self.cluster.site.limits, known_seconds(self.seconds, self.known)
        cut = [
            tuple(self.asked(by_cell[cell]) for cell in cells)
            for cells in cut_tasks(of, guess, limits, single=single, worth=self.pace.worth)
        ]
        followed = []
        for part in cut_arrays(cut, limits):
            if self.shop.stop.is_set():
                break
            manifest = self._manifest(launch, part)
            wanted = {
                (number, index): by_cell[asked.cell]
                for number, cells in enumerate(part) for index, asked in enumerate(cells)
            }  # fmt: skip
            self.cluster.folder.add_array(manifest, self._script(launch, manifest))
            one = Following(manifest=manifest, launch=launch, wanted=wanted)
            self.client.follow([one.key])
            every = {
                number: Submit(attempt=FIRST, indices=tuple(range(len(cells))))
                for number, cells in enumerate(part)
            }
            self.send(one, every)
            followed.append(one)
        return followed

    def asked(self, task: Task) -> Asked:
        """Return a task as a manifest has it."""
        cell, order = task.cell, task.order
        loaded = self.shop.repros[cell.repro.id]
        builds, processes = task.runs
        return Asked(
            cell=cell.id, run=order.run, confirms=order.confirms, alone=order.alone, builds=builds,
            processes=processes, seconds=task.seconds, handed=cell_words(task, self.shop),
            digests={**cell_digests(cell, loaded), "probe": self.shop.probe_digest},
        )  # fmt: skip

    def _manifest(self, launch: Launch, tasks: tuple[tuple[Asked, ...], ...]) -> Manifest:
        moment = self.shop.clock()
        return Manifest(
            key=f"{moment.strftime('%y%m%d%H%M%S')}-{os.urandom(4).hex()}", gpu=launch.gpu.slug,
            version=launch.version.name, image=self.cluster.key_of(launch.version), suite=self.suite,
            made=moment.strftime("%Y-%m-%dT%H:%M:%SZ"), tasks=tasks,
            job=job_words(launch.version, self.shop),
        )  # fmt: skip

    def minutes(self, manifest: Manifest) -> int:
        """Return the ``--time`` of an array's tasks."""
        return task_minutes(manifest.tasks, self.seconds, self.known, self.cluster.site.limits)

    def _script(self, launch: Launch, manifest: Manifest) -> str:
        minutes = self.minutes(manifest)
        return task_script(
            task_spec(
                self.cluster, launch, key=manifest.key, suite=manifest.suite, minutes=minutes,
                limits=self.limits,
            )
        )  # fmt: skip

    def send(self, one: Following, steps: Mapping[int, Submit]) -> None:
        """Submit attempts at tasks of an array, those of one attempt's number together."""
        for task, step in steps.items():
            if not step.again:
                self.cluster.folder.add_try(
                    one.key, task, step.attempt, step.indices, retry=step.retry, why=step.why
                )
        for same in sorted({(step.attempt, step.avoid, step.unfit) for step in steps.values()}):
            tasks = [t for t, s in sorted(steps.items()) if (s.attempt, s.avoid, s.unfit) == same]
            self._sbatch(one, tasks, steps[tasks[0]])

    def may_send(self, key: str) -> bool:
        """Whether it is time to submit something of an array: at once, or a while after Slurm was full."""
        return key not in self._full or time.monotonic() >= self._full[key].due

    def _sbatch(self, one: Following, tasks: Sequence[int], step: Submit) -> None:
        """Submit one attempt at some tasks: written down before and after."""
        folder, manifest, site, attempt = self.cluster.folder, one.manifest, self.cluster.site, step.attempt
        sent = self._sent(one.key, attempt, tuple(tasks))
        asked, because = f"the import of its image, {' '.join(site.import_options)}", ""
        try:
            sent = replace(sent, after=self.images.job_for(one.launch.version, manifest.image))
            folder.note_submission(one.key, sent)
            asked = asked_words(site_gpu(self.cluster, one.launch.gpu))
            because = step.why if step.unfit else ""
            words = partial(
                array_words, site, site_gpu(self.cluster, one.launch.gpu), key=one.key, tasks=tasks,
                attempt=attempt, minutes=self.minutes(manifest), after=sent.after,
                facts={"sent": str(sent.number), "version": manifest.version, "gpu": manifest.gpu},
            )  # fmt: skip
            job = self._submit(words, step, f"{array_folder(site.shared, one.key)}/{SCRIPT}")
        except Refused as error:
            self._refused(one, sent, error, asked, because)
            return
        except NotHad as error:  # without an end to it, it is tried again, in a while
            if error.lasting:
                folder.note_submission(one.key, replace(sent, refused=str(error)))
            return
        except TakesLater as error:
            self._later(one, sent, error, asked)
            return
        except SlurmAway as error:  # an import is tried again; whether an array is there, its name tells
            self.note(f"{one.name}: {error}")
            return
        self._full.pop(one.key, None)
        folder.note_submission(one.key, replace(sent, job=job))
        again = "" if attempt == FIRST else f", attempt {attempt}"
        self.note(f"{one.name}: job {job}: {counted(len(tasks), 'task')} on Slurm{again}")

    def _sent(self, key: str, attempt: int, tasks: tuple[int, ...]) -> Sent:
        """Return a submission that is to be made; under its old number where Slurm was full the last time."""
        sents = self.cluster.folder.submissions(key)
        full = (
            sent.number for sent in sents if sent.later and (sent.attempt, sent.tasks) == (attempt, tasks)
        )
        number = next(full, 1 + max((sent.number for sent in sents), default=0))
        return Sent(
            number=number, attempt=attempt, tasks=tasks, client=self.client.id,
            made=self.shop.clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
        )  # fmt: skip

    def _later(self, one: Following, sent: Sent, error: TakesLater, asked: str) -> None:
        """Write down that Slurm is full, and wait; a limit that is met without any job is a refusal."""
        full = self._full.setdefault(one.key, _Full())
        full.tries += 1
        full.due = time.monotonic() + self.pace.later
        if error.lasting and full.tries >= FULL_TRIES and not self._has_jobs():
            self._refused(one, sent, Refused(error.words), asked)
            return
        self.cluster.folder.note_submission(one.key, replace(sent, later=error.words))
        if error.words not in self._told:
            self._told.add(error.words)
            self.note(f"{one.name}: {error}")

    def _has_jobs(self) -> bool:
        try:
            return self.slurm.has_jobs()
        except MachineryError:  # that is not known now
            return True

    def _refused(self, one: Following, sent: Sent, error: Refused, asked: str, because: str = "") -> None:
        """Write down that Slurm will have none of it: its tasks are not run.

        ``because``: why it was not asked for some nodes, and refuses now.
        """
        words = f"{error.words or 'sbatch refused it without a word'} (asked for: {asked})"
        if because:
            words = f"{because}; no other node has it: {' '.join(words.split())}"
        else:
            self.note(f"{one.name}: {error}")
        self.cluster.folder.note_submission(one.key, replace(sent, refused=words))

    def _submit(self, words: Words, step: Submit, script: str) -> str:
        """Call sbatch; without the nodes that had trouble where others are left, and never for unfit ones."""
        if step.avoid != step.unfit:
            try:
                return self.slurm.submit(words(avoid=step.avoid), script, str(step.attempt))
            except Refused:  # the troubled ones are all that there are
                pass
        return self.slurm.submit(words(avoid=step.unfit), script, str(step.attempt))

    def recover(self, one: Following, jobs: Sequence[JobStatus], silent: float) -> None:
        """Find out what became of submissions whose client did not live to write it down.

        ``silent``: for how long Slurm has answered without them, in seconds.
        """
        folder, key = self.cluster.folder, one.key
        sents = folder.submissions(key)
        claimed = {sent.job for sent in sents if sent.job}
        for sent in sents:
            if not sent.is_open:
                continue
            job = find_job(key, sent, jobs, claimed)
            if not job and silent >= self.pace.lost:
                job = find_job(key, sent, self.slurm.past(names=[job_name(key)]), claimed)
            if job:
                claimed.add(job)
                folder.note_submission(key, replace(sent, job=job))
            elif silent >= self.pace.lost:
                folder.note_submission(key, replace(sent, lost=True))
