"""The supervisor's side of workers: which process runs a cell, and what becomes of it after."""

from __future__ import annotations

import select
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from trtprobe import ends
from trtprobe.answer import Answer, Arrays, which_build
from trtprobe.channel import open_channels
from trtprobe.job import Cut, Job, Limits, make_empty, remove
from trtprobe.observe import UNSET
from trtprobe.processes import Child, Tail, kill_descendants, oom_kills
from trtprobe.worker import serve

CHECK_SECONDS = 0.25
POLL_SECONDS = 0.005  # how often a process that hung up is looked at, until it has ended
WARM_SECONDS = 120.0  # what a worker may take before its first cell
SCRATCH_BYTES = 64 << 20  # more than this in the scratch folders after a cell ends its worker
BALLAST = 16 << 20
"""Bytes that are held while a process lives: a cell that fills memory by files is killed, and its files stay
until they are removed; so much is free then, that the supervisor is not killed too."""


class Order(NamedTuple):
    """A cell for one process: what to run, in which folder, for how long at most.

    ``alone``: it needs a process of its own. ``dangerous``: its process serves no other after it.
    """

    spec: Dict[str, Any]
    folder: Path
    seconds: float
    alone: bool
    dangerous: bool

    @property
    def repro(self) -> str:
        """The repro that the cell is of."""
        return str(self.spec["cell"]).split("/", maxsplit=1)[0]


class Exit(NamedTuple):
    """A cell that has ended in one process. ``worker``: the record's words of that process.

    ``code``: an exit code of 0 also where the process lives on. ``kept``: the outputs.
    """

    ended: str
    detail: str
    result: Dict[str, Any]
    code: Optional[int]
    oom_kills: int
    log: str
    worker: Dict[str, Any]
    kept: Arrays


class Worker:
    """A process that serves cells, as the supervisor sees it."""

    def __init__(self, number: int, product: str, warm: bool, alone: bool) -> None:
        self.number, self.position, self.alone, self.warm = number, 0, alone, warm
        self.ready = self.taken = False
        self.only = ""  # the repro of the cells that the process may serve; any where it is empty
        self.done: Optional[Dict[str, Any]] = None
        self.why = ""
        """Why the process says that it ends after the cell; nothing where it goes on, or has not said."""
        self.answer = Answer()
        self.started = time.monotonic()
        self.channel, theirs = open_channels()
        self.process = Child(lambda: serve(theirs, product, warm, alone), theirs.fileno(), UNSET)
        theirs.close()

    def hear(self) -> None:
        """Take in what the process has said."""
        for message, file in self.channel.take():
            if file is not None:
                self.answer.read(message, file)
            self.ready |= "ready" in message
            self.taken |= "taken" in message
            done = message.get("done")
            if isinstance(done, dict) and "ended" in done:
                self.done, self.only, self.why = done, str(done.get("only") or ""), str(done["ended"])

    @property
    def is_over(self) -> bool:
        """Whether the process has ended; it has been heard out then."""
        if self.process.poll() is None:
            return False
        self.hear()
        return True

    def perform(self, order: Order, limits: Limits, tail: Tail) -> Optional[Cut]:
        """Give the process a cell and wait; returns how it is to be cut off, if it is.

        A process that says that it ends has ended when this returns, or is to be cut off.
        """
        self.hear()  # whatever comes after the cell before is nobody's
        self.taken, self.done, self.why = False, None, ""
        self.answer = Answer(order.spec.get("builds", 1), limits.largest)
        message = {"spec": order.spec, "folder": str(order.folder), "dangerous": order.dangerous}
        self.channel.send(message, tail.writing)
        tail.hand_over()
        return self.follow(tail, lambda: bool(self.done) and not self.why, limits.check)

    def follow(
        self, tail: Optional[Tail], until: Callable[[], bool], check: Callable[[], Optional[Cut]]
    ) -> Optional[Cut]:
        """Listen until something holds or the process has ended; returns how to cut it off, if so."""
        checked = time.monotonic()
        while not until() and not self.is_over:
            streams = [stream for stream in (self.channel, tail) if stream is not None and stream.open]
            ending = not self.channel.open or self.done is not None
            for stream in select.select(streams, [], [], POLL_SECONDS if ending else CHECK_SECONDS)[0]:
                self.hear() if stream is self.channel else stream.take()
            if time.monotonic() - checked > CHECK_SECONDS:
                checked, cut = time.monotonic(), check()
                if cut is not None:
                    return cut
            if self.answer.refused:
                break
        return (ends.CRASHED, self.answer.refused) if self.answer.refused else None


