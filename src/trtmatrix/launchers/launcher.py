"""What every launcher does: run the probe over one job folder, and say how that ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.owner import own_identity
from trtmatrix.common.paths import probe_folder
from trtmatrix.launchers.container import ContainerSpec, Folders, Limits, job_labels, make_container_spec
from trtmatrix.suite.plan import Engine, Launch

HEARTBEAT_SECONDS = 1.0
POLL_SECONDS = 0.02
"""How often is looked for new records, and new cells are handed in. A look costs two system calls."""

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
    """A launch that can be started: its digests and how to start it."""

    launch: Launch
    digests: Mapping[str, str]
    handle: Any = field(repr=False)


def launch_spec(
    launch: Launch, image: str, engine: Engine, *, cache: Path, repros: Path, folder: Path, limits: Limits
) -> ContainerSpec:
    """Describe the container of a launch over a job's ``folder``; one named JOB stands for all of them."""
    folders = Folders(
        probe=str(probe_folder()), repros=str(repros.resolve()), cases=str((cache / "cases").resolve()),
        job=str(folder / "job"), out=str(folder / "out"),
    )  # fmt: skip
    return make_container_spec(
        version=launch.version, image=image, gpu=launch.gpu, engine=engine, folders=folders, limits=limits,
        name=f"trtmatrix-{folder.name}", owner="OWNER" if folder == Path("JOB") else own_identity(),
        user=f"{os.getuid()}:{os.getgid()}", labels=job_labels(os.environ),
    )  # fmt: skip


class WrongVersion(MachineryError):
    """What a launch is to run in has another version of its product than it is pinned for."""

    def __init__(self, message: str, digests: Mapping[str, str]) -> None:
        """Keep what it was found in, as records name it."""
        super().__init__(message)
        self.digests = digests


class Launcher(Protocol):
    """Starts the probe for the cells of one version on one GPU."""

    def make_ready(self, launch: Launch) -> Ready:
        """Pull, build or find what is needed; :class:`MachineryError` where that fails.

        :class:`WrongVersion` where what is found is another version than the pinned one.
        """

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        """Run the probe over ``folder`` to its end; nothing of it is left afterwards."""


class Heartbeat:
    """Touches a file every second, so that the probe knows that this process lives."""

    def __init__(self, path: Path) -> None:
        """Name the file."""
        self.path = path
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def _beat(self) -> None:
        while not self._done.wait(HEARTBEAT_SECONDS):
            self.path.touch()

    def __enter__(self) -> Heartbeat:
        """Begin."""
        self.path.touch()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """End."""
        self._done.set()
        self._thread.join()
