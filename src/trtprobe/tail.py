"""The end of what a process prints: all of it is read, the last 64 KiB are kept."""

from __future__ import annotations

import os
from collections import deque
from typing import Deque

TAIL_BYTES = 64 * 1024
CHUNK = 1 << 16
PIPE_CHUNKS = 32
"""A pipe holds fewer chunks than this (Linux: at most 1 MiB), so that reading what is left has an end."""


class Tail:
    """A pipe: ``writing`` is for the process that prints, the rest for the one that reads."""

    def __init__(self) -> None:
        """Open the pipe; reading it never waits."""
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self.open, self.total = True, 0
        self._kept = 0
        self._chunks: Deque[bytes] = deque()

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
        self._kept += len(chunk)
        self._chunks.append(chunk)
        while self._kept - len(self._chunks[0]) >= TAIL_BYTES:
            self._kept -= len(self._chunks.popleft())
        return self.open

    def close(self) -> str:
        """Read what is left, without waiting for whoever still holds the pipe; returns the tail."""
        self.hand_over()
        for _ in range(PIPE_CHUNKS):
            if not self.open or not self.take():
                break
        os.close(self._reading)
        self.open = False
        tail = b"".join(self._chunks)[-TAIL_BYTES:]
        text, dropped = tail.decode("utf-8", "replace"), self.total - len(tail)
        return "[%d bytes before this are dropped]\n%s" % (dropped, text) if dropped > 0 else text
