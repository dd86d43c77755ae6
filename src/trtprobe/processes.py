"""Child processes that are really gone afterwards, with the tail of what they printed."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from pathlib import Path
from typing import Callable, Deque, Dict, List, Optional, Sequence

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TAIL_BYTES = 64 * 1024


class Child:
    """A forked process in a session of its own; its output is read to the end, its tail kept.

    It starts with what this process has imported, so the imports are paid for once a job; no
    product that opens a GPU may be among them.
    """

    def __init__(self, work: Callable[[], int], cwd: Path, unset: Sequence[str]) -> None:
        """Start ``work`` in ``cwd``, its environment less the variables ``unset``."""
        sys.stdout.flush()
        sys.stderr.flush()
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _be_child(work, cwd, unset, writing)
        os.close(writing)
        self.code: Optional[int] = None
        prefer_for_oom(self.pid)
        self.total = 0
        self._pipe = reading
        self._chunks: Deque[bytes] = deque()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def poll(self) -> Optional[int]:
        """Return the exit code (negative: the signal) once the child has ended, else None."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = _exit_code(status)
        return self.code

    def _read(self) -> None:
        """Read everything, so that a chatty child never blocks; keep the last part."""
        kept = 0
        while True:
            chunk = os.read(self._pipe, 1 << 16)
            if not chunk:
                os.close(self._pipe)
                return
            self.total += len(chunk)
            kept += len(chunk)
            self._chunks.append(chunk)
            while kept - len(self._chunks[0]) >= TAIL_BYTES:
                kept -= len(self._chunks.popleft())

    def kill(self) -> None:
        """Kill the whole session's group, then whatever escaped it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.code is None:
            self.code = _exit_code(os.waitpid(self.pid, 0)[1])
        kill_descendants()

    def log(self) -> str:
        """Return the tail of the output (at most 64 KiB), once the child has ended."""
        self._reader.join(timeout=2)
        tail = b"".join(self._chunks)[-TAIL_BYTES:]
        text, dropped = tail.decode("utf-8", "replace"), self.total - len(tail)
        return "[%d bytes before this are dropped]\n%s" % (dropped, text) if dropped > 0 else text


def _be_child(work: Callable[[], int], cwd: Path, unset: Sequence[str], output: int) -> None:
    """Turn a fresh fork into the cell's process; never returns."""
    code = 70
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.closerange(3, 256)
        faulthandler.enable()
        for name in unset:
            os.environ.pop(name, None)
        os.chdir(str(cwd))
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _exit_code(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def become_subreaper() -> None:
    """Adopt orphans of our children, so that they can be found and killed."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def prefer_for_oom(pid: int) -> None:
    """Make the kernel kill the cell, never its supervisor, when memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/%d/oom_score_adj" % pid).write_text("1000")


def kill_descendants() -> None:
    """Kill and reap every process below this one, until none is left (at most two seconds)."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        below = _descendants(os.getpid())
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        if not below:
            return
        time.sleep(0.01)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _descendants(root: int) -> List[int]:
    """Return the living processes below ``root``, from /proc."""
    children: Dict[int, List[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: List[int] = []
    queue = [root]
    while queue:
        for pid in children.get(queue.pop(), []):
            found.append(pid)
            queue.append(pid)
    return found
