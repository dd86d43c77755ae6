"""The lock of a shared folder: POSIX, so that it ends with its process on whatever host; one a process.

A process loses such a lock when it closes any descriptor of the file: so there is one descriptor of it in
this process, which stays open, and threads take turns by a lock of their own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trtmatrix.core.errors import MachineryError

PATIENCE_SECONDS = 5.0
"""After so long it is told that somebody else holds the lock, and after each minute again."""

BUSY = frozenset({errno.EACCES, errno.EAGAIN})

_open: dict[str, _Handle] = {}
_opening = threading.Lock()


class _Handle:
    """The one descriptor that this process has of a lock's file."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.threads = threading.Lock()
        self.owner = 0


def _handle(path: Path) -> _Handle:
    real = os.path.realpath(path)
    with _opening:
        known = _open.get(real)
        if known is not None and _is_same(known.descriptor, real):
            return known
        _open[real] = _Handle(real)
        return _open[real]


def close(path: Path) -> None:
    """Close what this process has of a lock; to be called where nobody uses it any more."""
    with _opening:
        handle = _open.pop(os.path.realpath(path), None)
    if handle is not None:
        os.close(handle.descriptor)


def _is_same(descriptor: int, path: str) -> bool:
    """Whether a file is still the one that was opened: a folder may have been removed and made again."""
    try:
        here, there = os.fstat(descriptor), os.stat(path)  # noqa: PTH116 - a path that may be gone
    except OSError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


class LockBusy(MachineryError):
    """Somebody else holds the lock, and it is not to be waited for any longer."""


def never() -> bool:
    """Wait as long as it takes."""
    return False


def within(seconds: float) -> Callable[[], bool]:
    """Return what gives up after so long, from now on."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until


@contextmanager
def hold(path: Path, tell: Callable[[str], None], give_up: Callable[[], bool] = never) -> Iterator[None]:
    """Hold a lock, waiting for it until ``give_up`` says so; ``tell`` hears who has it.

    :class:`LockBusy` then, :class:`MachineryError` where the file system has no locks; ``RuntimeError``
    where this thread has it.
    """
    try:
        handle = _handle(path)
    except OSError as error:
        raise _no_lock(path, error) from error
    if handle.owner == threading.get_ident():
        raise RuntimeError(f"{path} is locked by this very thread")
    while not handle.threads.acquire(timeout=0.1):
        if give_up():
            raise LockBusy(f"{path}: another thread of this process holds it")
    try:
        try:  # from here on: an interruption between having the lock and knowing it must not keep it
            _wait(handle.descriptor, path, tell, give_up)
            handle.owner = threading.get_ident()
            _sign(handle.descriptor)
            yield
        finally:
            handle.owner = 0
            with contextlib.suppress(OSError):  # a file system without locks, which was told
                fcntl.lockf(handle.descriptor, fcntl.LOCK_UN)
    finally:
        handle.threads.release()


def _wait(descriptor: int, path: Path, tell: Callable[[str], None], give_up: Callable[[], bool]) -> None:
    pause, since = 0.01, time.monotonic()
    told = since + PATIENCE_SECONDS
    while not try_lock(descriptor, path):
        if time.monotonic() > told:
            told = time.monotonic() + 60.0
            tell(f"waiting for {path}: {_signed(descriptor)} holds it")
        if give_up():
            raise LockBusy(f"{path}: {_signed(descriptor)} holds it; is that process stopped? ps, kill -CONT")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)


def try_lock(descriptor: int, path: Path) -> bool:
    """Lock a file if nobody else has; :class:`MachineryError` where that cannot be."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in BUSY:
            return False
        raise _no_lock(path, error) from error
    return True


def _no_lock(path: Path, error: OSError) -> MachineryError:
    return MachineryError(
        f"{path}: it cannot be locked: {error.strerror}; two runs at once would disturb each other. Is the "
        "file system mounted with locks (NFS: without nolock, with its lock service; Lustre: with flock)? "
        "Ask who runs it, or name a folder on another one (shared: in the site's file)"
    )


def _sign(descriptor: int) -> None:
    """Say who holds the lock, for those who wait; on a full disk nobody learns it."""
    text = f"{platform.node()}, process {os.getpid()}, since {time.strftime('%H:%M:%S UTC', time.gmtime())}\n"
    data = text.encode()
    with contextlib.suppress(OSError):
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))


def _signed(descriptor: int) -> str:
    said = b""
    with contextlib.suppress(OSError):
        said = os.pread(descriptor, 300, 0)
    return said.decode("utf-8", "replace").strip() or "another process"
