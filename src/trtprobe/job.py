"""The job's folder: cells that the host adds one by one, its sign of life, and folders to be emptied."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from trtprobe import ends

POLL_SECONDS = 0.005
HEARTBEAT_SECONDS = 15.0  # without a sign of life from the host for this long, the job ends

Cut = Tuple[str, str]  # how a process that was cut off is said to have ended, and the words


class Stopped(BaseException):
    """The supervisor is to end: it was told to, at whatever line it was, or the host is gone."""


class Job:
    """``job.json``, then ``0.cell.json``, ``1.cell.json`` …, then ``end``; ``heartbeat`` all along."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job: Dict[str, Any] = json.loads((folder / "job.json").read_text())
        self.product: str = self.job["product"]
        self.is_warm = self.job.get("isolation", "worker") == "worker"

    def cell(self, index: int, idle: Callable[[], None]) -> Optional[Dict[str, Any]]:
        """Wait for a cell and return it, or None where there are no more.

        ``idle`` is called again and again while none is there. :class:`Stopped` where the host is gone.
        """
        path = self.folder / ("%d.cell.json" % index)
        while True:
            self.check_alive()
            ended = (self.folder / "end").exists()  # looked for first: no cell comes after it
            if path.is_file():
                cell: Dict[str, Any] = json.loads(path.read_text())
                return cell
            if ended:
                return None
            idle()
            time.sleep(POLL_SECONDS)

    def alive(self) -> bool:
        """Whether the host has lately given a sign of life."""
        with contextlib.suppress(OSError):
            return time.time() - (self.folder / "heartbeat").stat().st_mtime < HEARTBEAT_SECONDS
        return False

    def check_alive(self) -> None:
        """Raise :class:`Stopped` where the host is gone."""
        if not self.alive():
            raise Stopped("no sign of life from the host")

    def empty_scratch(self) -> None:
        """Empty the folders that ``scratch`` names, the job's alone, and make the home folder anew."""
        for folder in self._scratch():
            empty(folder)
        make_home()

    def scratch_bytes(self) -> int:
        """Return the bytes in the folders that ``scratch`` names."""
        return sum(map(folder_bytes, self._scratch()))

    def _scratch(self) -> List[Path]:
        named = self.folder / "scratch"
        return [Path(line) for line in named.read_text().splitlines()] if named.is_file() else []


class Limits:
    """Limits of one process of a cell while it runs: its time, the host's sign of life, what it writes."""

    def __init__(self, job: Job, out: Path, seconds: float) -> None:
        """Start the clock; ``out``: where it may write. Plans (``*plans``) have a limit of their own."""
        self.job, self.out, self.seconds = job, out, seconds
        self.largest = int(job.job["output_bytes"])
        self._deadline, self._before = time.monotonic() + seconds, self._written()

    def check(self) -> Optional[Cut]:
        """Return how the process has to be cut off, None where it may go on."""
        if time.monotonic() > self._deadline:
            return ends.TIME_OUT, "not done after %g s" % self.seconds
        if not self.job.alive():
            return ends.INTERRUPTED, "the host gave no sign of life"
        written = self._written() - self._before
        if written > self.largest:
            return ends.CRASHED, "wrote %d bytes; the output folder may hold %d" % (written, self.largest)
        return None

    def _written(self) -> int:
        with contextlib.suppress(OSError):  # a cell may have removed it
            folders = [path for path in self.out.iterdir() if not path.name.endswith("plans")]
            return sum(map(folder_bytes, folders))
        return 0


def make_home() -> None:
    """Make the home folder in a container's scratch, where it is not there yet."""
    with contextlib.suppress(OSError):
        Path(os.environ.get("HOME", "/nowhere")).mkdir(parents=True, exist_ok=True)


def empty(folder: Path) -> None:
    """Remove what lies in a folder, as far as that can be done."""
    for path in folder.iterdir():
        remove(path)


def make_empty(folder: Path) -> None:
    """Make a folder, or empty it where it is there; whatever else has its name goes."""
    if folder.is_symlink() or not folder.is_dir():
        remove(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    empty(folder)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all in it, as far as that can be done and as deep as Python goes."""
    with contextlib.suppress(OSError, RecursionError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(str(path), ignore_errors=True)
        else:
            path.unlink()


def folder_bytes(folder: Path) -> int:
    """Return the bytes of a file, or of all below a folder, as deep as Python goes (no link is followed)."""
    total = 0
    with contextlib.suppress(RecursionError, OSError):
        if folder.is_symlink() or not folder.is_dir():
            return os.lstat(str(folder)).st_size
        for root, _, files in os.walk(str(folder)):
            for name in files:
                with contextlib.suppress(OSError):
                    path = os.path.join(root, name)  # noqa: PTH118 - a Path a file takes longer
                    total += os.lstat(path).st_size
    return total
