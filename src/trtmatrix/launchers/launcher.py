"""What every launcher does: run the probe over one job folder, and say how that ended."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trtmatrix.suite.model import Gpu
from trtmatrix.suite.plan import Launch

HEARTBEAT_SECONDS = 1.0
POLL_SECONDS = 0.02
"""How often is looked for new records, and new cells are handed in. A look costs two system calls."""
LOOK_SECONDS = 1.0
"""How often is looked at what cells have written to a folder of this host."""
END_SECONDS = 3.0
"""How long a supervisor that is asked to end may take."""
TAIL = 4000
"""Letters of a log that are kept."""

Poll = Callable[[], None]
"""Called every :data:`POLL_SECONDS` while the probe runs: it collects records and hands in cells."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a launch ended: the exit code, and whether the kernel killed it for memory."""

    code: int
    out_of_memory: bool = False
    log: str = ""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A launch that can be started: its digests, and what its launcher starts it by."""

    launch: Launch
    digests: Mapping[str, str]
    handle: Any = field(repr=False)


class Launcher(Protocol):
    """Starts the probe for the cells of one version on one GPU."""

    def make_ready(self, launch: Launch) -> Ready:
        """Pull, build or find what is needed; :class:`MachineryError` where that fails."""

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        """Run the probe over ``folder`` to its end; nothing of it is left afterwards."""


def gpu_variables(gpu: Gpu) -> dict[str, str]:
    """Return the variables by which CUDA sees this GPU and no other; none where the GPU is not here."""
    if gpu.index is None:
        return {}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu.uuid or str(gpu.index)}


@contextlib.contextmanager
def heartbeat(folder: Path) -> Iterator[None]:
    """Touch a file in the job's ``folder`` every second, so that the probe knows that this process lives."""
    file, done = folder / "job" / "heartbeat", threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(OSError):  # the probe ends by itself where it cannot be told
                file.touch()

    file.touch()
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Overfull(Exception):
    """Cells hold more of this host's disk than they may, and the probe's supervisor lets them."""


class DiskWatch:
    """Looks at a folder of this host that cells write to, where they have no file system of their own.

    A supervisor that works has ended a cell that takes too much by the second look, but a cell may have
    stopped it, and it does not see what was allocated beyond a file's end.
    """

    def __init__(self, folder: Path, most: int) -> None:
        """Name the folder, and the bytes on disk that it may hold."""
        self.folder, self.most = folder, most
        self._looked, self._was_full = 0.0, False

    def look(self) -> None:
        """Raise :class:`Overfull` where the folder holds too much in two looks, a second from each other."""
        if time.monotonic() < self._looked + LOOK_SECONDS:
            return
        written, was_full = disk_bytes(self.folder, self.most), self._was_full
        self._looked, self._was_full = time.monotonic(), written > self.most
        if was_full and self._was_full:
            raise Overfull(f"{self.folder.name} has {written:,} bytes or more; it may hold {self.most:,}")


def disk_bytes(folder: Path, most: int) -> int:
    """Return the bytes on disk below a folder, no link followed; counting ends above ``most``.

    A folder that cannot be looked into, for its rights or its depth, may hold anything: it counts as more.
    """
    total, folders = 0, [str(folder)]
    while folders and total <= most:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                        folders += [entry.path] if entry.is_dir(follow_symlinks=False) else []
        except FileNotFoundError:  # it was removed just now
            continue
        except OSError:
            return most + 1
    return total


def run_session(
    command: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path, poll: Poll,
    largest_file: int | None = None,
) -> int:  # fmt: skip
    """Run a command over a job's ``folder`` in a session of its own, all of which is killed at the end.

    What it prints goes to ``log``; ``largest_file``: bytes that it may write into one. Returns what ``Popen``
    does.
    """
    with log.open("wb") as stream, heartbeat(folder):
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=environment,
            start_new_session=True,
        )  # fmt: skip
        try:
            if largest_file is not None:
                with contextlib.suppress(ProcessLookupError):
                    hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1]
                    most = largest_file if hard == resource.RLIM_INFINITY else min(largest_file, hard)
                    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
            while process.poll() is None:
                poll()
                time.sleep(POLL_SECONDS)
        finally:
            if process.poll() is None:  # the supervisor ends its cell, then what is left of it is killed
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=END_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    poll()
    return process.returncode


def log_tail(log: Path) -> str:
    """Return the end of a log."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 4 * TAIL))
        return stream.read().decode("utf-8", "replace")[-TAIL:]
