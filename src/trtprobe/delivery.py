"""Brings what comes of a job to the host: over one connection, made before anything of a repro runs.

The host accepts one, and no other: it listens in the job's folder, which the inside cannot write. No cell has
this connection, and none can reach it: this process lets nobody look into it (see :func:`hide`).
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import IO, Any, Callable, Dict

import numpy as np

from trtprobe.answer import seal_file
from trtprobe.channel import Channel
from trtprobe.files import to_json
from trtprobe.job import Stopped

SOCKET = "socket"


def near(folder: int, name: str) -> str:
    """Return a path of a file in an open folder that a socket's address has room for, wherever it lies."""
    return "/proc/self/fd/%d/%s" % (folder, name)


class Delivery:
    """The connection to the host, for files that it names by itself."""

    def __init__(self, job: Path) -> None:
        """Connect; ``OSError`` where nobody listens."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        folder = os.open(str(job), os.O_RDONLY | os.O_DIRECTORY)
        try:
            connection.connect(near(folder, SOCKET))
        finally:
            os.close(folder)
        self.channel = Channel(connection)

    def deliver(self, name: str, write: Callable[[IO[bytes]], object]) -> None:
        """Hand over a file of this name that ``write`` fills; :class:`Stopped` where the host is gone."""
        file = seal_file(write)
        try:
            if not self.channel.send({"file": name}, file):
                raise Stopped("the host has hung up")
        finally:
            os.close(file)

    def deliver_json(self, name: str, data: Dict[str, Any]) -> None:
        """Hand over strict JSON."""
        content = to_json(data).encode()
        self.deliver(name, lambda stream: stream.write(content))

    def deliver_array(self, name: str, array: np.ndarray) -> None:
        """Hand over an array as ``.npy``."""
        self.deliver(name, lambda stream: np.save(stream, array, allow_pickle=False))
