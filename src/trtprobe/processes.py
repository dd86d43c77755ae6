"""Child processes that are really gone afterwards, with all that they started; what they print."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import re
import signal
import sys
import time
import traceback
from functools import lru_cache
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence

CGROUPS = Path("/sys/fs/cgroup")
_LIBC = ctypes.CDLL(None)
TAIL_BYTES = 64 * 1024
CHUNK = 1 << 16
PIPE_CHUNKS = 32
"""A pipe holds fewer chunks than this (Linux: at most 1 MiB), so that reading what is left has an end."""

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36


class Child:
    """A forked process in a session of its own, which dies with this one.

    It starts with what this process has imported, so the imports are paid for once a job; no
    product that opens a GPU may be among them. It prints where this process prints.
    """

    def __init__(self, work: Callable[[], int], keep: int, unset: Sequence[str]) -> None:
        """Start ``work``, its environment less the variables ``unset``, with the open file ``keep`` alone."""
        flush()
        self.code: Optional[int] = None
        self.pid = os.fork()
        if self.pid == 0:
            _be_child(work, keep, unset)

    def poll(self) -> Optional[int]:
        """Return the exit code (negative: the signal) once the child has ended, else None."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return self.code

    def kill(self, *, wait: bool = True) -> None:
        """Kill the whole session's group; ``wait`` for its end, then kill whatever escaped it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            if self.code is None:
                os.kill(self.pid, signal.SIGKILL)  # it may not have made its session yet
        if wait:
            while self.poll() is None:
                time.sleep(0.001)
            kill_descendants()


def _be_child(work: Callable[[], int], keep: int, unset: Sequence[str]) -> None:
    """Turn a fresh fork into the child; never returns."""
    code = 70
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _prctl(PR_SET_DUMPABLE, 1)
        with contextlib.suppress(OSError):  # the kernel kills the cell, never its supervisor, for memory
            Path("/proc/self/oom_score_adj").write_text("1000")
        become_subreaper()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.closerange(3, keep)
        os.closerange(keep + 1, 256)
        faulthandler.enable(file=2)
        for name in unset:
            os.environ.pop(name, None)
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        flush()
        os._exit(code)


class Tail:
    """A pipe whose tail is kept: ``writing`` is for who prints, the rest for who reads."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self.open, self.total, self.kept = True, 0, b""

    def fileno(self) -> int:
        """Return the number of the end that is read, for select."""
        return self._reading

    def hand_over(self) -> None:
        """Close the writing end here: the other process has it."""
        if self.writing >= 0:
            os.close(self.writing)
        self.writing = -1

    def take(self) -> bool:
        """Read one chunk of what is there; whether there was any."""
        try:
            chunk = os.read(self._reading, CHUNK)
        except BlockingIOError:
            return False
        self.open = bool(chunk)
        self.total += len(chunk)
        self.kept = (self.kept + chunk)[-TAIL_BYTES:]
        return self.open

    def close(self) -> str:
        """Read what is left, without waiting for whoever still holds the pipe; returns the tail."""
        self.hand_over()
        for _ in range(PIPE_CHUNKS):
            if not self.open or not self.take():
                break
        os.close(self._reading)
        self.open = False
        text, dropped = self.kept.decode("utf-8", "replace"), self.total - len(self.kept)
        return "[%d bytes before this are dropped]\n%s" % (dropped, text) if dropped > 0 else text


def flush() -> None:
    """Write out what Python and the C library hold back; a cell may have closed either."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    _LIBC.fflush(None)


def hide() -> None:
    """Let no other process of this user look into this one's memory or files, or trace it.

    What it forks starts so too. https://man7.org/linux/man-pages/man2/pr_set_dumpable.2const.html.
    """
    _prctl(PR_SET_DUMPABLE, 0)


def become_subreaper() -> None:
    """Adopt orphans of our children, so that they can be found and killed."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        _LIBC.prctl(option, value, 0, 0, 0)


def has_children() -> bool:
    """Whether a process below this one lives; those that have ended are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def kill_descendants() -> None:
    """Kill and reap every process below this one, until none is left (at most two seconds)."""
    deadline = time.monotonic() + 2
    while has_children() and time.monotonic() < deadline:
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)  # what has just been killed is reaped in the next round


def _descendants(root: int) -> List[int]:
    """Return the living processes below ``root``, from /proc."""
    children: Dict[int, List[int]] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if entry.name.isdigit() and fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:  # which grows meanwhile
        found += children.get(pid, [])
    return found[1:]


def oom_kills() -> int:
    """Return how often the kernel killed in this process's memory group, 0 where it cannot be told."""
    path = _counter()
    return 0 if path is None else _count(path) or 0


@lru_cache(maxsize=1)
def _counter() -> Optional[Path]:
    """Return the first place that tells the count: a container's own view, then the group's path."""
    groups = [""]
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or "memory" in controllers.split(","):
                groups.append(path.lstrip("/"))
    places = [CGROUPS / group / "memory.events" for group in groups]
    places += [CGROUPS / "memory" / group / "memory.oom_control" for group in groups]
    return next((path for path in places if _count(path) is not None), None)


def _count(path: Path) -> Optional[int]:
    with contextlib.suppress(OSError):
        match = re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)
        return int(match.group(1)) if match else None
    return None
