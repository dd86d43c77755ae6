"""Takes what an array's attempts leave on the shared folder: records, faults, surfaces, what a node is."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from trtmatrix.batch import STORES
from trtmatrix.cluster import Cluster
from trtmatrix.core.model import Exclusion
from trtmatrix.core.plan import Excluded
from trtmatrix.core.slurm.boards import Board, BoardError, parse_gpu_csv
from trtmatrix.core.slurm.fate import Fault
from trtmatrix.core.slurm.images import image_digest
from trtmatrix.core.slurm.manifest import Try
from trtmatrix.effects.gpu import known_gpu
from trtmatrix.effects.launcher import Ready
from trtmatrix.effects.paths import make_job_folder
from trtmatrix.effects.shared_lock import LockBusy, within
from trtmatrix.performed import Performed
from trtmatrix.slurm_following import NEVER_RAN, Following, placed
from trtmatrix.storing import Kept, Storing
from trtmatrix.worklist import Task, Worklist
from trtmatrix.workshop import Workshop

NOTED_SECONDS, LAST_SECONDS = 0.2, 5.0
"""So long the lock is waited for to note what a node is: each time, and at the end."""


@dataclass(kw_only=True, eq=False)
class _Stored:
    """A record on its way into the store."""

    work: Worklist
    task: Task
    future: Future[Kept]


@dataclass(kw_only=True)
class Collecting:
    """Stores what comes out, a few records side by side; worklists hear of each from the caller's thread."""

    cluster: Cluster
    shop: Workshop
    performed: Performed
    _scratch: Path = field(init=False)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(STORES))
    _stores: deque[_Stored] = field(default_factory=deque)
    _storing: dict[tuple[object, ...], Storing] = field(default_factory=dict)
    _nodes: set[tuple[str, str]] = field(default_factory=set)
    _unnoted: list[tuple[str, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make a folder for outputs on their way."""
        self._scratch = make_job_folder(self.shop.cache, f"slurm-{os.urandom(4).hex()}")

    def take(self, one: Following, work: Worklist, tries: Sequence[Try]) -> bool:
        """Take each record that is there and wanted; returns whether there was one."""
        before = len(one.taken)
        ours = {task for task, _ in one.wanted}
        for left in (left for left in tries if left.task in ours):
            self._note_node(left)
            for number in sorted(left.records):
                index = left.indices[number]
                if one.is_open(left.task, index):
                    self._take_record(one, work, left, number)
            if left.published and (left.task, left.attempt) not in one.surfaces:
                one.surfaces.add((left.task, left.attempt))
                if (folder := self.cluster.folder.ran(one.key, left)) is not None:
                    self.shop.surfaces.take(self._storing_of(one, left).ready, folder)
        self._note_nodes(NOTED_SECONDS)
        return len(one.taken) > before

    def _take_record(self, one: Following, work: Worklist, left: Try, number: int) -> None:
        shared = self.cluster.folder
        data = shared.read_record(one.key, left, number)
        if data is None:  # it is seen before it can be read: next time
            return
        place = (left.task, left.indices[number])
        task, storing = one.wanted[place], self._storing_of(one, left)
        one.taken.add(place)
        into = self._scratch / f"{one.key}-{left.task}.{left.attempt}-{number}"
        future = self._threads.submit(
            storing.store_shared, placed(task, storing.ready.launch), data,
            lambda: shared.take_outputs(one.key, left, number, into),
        )  # fmt: skip
        self._stores.append(_Stored(work=work, task=task, future=future))

    def fault(
        self, one: Following, work: Worklist, task: int, fault: Fault, tries: Sequence[Try], see: str = ""
    ) -> None:
        """Record a cell that left no record and is not run again; one that never ran is told of instead.

        ``see``: where more is said, for who runs it: a record is published, and a site's paths are not.
        """
        if not one.is_open(task, fault.index):
            return
        left = next((t for t in tries if (t.task, t.attempt) == (task, fault.attempt)), None)
        if fault.cause in NEVER_RAN and (left is None or not _had_started(left, fault.index)):
            self.refuse(one, work, task, [fault.index], fault.detail, see)
            return
        one.taken.add((task, fault.index))
        wanted, storing = one.wanted[task, fault.index], self._storing_of(one, left)
        if fault.cause in NEVER_RAN and see:
            self.shop.progress.note(f"{one.name}: {wanted.cell.case.id}: {fault.detail.splitlines()[0]}{see}")
        kept = storing.fail(placed(wanted, storing.ready.launch), fault.cause, fault.detail)
        self._ended(work, wanted, kept)

    def refuse(
        self, one: Following, work: Worklist, task: int, indices: Sequence[int], why: str, see: str = ""
    ) -> None:
        """Note of cells that they were not run."""
        left = [index for index in indices if one.is_open(task, index)]
        if left and why not in one.refused:
            one.refused.add(why)
            self.shop.progress.note(f"{one.name}: not run: {why}{see}")
        for index in left:
            if one.is_open(task, index):
                one.taken.add((task, index))
                wanted = one.wanted[task, index]
                self.performed.not_ready.append(
                    Excluded(cell=wanted.cell, why=Exclusion.NOT_READY, detail=why.splitlines()[0])
                )
                work.ended(wanted)

    def drain(self, *, wait: bool = False) -> None:
        """Tell worklists of the records that are stored; raises what went wrong with one."""
        while self._stores and (wait or self._stores[0].future.done()):
            stored = self._stores.popleft()
            self._ended(stored.work, stored.task, stored.future.result())

    def _ended(self, work: Worklist, task: Task, kept: Kept) -> None:
        self.performed.records.append(kept.record)
        work.ended(task, kept.engines)

    def close(self) -> None:
        """Wait until what came out is stored."""
        self._threads.shutdown()
        self._note_nodes(LAST_SECONDS)
        try:
            self.drain()
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _storing_of(self, one: Following, left: Try | None) -> Storing:
        """Return what stores records of an array from the board that an attempt ran on."""
        board = self._board(left)
        gpu = board.gpu if board is not None else one.launch.gpu
        key = (one.key, gpu.uuid_hash, gpu.driver, gpu.variant, gpu.host)
        if key not in self._storing:
            launch = one.launch.on(replace(gpu, slug=one.launch.gpu.slug))
            clocks = dict(board.clocks) if board is not None else {}
            ready = Ready(launch=launch, digests=self._digests(one), handle=None)
            self._storing[key] = Storing(ready, replace(self.shop, gpu_clocks=lambda _gpu: clocks))
        return self._storing[key]

    def _board(self, left: Try | None) -> Board | None:
        if left is None or not left.gpu:
            return None
        try:
            return parse_gpu_csv(left.gpu, left.node, known_gpu)
        except BoardError:
            return None

    def _digests(self, one: Following) -> dict[str, str]:
        image = self.cluster.folder.image(one.manifest.image)
        found = image_digest(one.launch.version, image.id, self.cluster.site.runtime) if image else ""
        return {"runtime": "container", **({"image": found} if found else {})}

    def _note_node(self, left: Try) -> None:
        """Remember which board was seen on which node: records are current by it."""
        if not left.gpu or not left.node or (left.node, left.gpu) in self._nodes:
            return
        self._nodes.add((left.node, left.gpu))
        self._unnoted.append((left.node, left.gpu, self.shop.clock().strftime("%Y-%m-%dT%H:%M:%SZ")))

    def _note_nodes(self, seconds: float) -> None:
        """Write down what was seen on nodes, if the lock is to be had so soon: records do not wait for it."""
        if not self._unnoted:
            return
        with contextlib.suppress(LockBusy), self.cluster.folder.lock(within(seconds)):
            while self._unnoted:
                self.cluster.folder.note_node(*self._unnoted[-1])
                self._unnoted.pop()


def _had_started(left: Try, index: int) -> bool:
    return any(left.indices[number] == index for number in left.started)