class Pool:
    """The processes of a job, one at a time: a warm one that cells share, or a cell's own."""

    def __init__(self, job: Job, out: Path) -> None:
        """``out``: the folder that cells may write in."""
        self.job, self.out, self._before = job, out, set(out.iterdir())
        self.seconds = float(job.job.get("warm_seconds", WARM_SECONDS))
        self.started = 0
        self._warms = True
        self._worker: Optional[Worker] = None
        self._ballast = b""

    def prepare(self) -> None:
        """See to it that there is a warm worker, where the job has them: it warms up meanwhile."""
        if self.job.is_warm and self._worker is None:
            self._start(alone=False)

    def make_ready(self, alone: bool, repro: str) -> None:
        """Wait until a process for a repro's cell is ready; what that takes is not held against the cell.

        ``alone``: it is a fresh one, which may have warmed up meanwhile. A worker that crashes or hangs
        before it is ready is ended, and none is warmed up any more: the cell takes the blame. Raises
        :class:`Stopped` where the host is gone.
        """
        old = self._worker
        if old is not None and ((alone and old.position) or old.is_over or old.only not in {"", repro}):
            self._end(old)
        for _ in range(2):
            worker = self._worker or self._start(alone)
            if self._is_ready(worker):
                worker.alone = alone
                return
            if worker.warm:
                print("a worker did not become ready: no other is warmed up", flush=True)
            self._end(worker)
            self._warms = False
        self._start(alone)

    def run(self, order: Order) -> Exit:
        """Run a cell in the process that was made ready; again in another where that could not take it."""
        for _ in range(2):
            worker, found = self._run(order)
            if worker.taken and found.ended != ends.ELSEWHERE:
                return found
            self.make_ready(order.alone, order.repro)
        return self._run(order)[1]

    def close(self) -> None:
        """End all that runs."""
        if self._worker is not None:
            self._end(self._worker)
        kill_descendants()

    def _start(self, alone: bool) -> Worker:
        self._worker = Worker(self.started, self.job.product, self._warms and not alone, alone)
        self.started += 1
        self._ballast = self._ballast or b"1" * BALLAST
        return self._worker

    def _is_ready(self, worker: Worker) -> bool:
        """Wait for a process to be ready; whether it is."""

        def check() -> Optional[Cut]:
            self.job.check_alive()
            late = time.monotonic() - worker.started > self.seconds
            return (ends.TIME_OUT, "not ready") if late else None

        return worker.follow(None, lambda: worker.ready, check) is None and worker.ready

    def _run(self, order: Order) -> Tuple[Worker, Exit]:
        """Run a cell; its process is ended where it can serve no other."""
        worker = self._worker or self._start(order.alone)
        make_empty(order.folder)
        before, tail, started = oom_kills(), Tail(), time.monotonic()
        cut = worker.perform(order, Limits(self.job, self.out, order.seconds), tail)
        seconds = time.monotonic() - started
        if not worker.done:  # it died or is to be ended: from here on even a look at a file needs room
            self._ballast = b""
        goes_on = cut is None and worker.done is not None and not worker.why
        ended = worker.why or self._why_end(worker, cut, before)
        ended = ended or ("it was for this cell alone" if worker.alone else "")
        if ended:
            self._end(worker)
        killed, code = oom_kills() - before, 0 if goes_on else worker.process.code
        done = worker.done or {}
        if code and cut is None:
            ended = exit_words(code, bool(done))
        words = {
            "number": worker.number, "position": worker.position, "alone": worker.alone, "ended": ended,
            "seconds": done.get("seconds", seconds), "builder_seconds": done.get("builder_seconds"),
        }  # fmt: skip
        worker.position += 1
        result, (how, detail) = judge_exit(order, worker.answer, cut, code, killed)
        found = Exit(how, detail, result, code, killed, tail.close(), words, worker.answer.kept)
        worker.answer = Answer()
        for path in self.out.glob("*"):  # its own folder, and what it left beside that; none if it took all
            if not path.name.endswith("plans") and path not in self._before:
                remove(path)
        return worker, found

    def _why_end(self, worker: Worker, cut: Optional[Cut], oom_before: int) -> str:
        """Say why a process has to be ended that said nothing of it; nothing where it may go on."""
        if cut is not None:
            return cut[1]
        if worker.done is None:
            return "it hung up" if worker.process.code == 0 else "it died"
        if oom_kills() > oom_before:
            return "a process was killed for memory"
        scratch = self.job.scratch_bytes()
        return "%d bytes of scratch" % scratch if scratch > SCRATCH_BYTES else ""

    def _end(self, worker: Worker) -> None:
        """End a process with all below it, and empty the scratch folders."""
        worker.channel.close()
        self._worker, self._ballast = None, b""
        worker.process.kill()
        self.job.empty_scratch()


def judge_exit(
    order: Order, answer: Answer, cut: Optional[Cut], code: Optional[int], killed: int
) -> Tuple[Dict[str, Any], Cut]:
    """Return a cell's result, measured, and how it ended, by what is seen outside and what it told itself.

    Where it told no final result, with what it had told so far.
    """
    result, builds = answer.measured(order.spec), order.spec.get("builds", 1)
    at = which_build(builds, len(result["builds"])) if "builds" in result else ""
    if cut is not None:
        return result, (cut[0], at + cut[1])
    if answer.is_final and not code:
        ended, detail = result["ended"], result["detail"]
        if killed and ended not in {ends.RAN, ends.BUILT}:
            return result, (ends.OUT_OF_HOST_MEMORY, "%s (%d killed for memory)" % (detail, killed))
        return result, (ended, detail)
    if killed:
        return result, (ends.OUT_OF_HOST_MEMORY, at + "killed by the kernel: the memory limit was reached")
    return result, (ends.CRASHED, at + exit_words(code or 0, answer.is_final))


def exit_words(code: int, finished: bool) -> str:
    """Say how a process ended by its exit code (negative: the signal)."""
    when = " after the cell had finished" if finished else ""
    if code >= 0:
        return "exited with code %d%s" % (code, when)
    known = {one.value: one.name for one in signal.Signals}
    return "killed by %s%s" % (known.get(-code, "signal %d" % -code), when)
