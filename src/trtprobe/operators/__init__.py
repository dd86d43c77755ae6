"""Runs many small models in warm processes side by side; one that kills its process costs that process alone.

A job whose ``job.json`` has ``operators`` (``suite``, the archive with all files, below the folder of
cases; ``workers``, how many models run at once, and ``sharing``, how many by NVIDIA's MPS where that runs,
and ``processes``, how many there are then, with those that warm up; 0: it is not tried) gets tasks in
batches, ``0.cell.json``, ``1.cell.json`` …, each ``{"tasks": […]}``, then ``end``. A task: ``index``,
``model`` and ``inputs`` (members of the archive), ``outputs`` (names), ``profile`` (as
:meth:`Backend.build` takes it), ``seconds``, ``alone``, where it needs a process that has served no other,
and ``order``, a number: the lowest of these comes first. Of each the host gets the outputs,
``<index>/<place>.npy``, then ``<index>.record.json``, in any order of tasks.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
import traceback
from io import BytesIO
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional
from zipfile import ZipFile

import numpy as np

from trtprobe import ends, observe
from trtprobe.backends import open_backend
from trtprobe.backends.base import Backend
from trtprobe.channel import Channel, npy, open_channels
from trtprobe.files import to_json
from trtprobe.job import Job, Stopped
from trtprobe.operators.mps import Mps
from trtprobe.plans import Plans
from trtprobe.pool import exit_words
from trtprobe.processes import Child, Tail, flush, kill_descendants, oom_kills

CHECK_SECONDS = 0.05
WARM_SECONDS = 300.0
"""What a process may take before its first task, while as many others warm up as there are cores."""
LOG_CHARACTERS = 2000

PARSER, BUILDER, FEED, RUN, MEMORY = "parser", "builder", "feed", "run", "memory"
"""At what a task that did not run has ended."""
HUNG = "hung"


def count_processes(workers: int) -> int:
    """Return how many processes there are at once: those that run models, and some that warm up meanwhile."""
    return workers + max(1, workers // 4)


class Process:
    """A process that serves tasks, as the supervisor sees it."""

    def __init__(self, number: int, product: str, suite: Path, folder: Path) -> None:
        self.number, self.served, self.ready = number, 0, False
        self.about: Dict[str, Any] = {}
        self.unusable = ""
        self.task: Optional[Dict[str, Any]] = None
        self.tail: Optional[Tail] = None
        self.deadline = time.monotonic() + WARM_SECONDS
        self.channel, theirs = open_channels()
        self.child = Child(lambda: serve(theirs, product, suite, folder), theirs.fileno(), observe.UNSET)
        theirs.close()

    def give(self, tasks: List[Dict[str, Any]]) -> bool:
        """Give it the first of the tasks, with a pipe for what it prints; False where it has died."""
        tail = Tail()
        if not self.channel.send(tasks[0], tail.writing):
            tail.close()
            return False
        tail.hand_over()
        self.task, self.tail = tasks.pop(0), tail
        self.deadline = time.monotonic() + float(self.task["seconds"])
        return True


class Operators:
    """The processes of a job and its tasks: those that wait, and those that run."""

    def __init__(self, job: Job, host: Channel, cases: Path, out: Path) -> None:
        """Take the job; nothing is started yet."""
        self.job, self.host, self.out = job, host, out
        self.suite = cases / job.job["operators"]["suite"]
        self.mps = Mps()
        told = job.job["operators"]
        if told.get("sharing") and self.mps.start():
            self.set_workers(int(told["sharing"]), int(told["processes"]))
        else:
            self.set_workers(int(told["workers"]))
        self.tasks: List[Dict[str, Any]] = []
        self.alone: List[Dict[str, Any]] = []  # those that need a fresh process
        self.processes: List[Process] = []
        self.dying: List[Process] = []
        self.batches = self.started = 0
        self.ended = False
        self.oom_kills = oom_kills()

    def run(self) -> None:
        """Run all that comes until the host says that nothing more does; ``Stopped`` where it is gone."""
        checked = 0.0
        while True:
            self.take_batches()
            busy = sum(1 for process in self.processes if process.task)
            waiting = len(self.tasks) + len(self.alone)
            if self.ended and not waiting and not busy:
                return
            wanted = min(self.most, busy + waiting + (not self.ended))
            while len(self.processes) < wanted:
                self.started += 1
                folder = self.out / ("process-%d" % self.started)
                self.processes.append(Process(self.started, self.job.product, self.suite, folder))
            self.give()
            self.listen()
            if time.monotonic() - checked > CHECK_SECONDS:
                checked = time.monotonic()
                self.job.check_alive()
                self.look()

    def set_workers(self, workers: int, processes: int = 0) -> None:
        """Let so many models run at once, and have so many processes at least."""
        self.workers, self.most = workers, max(processes, count_processes(workers))

    def take_batches(self) -> None:
        """Take the tasks that the host has added."""
        ended = (self.job.folder / "end").exists()  # looked for first: no batch comes after it
        path = self.job.folder / ("%d.cell.json" % self.batches)
        while path.is_file():
            for task in json.loads(path.read_text())["tasks"]:
                (self.alone if task["alone"] else self.tasks).append(task)
            self.alone.sort(key=lambda task: task["order"])
            self.batches += 1
            path = self.job.folder / ("%d.cell.json" % self.batches)
        self.ended = ended

    def give(self) -> None:
        """Give idle processes tasks, as long as there are some and not too many run.

        One that is fresh gets what needs a fresh process, if that waits; half of what runs is such at most
        while there is more: to start and end processes, and to run models, keeps different things busy. One
        that has served others is ended for it only once nothing else is left to do: it takes long until
        another is ready.
        """
        idle = [process for process in self.processes if process.ready and not process.task]
        idle.sort(key=lambda process: -process.served)  # fresh ones are kept for who needs them
        running = [process.task for process in self.processes if process.task]
        room = self.workers - len(running)
        fresh = max(1, self.workers // 2) if self.tasks else self.workers
        fresh = min(room, fresh - sum(1 for task in running if task["alone"]))
        for process in idle:
            if self.alone and not process.served and fresh > 0 and process.give(self.alone):
                room, fresh = room - 1, fresh - 1
        for process in [process for process in idle if not process.task][: max(0, room)]:
            if self.tasks:
                process.give(self.tasks)
            elif self.alone and process.served:
                self.end(process)  # a fresh one takes its place

    def listen(self) -> None:
        """Wait a moment for what processes say and print, and take it."""
        heard: Dict[int, Callable[[], Any]] = {}
        for process in self.processes:
            if process.channel.open:
                heard[process.channel.fileno()] = lambda process=process: self.hear(process)  # type: ignore[misc]
            if process.tail is not None and process.tail.open:
                heard[process.tail.fileno()] = lambda tail=process.tail: tail.open and tail.take()  # type: ignore[misc]
        for stream in select.select(list(heard), [], [], CHECK_SECONDS)[0]:
            heard[stream]()

    def hear(self, process: Process) -> None:
        """Take in what a process has said: that it is ready, outputs, that a task has ended."""
        for message, file in process.channel.take():
            if file is not None:
                if process.task is not None and type(message.get("output")) is int:
                    name = "%d/%d.npy" % (process.task["index"], message["output"])
                    self.hand(lambda: self.host.send({"file": name}, file))  # noqa: B023 - called at once
                os.close(file)
            elif "ready" in message:
                process.ready, process.about = True, message["ready"]
            elif "unusable" in message:
                process.unusable = str(message["unusable"])
            elif "done" in message and process.task is not None:
                served = sum(1 for other in self.processes if other.served and other is not process)
                # One that has served a task alone is of use for others where there are too few.
                spent = process.task["alone"] and not (self.tasks and served < self.workers)
                self.record(process, message["done"])
                if message["done"].get("trouble") or spent:
                    self.end(process)

    def look(self) -> None:
        """See which processes have died or are over their time, and which of the ended ones are gone."""
        for process in list(self.processes):
            code, late = process.child.poll(), time.monotonic() > process.deadline
            if code is not None:
                self.hear(process)  # it has been heard out then
            if code is None and not (late and (process.task or not process.ready)):
                continue
            if process not in self.processes:
                continue
            memory = code == -signal.SIGKILL and oom_kills() > self.oom_kills
            self.oom_kills += memory
            if code is None:
                limit = process.task["seconds"] if process.task else WARM_SECONDS
                words = HUNG, "not done after %g s" % limit
            elif memory:
                words = MEMORY, "the kernel killed it: the memory of the container or host is full"
            else:
                words = ends.CRASHED, exit_words(code, finished=False)
            if process.task:
                self.record(process, {"ended": words[0], "detail": words[1]})
            elif not process.ready:
                why = process.unusable or words[1]
                print("a process did not become ready: %s" % why, flush=True)
                if self.mps.runs:  # a fault of the GPU in one of its processes ends it for all of them
                    self.mps.end("a process did not become ready: %s" % why)
                    self.set_workers(int(self.job.job["operators"]["workers"]))
                else:
                    self.most -= 1  # there may be no memory for more
                if self.most < 1:
                    raise Stopped(why)
            self.end(process)
        self.dying = [process for process in self.dying if process.child.poll() is None]

    def record(self, process: Process, done: Dict[str, Any]) -> None:
        """Hand over how a process's task has ended, with the end of what it printed where it died or hung."""
        task, tail = process.task, process.tail
        if task is None or tail is None:
            return
        log = tail.close()
        record = {**done, "process": process.number, "before": process.served, **process.about}
        record.update(workers=self.workers, mps=self.mps.runs, without_mps=self.mps.why)
        if done["ended"] in {ends.CRASHED, HUNG}:
            record["log"] = log[-LOG_CHARACTERS:]
        process.task = process.tail = None
        process.served += 1
        name = {"file": "%d.record.json" % task["index"]}
        self.hand(lambda: self.host.hand(name, lambda stream: stream.write(to_json(record).encode())))

    def hand(self, send: Callable[[], bool]) -> None:
        """Hand something to the host; ``Stopped`` where it has gone."""
        if not send():
            raise Stopped("the host has hung up")

    def end(self, process: Process) -> None:
        """End a process, and do not wait: a context takes a while to go. Another may be started at once."""
        self.processes.remove(process)
        process.channel.close()
        process.child.kill(wait=False)
        self.dying.append(process)


