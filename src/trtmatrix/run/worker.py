"""A worker: one start of the probe. Tasks are fed to it as files, records are stored as they appear.

The host's end of the probe's one connection is the :class:`Intake`: what the probe hands over is written
below the job's ``out``. Whoever connects first is the probe, since nothing of a repro has run by then; nobody
can after it. What comes is sealed memory: it can neither change nor block who reads it, and each file's name
and size is checked here by the limits of the border (:mod:`trtmatrix.common.border`). So the folder that the
records are read from is written by this process alone, and no container has it.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trtmatrix.common.border import RECORD, BorderError, check_name, read_json, remove_tree
from trtmatrix.common.errors import MachineryError
from trtmatrix.common.paths import make_job_folder, whole_file
from trtmatrix.judge.compare import FROM_THE_PROCESS, assess, is_shared, newest
from trtmatrix.judge.entry import Entry, are_comparable, expected_verdict
from trtmatrix.judge.noise import fits, read_noise
from trtmatrix.judge.record import SCHEMA, Record, RecordError, record_from
from trtmatrix.launchers.launcher import Ended, Ready
from trtmatrix.plan.order import cell_digests
from trtmatrix.prepare.cases import find_change, read_content, read_noise_file
from trtmatrix.records.store import keep_outputs, write_record
from trtmatrix.run.tasks import CELLS, Run, Task, TaskQueue
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Cause, Product, Verdict
from trtmatrix.suite.plan import Isolation
from trtprobe.channel import SOCKET, Channel, near, sealed_size
from trtprobe.files import write_json

STARVED = (Cause.OUT_OF_GPU_MEMORY, Cause.OUT_OF_HOST_MEMORY, Cause.TIME_OUT)
"""What may come of those that run beside."""
OVERDUE_SECONDS = 30.0  # a cell that is so much over its time limit has taken the probe's supervisor down


class Stopped(Exception):
    """The run was interrupted; the worker that sees this cleans up and ends."""


class Overdue(Exception):
    """The probe neither ended a cell at its time limit nor ended itself."""


class Worker:
    """One start of the probe over what a queue gives."""

    def __init__(self, ready: Ready, queue: TaskQueue, recorder: Recorder, run: Run) -> None:
        self.ready, self.queue, self.recorder, self.state = ready, queue, recorder, run
        self.version = ready.launch.version.name
        self._name = f"{run.id}-{self.version}-{ready.launch.gpu.slug}-{os.urandom(3).hex()}"
        self.fed: list[Task] = []  # by index: the probe runs them in this order
        self.failed = False  # whether it could not be started
        self._warm: list[Task] = []  # what its process is warm for
        self._next = 0  # the first index whose record has not been seen
        self._started = -1  # the last index that is known to have started
        self._due = math.inf
        self._closed = False
        self._cause: Cause | None = None  # why it had to be ended
        # The engine's flag is for the whole container: it is no news once a record has told of a kill.
        self._told_of_memory = False

    def run(self) -> None:
        """Run the probe to its end, and record what it could not; :class:`Stopped` where the run ended.

        The job's folder is removed on every path.
        """
        folder = make_job_folder(self.state.cache, self._name)
        try:
            ended = self._run_probe(folder)
        finally:
            remove_tree(folder)
            self.state.progress.now(self._name)
        self._settle(ended)

    def _run_probe(self, folder: Path) -> Ended:
        """Start the probe and wait for its end; returns how it ended, also where it had to be ended."""
        run, launch = self.state, self.ready.launch
        worker, surface = run.options.isolation is Isolation.WORKER, self._asks_surface()
        write_json(folder / "job" / "job.json", {
            "product": launch.version.product.value, "output_bytes": run.options.output_size,
            "isolation": (Isolation.WORKER if worker else Isolation.PROCESS).value, "surface": surface,
        })  # fmt: skip
        self._feed(folder / "job")
        intake = Intake(folder, run.options.output_size)

        def poll() -> None:
            intake.take()
            if run.stop.is_set():
                raise Stopped
            self._collect(folder / "out")
            if time.monotonic() > self._due:
                raise Overdue
            self._feed(folder / "job")

        try:
            ended = run.launcher_of(launch).run(self.ready, folder, poll)
        except Overdue:
            return Ended(code=-1, log="it was ended: a cell was long over its time limit")
        except MachineryError as error:
            self._collect(folder / "out")  # what had come out is no less true
            run.progress.note(f"{self.version}: {error}")
            self._cause = Cause.LAUNCHER_FAILED
            return Ended(code=-1, log=str(error))
        finally:
            intake.close()
        if surface:
            self._keep_surface(folder / "out" / "surface.json")
        return ended

    def _asks_surface(self) -> str:
        """Return the module whose API is to be read inside the image, of a release whose API is not known."""
        version = self.ready.launch.version
        if version.product is not Product.TENSORRT or not self.state.reads_api:
            return ""
        from trtmatrix.api.section import find_surface, read_surfaces

        return "" if find_surface(version.name, read_surfaces(self.state.local.parent)) else "tensorrt"

    def _keep_surface(self, left: Path) -> None:
        from trtmatrix.api.section import keep_surface

        name, words = self.ready.launch.version.name, "was read inside the image"
        try:
            keep_surface(left, self.state.local.parent, name, self.ready.digests.get("image", ""))
        except FileNotFoundError:  # the bindings have none, or the probe did not come to it
            return
        except (OSError, ValueError) as error:
            words = f"that was read inside could not be kept: {error}"
        self.state.progress.note(f"{name}: its API {words}")

    def _feed(self, job: Path) -> None:
        """Write each task that can be run now, and the end once nothing more will come."""
        if self._closed or (self.queue.in_turn and self._next < len(self.fed)):
            return
        single = self.state.options.isolation is Isolation.CONTAINER
        for task in self.queue.take(self.ready.launch, 1 if single else None):
            loaded = self.state.repros[task.cell.repro.id]
            files = self.state.cases.folder(loaded, task.cell.case).name
            write_json(job / f"{len(self.fed)}.cell.json", task.message(loaded, files))
            self.fed.append(task)
        if (single and self.fed) or self.queue.is_done(self.version):
            (job / "end").touch()
            self._closed = True

    def _collect(self, out: Path) -> None:
        """Store each record that has appeared; they appear in order."""
        while self._next < len(self.fed):
            index, task = self._next, self.fed[self._next]
            if not os.path.lexists(file := out / f"{index}.record.json"):
                if index > self._started and os.path.lexists(out / f"{index}.started.json"):
                    self._started = index
                    self.state.progress.now(self._name, str(task.cell.id))
                    self._due = time.monotonic() + task.seconds + OVERDUE_SECONDS
                return
            self._started, self._next, self._due = index, index + 1, math.inf
            if task.beside and self._pass_over(task, file):
                remove_tree(out / str(index))
                continue
            record, engines = self.recorder.store(task, file, out / str(index))
            self._told_of_memory |= bool(record.data.get("oom_kills"))
            self._cool(task, record.data)
            self._take(task, record, engines)

    def _pass_over(self, task: Task, file: Path) -> bool:
        """Whether nothing is kept of what ran beside others: it was to warm up, or may have lacked room.

        What may have lacked room, or time, comes again and has its turn, but not where what it confirms ended
        so in its own.
        """
        data: dict[str, Any] = {}
        with contextlib.suppress(BorderError):
            data = read_json(file)
        self._told_of_memory |= bool(data.get("oom_kills"))
        before, ended = self.state.before.get(task.cell.id, ()), data.get("ended")
        if task.warms:
            if not self._cool(task, data):
                self._warm.append(task)
        elif (
            task.beside > 1
            and ended in STARVED
            and (task.confirms, ended) not in {(record.run, record.ended) for record in before}
        ):
            self.queue.add(replace(task, beside=0))
        else:
            return False
        self.queue.ended(task)
        return True

    def _cool(self, task: Task, data: Mapping[str, Any]) -> bool:
        """Whether a task before the turns ended its process: what that was warm for warms up again."""
        worker = data.get("worker")
        is_cold = bool(task.beside and not task.confirms and isinstance(worker, dict) and worker.get("ended"))
        if is_cold:
            self.queue.cooled(task, self._warm)
            self._warm = []
        return is_cold

    def _take(self, task: Task, record: Record, engines: int) -> None:
        self.state.records.append(record)
        self.queue.ended(task, engines)

    def _settle(self, ended: Ended) -> None:
        """Record the task that took the probe down; what else is left goes back to the queue.

        All that is left fails where the probe cannot be started. One whose engine went away while it ran is
        started again for what is left. One that ended before there was anything to do is no trouble yet.
        """
        failed_to_start = self._cause is Cause.LAUNCHER_FAILED or (
            self.fed and not self.queue.is_done(self.version)
        )
        if self._started < 0 and failed_to_start:
            self.failed, detail = True, f"the probe did not start: {ended.log[-1500:]}"
            for task in self.queue.drop(self.ready.launch, self.fed[self._next :]):
                if not task.warms:
                    record, _ = self.recorder.fail(task, Cause.LAUNCHER_FAILED, detail)
                    self.state.records.append(record)
            return
        left = self.fed[self._next :]
        if left and self._started == self._next:
            cause = self._cause or Cause.PROBE_FAILED
            if ended.out_of_memory and not self._told_of_memory:
                cause = Cause.OUT_OF_HOST_MEMORY
            elif ended.code in {137, 143}:
                cause = Cause.INTERRUPTED
            detail = f"the probe ended with code {ended.code}: {ended.log[-1500:]}"
            failed, *left = left
            self._cool(failed, {"worker": {"ended": True}})
            if failed.warms:
                self.queue.ended(failed)
            else:
                self._take(failed, *self.recorder.fail(failed, cause, detail))
        self.queue.give_back(left)


class Recorder:
    """Completes, judges and stores the records of one launch; keeps their outputs or drops them.

    Beside a record stands how many engines must be built alone before its verdict is believed.
    """

    def __init__(self, ready: Ready, run: Run) -> None:
        self.digests, self.state = ready.digests, run
        gpu = ready.launch.gpu
        self._clocks = run.gpu_clocks(gpu) if gpu.present else {}
        ours = {cell.id for cell in ready.launch.cells}
        groups = newest(item for item in run.stored if item.record.cell in ours)
        for cell, items in groups.items():
            run.before.setdefault(cell, [item.record for item in items])

    def store(self, task: Task, file: Path, folder: Path) -> tuple[Record, int]:
        """Write a cell's record, read from ``file``; ``folder`` holds its outputs, and is removed.

        What it left is a stranger's: whatever cannot be read or judged costs this cell alone.
        """
        cell, run = task.cell, self.state
        try:
            data = read_json(file)
            case = run.cases.folder(run.repros[cell.repro.id], cell.case)
            trouble, out = find_change(case), folder.parent
            if not trouble and data.get("ended") in (Cause.CRASHED, Cause.BUILD_FAILED, Cause.PROBE_FAILED):
                free = shutil.disk_usage(out).free
                if os.strerror(errno.EDQUOT) in str(data.get("detail")):
                    trouble = f"the disk quota of {out} is exceeded"
                elif free < LEAST_ROOM:
                    trouble = f"the disk of {out} has {free:,} bytes left"
            if trouble:
                return self.fail(task, Cause.LAUNCHER_FAILED, NOT_THE_CELL + trouble)
            noise = read_noise_file(case)
            complete = {**data, **self._host_facts(task), "noise": noise}
            kept = complete.pop("kept", {})
            record = record_from(complete)
            if ensemble := read_noise(record.noise):
                # The record is a view of these very objects.
                noise["fits"] = fits(ensemble, record.builds[0].outputs)
            found, engines = self._judge(cell, record)
            right = {found.verdict, expected_verdict(cell)} == {Verdict.PASS}
            if kept and task.keep and (cell.case.keep or cell.case.control or not right):
                complete["kept"] = keep_outputs(run.cache, folder, kept)
            record = self._keep(cell, record)
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            said = str(error) if isinstance(error, (BorderError, RecordError)) else repr(error)
            return self.fail(task, Cause.PROBE_FAILED, f"what the cell left cannot be used: {said[:1000]}")
        finally:
            remove_tree(folder)
        run.progress.step(CELLS, f"{cell.id}: {found.word}")
        return record, engines

    def fail(self, task: Task, cause: Cause, detail: str) -> tuple[Record, int]:
        """Store the record of a task for which the probe left none that can be used.

        It says so where this host has changed what the cell was given.
        """
        run, cell = self.state, task.cell
        if cause is not Cause.LAUNCHER_FAILED and (
            change := find_change(run.cases.folder(run.repros[cell.repro.id], cell.case))
        ):
            cause, detail = Cause.LAUNCHER_FAILED, NOT_THE_CELL + change
        moment = run.clock().strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        run.progress.step(CELLS, f"{cell.id}: {cause.value}")
        record = record_from({
            "ended": cause.value, "detail": detail[:4000], "started": moment, "finished": moment,
            "attempts": 1, "observed": {}, "environment": {}, "engine": {}, "log": "",
            "measurements": {"outputs": {}, "scalars": {}}, **self._host_facts(task),
        })  # fmt: skip
        _, engines = self._judge(cell, record)
        engines = 1 if run.options.confirm and not task.alone and cause in FROM_THE_PROCESS else engines
        return self._keep(cell, record), engines

    def _host_facts(self, task: Task) -> dict[str, Any]:
        """Return what the host adds to a record: whose it is, digests, the GPU as NVML sees it.

        Of a GPU there is only the name where it is not known which board it was. A board of a node has its
        host, as a hash: drivers are a host's. One of this host has none: a workstation's name says who sits
        before it, and the board's own hash tells it apart.
        """
        cell, gpu, run = task.cell, task.cell.gpu, self.state
        loaded = run.repros[cell.repro.id]
        digests = {**cell_digests(cell, loaded), **self.digests, "probe": run.probe_digest}
        with contextlib.suppress(OSError, BorderError, KeyError):  # a launch may fail before a case is there
            digests["content"] = read_content(run.cases.folder(loaded, cell.case))
        board: dict[str, Any] = {"name": gpu.name} if gpu.present else {}
        if gpu.index is not None or (gpu.present and (gpu.host or gpu.uuid_hash)):
            board |= {
                "compute": gpu.compute, "variant": gpu.variant, "driver": gpu.driver,
                "uuid_sha256": gpu.uuid_hash, "clocks": dict(self._clocks),
            }  # fmt: skip
            board |= {"host": gpu.host} if gpu.host else {}
        beside = gpu.present and not gpu.remote and not cell.is_exclusive
        workers = max(task.beside, run.options.workers if beside else 1)
        return {
            "schema": SCHEMA, "cell": vars(cell.id), "run": task.run, "product": cell.version.product.value,
            "digests": digests, "gpu": board, **({"confirms": task.confirms} if task.confirms else {}),
            **({"workers": workers} if workers > 1 else {}),
        }  # fmt: skip

    def _judge(self, cell: Cell, record: Record) -> tuple[Entry, int]:
        """Return what a cell shows, and how many engines must be built before the record is believed."""
        run, how = self.state, self.state.options
        comparable = (other for other in run.before.get(cell.id, ()) if are_comparable(record, other))
        found = assess(cell, [record, *comparable], run.calibration)
        sampled = cell.id in run.sampled and is_shared(record) and found.verdict is Verdict.PASS
        wanted = found.wanted or int(sampled)
        return found, max(wanted, how.rebuilds) if wanted and how.confirm else 0

    def _keep(self, cell: Cell, record: Record) -> Record:
        kept = write_record(self.state.local, record)
        self.state.before.setdefault(cell.id, []).insert(0, kept)
        return kept


NOT_THE_CELL = "trouble of this host, not of the cell: "
LEAST_ROOM = 1 << 24  # bytes on the disk of a cell's outputs below which it cannot be expected to end well


NAMES = re.compile(r"(?:\d{1,9}\.(?:started|record)|surface)\.json|\d{1,9}/(?!\.)[^/\x00-\x1f\x7f]+\.npy")
MOST = 4096  # files that are taken of one cell


class Intake:
    """Listens in a job's folder until the probe has connected, then takes what it hands over."""

    def __init__(self, folder: Path, most: int) -> None:
        """Listen; ``most``: bytes that the outputs of one cell may have."""
        self.out, self.most = folder / "out", most
        self._job = os.open(folder / "job", os.O_RDONLY | os.O_DIRECTORY)
        self._listening: socket.socket | None = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel: Channel | None = None
        self._taken = (0, 0)  # files and bytes since the last record
        try:
            self._listening.bind(near(self._job, SOCKET))
            (folder / "job" / SOCKET).chmod(0o666)  # the job's folder itself lets nobody else in
            self._listening.listen(1)
            self._listening.setblocking(False)
        except OSError as error:
            self.close()
            raise MachineryError(
                f"{folder} cannot hold a socket: {error}; name a folder on this host's own disk by "
                "TRTMATRIX_SCRATCH"
            ) from error

    def take(self) -> None:
        """Write what has come since, without waiting; :class:`MachineryError` where this host cannot."""
        if self._channel is None and self._listening is not None:
            try:
                connection, _ = self._listening.accept()
            except BlockingIOError:
                return
            self._hang_up()
            self._channel = Channel(connection)
        for words, file in () if self._channel is None else self._channel.take():
            if file is None:
                continue
            try:
                self._write(str(words.get("file")), file)
            except ValueError:  # of no use: whoever reads the record finds that it is not there
                continue
            except OSError as error:
                raise MachineryError(f"what came out cannot be written to {self.out}: {error}") from error
            finally:
                os.close(file)

    def _write(self, name: str, file: int) -> None:
        """Write one file below ``out``, whole; ``ValueError`` where it has no right name, or is too large."""
        size, (files, total) = sealed_size(file), self._taken
        array = name.endswith(".npy")
        self._taken = (files + 1, total + size) if array else (0, 0)
        if not NAMES.fullmatch(name) or files >= MOST or self._taken[1] > self.most + RECORD:
            raise BorderError("has no right name, or is one too many")
        if not array and size > RECORD:
            raise BorderError(f"has {size:,} bytes, more than a record may have")
        path = self.out / name
        check_name(path.stem)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with whole_file(path, 0o600, sync=False) as out:
            at = 0
            while at < size:
                at += os.sendfile(out.fileno(), file, at, size - at)

    def _hang_up(self) -> None:
        if self._listening is not None:
            self._listening.close()
            os.close(self._job)
        self._listening = None

    def close(self) -> None:
        """Take no more."""
        self._hang_up()
        if self._channel is not None:
            self._channel.close()
