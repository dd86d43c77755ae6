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
POLL_SECONDS = 0.02  # how often is looked for new records; a look costs two system calls
END_SECONDS = 3.0  # how long a supervisor that is asked to end may take
TAIL = 4000  # letters of a log that are kept

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
    """A launch that can be started; ``handle``: what its launcher starts it by.

    ``digests``: ``image`` and ``runtime``, as ``plan.order.origin_digests`` gives them too.
    """

    launch: Launch
    digests: Mapping[str, str]
    handle: Any = field(repr=False)


class Launcher(Protocol):
    """Starts the probe for the cells of one version on one GPU of this host: results need the same kernel."""

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


def run_session(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, poll: Poll,
    largest_file: int | None = None,
) -> Ended:  # fmt: skip
    """Run a command over a job's ``folder`` in a session of its own, all of which is killed at the end.

    ``largest_file``: bytes that it may write into one. The exit code is ``Popen``'s.
    """
    with (folder / "probe.log").open("w+b") as stream, heartbeat(folder):
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
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - 4 * TAIL))
        said = stream.read().decode("utf-8", "replace")[-TAIL:]
    poll()
    return Ended(code=process.returncode, log=said)