def run_operators(job: Job, host: Channel, cases: Path, out: Path) -> None:
    """Run a job of many small models to its end."""
    # Kernels are loaded as they are needed: a first Builder loads all of them otherwise, in each process.
    # https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#lazy-loading
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    operators = Operators(job, host, cases, out)
    try:
        operators.run()
    finally:
        operators.mps.end()
        kill_descendants()


# --- Inside of a process


def serve(channel: Channel, product: str, suite: Path, folder: Path) -> int:
    """Open the product, say so, then run each task that comes; returns when nobody asks any more."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # to write gigabytes takes longer than a hundred tasks
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(str(folder))
    try:
        members = ZipFile(str(suite))
        backend = open_backend(product)
        backend.warm_up()
        about = {**observe.observed(), **backend.observed(), **observe.loaded()}
    except Exception as error:
        channel.send({"unusable": ("%s: %s" % (type(error).__name__, error))[:LOG_CHARACTERS]})
        return 1
    channel.send({"ready": {"observed": about, "builder_seconds": backend.builder_seconds}})
    while True:
        task, output = channel.receive() or ({}, None)
        if output is None:
            return 0
        for stream in (1, 2):
            flush()
            os.dup2(output, stream)
        os.close(output)
        if not channel.send({"done": run_task(task, backend, members, channel)}):
            return 0


def run_task(task: Dict[str, Any], backend: Backend, members: ZipFile, channel: Channel) -> Dict[str, Any]:
    """Build and run one model and hand over its outputs; returns how it ended, and what that took."""
    backend.begin(Plans())
    done: Dict[str, Any] = {"ended": ends.RAN, "detail": "", "missing": []}
    started = time.perf_counter()
    try:
        model = Path.cwd() / "model.onnx"
        model.write_bytes(members.read(task["model"]))
        inputs = {name: np.load(BytesIO(members.read(file))) for name, file in task["inputs"].items()}
        started = time.perf_counter()
        engine = backend.build(model, precision="fp32", profile=task["profile"])
        done["build_seconds"] = time.perf_counter() - started
        for name in ("_has_latency", "_timed"):  # nothing is timed here; one engine has a method _timed
            if isinstance(getattr(engine, name, None), bool):
                setattr(engine, name, True)
        outputs = engine.run(inputs)
        for place, name in enumerate(task["outputs"]):
            if name in outputs:
                channel.hand({"output": place}, npy(outputs[name]))
            else:
                done["missing"].append(name)
    except ends.BuiltOnly:
        done["ended"] = ends.BUILT
    except BaseException as error:
        text = str(error) if isinstance(error, ends.CellEnd) else "%s: %s" % (type(error).__name__, error)
        done.update(ended=where(error), detail=text[:LOG_CHARACTERS])
    done["seconds"] = time.perf_counter() - started
    done["trouble"] = backend.trouble()[:LOG_CHARACTERS]
    return done


def where(error: BaseException) -> str:
    """Return at what a task failed, by the functions that the exception came through."""
    passed = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
    if isinstance(error, (ends.OutOfGpuMemory, MemoryError)):
        return MEMORY
    if "run" in passed:
        return FEED if passed & {"bind", "fit_feed"} else RUN
    if "build" not in passed:  # the task could not be read, or an output not be handed over
        return ends.PROBE_FAILED
    session = "onnxruntime" in traceback.extract_tb(error.__traceback__)[-1].filename
    return PARSER if "_parse" in passed or session else BUILDER
