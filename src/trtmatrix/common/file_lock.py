"""A lock between threads, processes and hosts: a file that one of them holds, until it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

SECONDS = 0.2
TOLD_SECONDS = 10.0
_TURNS: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""POSIX locks are a process's: its own threads take turns."""


@contextlib.contextmanager
def hold(file: Path, note: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock; ``note`` is told who has it where that takes long.

    POSIX locks pass between hosts on NFS 4, Lustre mounted with flock, GPFS and BeeGFS; ``OSError`` where a
    file system has none.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with _TURNS[str(file)], file.open("a+") as stream:
        told = time.monotonic() + TOLD_SECONDS
        while True:
            try:
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError):
                if time.monotonic() > told:
                    stream.seek(0)
                    note(f"waiting for {file}, held by {stream.read().strip() or 'somebody'}")
                    told = float("inf")
                time.sleep(SECONDS)
        stream.truncate(0)
        stream.write(f"{os.uname().nodename}, process {os.getpid()}")
        stream.flush()
        yield


@contextlib.contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Hold a folder itself against other processes of this host, which leaves no file behind."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
