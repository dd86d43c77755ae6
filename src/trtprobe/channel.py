"""Messages over a socket, each with a file in memory beside it that nobody can change any more.

So a worker hands over to its supervisor what comes of a cell, and the supervisor to the host. The host
accepts one connection, made before anything of a repro runs, and no other: it listens in the job's folder,
which the inside cannot write. No cell has that connection, and none can reach it: the supervisor lets nobody
look into it (see :func:`trtprobe.processes.hide`).
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import socket
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterator, Optional, Tuple

import numpy as np

LARGEST = 1 << 18  # bytes of a message; the kernel's own limit is below
SOCKET = "socket"  # the host's end, in the job's folder
F_ADD_SEALS, F_GET_SEALS = 1033, 1034
SEALED = 0xF
"""No other seals, no shrinking, no growing, no writing: https://man7.org/linux/man-pages/man2/fcntl.2.html."""

Message = Dict[str, Any]
Write = Callable[[IO[bytes]], object]


def seal(write: Write) -> int:
    """Return an open file in memory that ``write`` has filled; from now on nobody can change it."""
    file = os.memfd_create("trtprobe", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(file, "wb", closefd=False) as stream:
            write(stream)
        fcntl.fcntl(file, F_ADD_SEALS, SEALED)
    except BaseException:
        os.close(file)
        raise
    return file


def npy(values: np.ndarray) -> Write:
    """Return what writes an array as ``.npy``; ``ValueError`` is raised where it holds Python's objects."""
    return lambda stream: np.save(stream, np.asarray(values, order="C"), allow_pickle=False)


def sealed_size(file: int) -> int:
    """Return the bytes of a file in memory; ``ValueError`` where it is another file or can be changed."""
    with contextlib.suppress(OSError):
        if fcntl.fcntl(file, F_GET_SEALS) & SEALED == SEALED:
            return os.fstat(file).st_size
    raise ValueError("what was handed over is no sealed memory")


class Channel:
    """One end of a connection that carries JSON objects; ``open`` until the other end is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.open = connection, True
        self._identity = identity(connection.fileno())

    def fileno(self) -> int:
        """Return the number of the socket's file, for select."""
        return self.connection.fileno()

    def is_there(self) -> bool:
        """Whether the socket's number still names the socket: a cell may close what is not its own."""
        return identity(self.connection.fileno()) == self._identity

    def send(self, message: Message, file: Optional[int] = None) -> bool:
        """Send a message, and an open file if one is given; whether the other end was still there."""
        handed = [] if file is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))]
        try:
            self.open = self.is_there()
            if self.open:
                self.connection.sendmsg([json.dumps(message).encode()], handed, socket.MSG_NOSIGNAL)
        except OSError:
            self.open = False
        return self.open

    def hand(self, message: Message, write: Write) -> bool:
        """Send a message with a sealed file that ``write`` has filled, as :meth:`send` does."""
        file = seal(write)
        try:
            return self.send(message, file)
        finally:
            os.close(file)

    def take(self) -> Iterator[Tuple[Message, Optional[int]]]:
        """Yield what is there, each message with the file beside it, without waiting."""
        with contextlib.suppress(BlockingIOError):
            while self.open:
                message, file = self._read(socket.MSG_DONTWAIT)
                if message is not None:
                    yield message, file

    def receive(self) -> Optional[Tuple[Message, Optional[int]]]:
        """Wait for a message; returns it with the file beside it, None where the other end is gone."""
        while self.open:
            message, file = self._read(0)
            if message is not None:
                return message, file
        return None

    def _read(self, flags: int) -> Tuple[Optional[Message], Optional[int]]:
        """Read one message, None where it is none; more files than one beside it are closed."""
        files = array.array("i")
        try:
            data, beside, _, _ = self.connection.recvmsg(
                LARGEST, socket.CMSG_SPACE(files.itemsize), flags | socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            raise
        except OSError:
            data, beside = b"", []
        for _, _, content in beside:
            files.frombytes(content[: len(content) - len(content) % files.itemsize])
        try:
            message = json.loads(data.decode())
        except (ValueError, RecursionError):  # nothing but this package writes here: a cell did
            message = None
        self.open = self.open and bool(data)
        message = message if isinstance(message, dict) else None
        kept = files[0] if files and message is not None else None
        for file in files:
            if file != kept:
                os.close(file)
        return message, kept

    def close(self) -> None:
        """Hang up."""
        self.open = False
        self.connection.close()


def open_channels() -> Tuple[Channel, Channel]:
    """Return both ends of a new connection: what goes in at one comes out at the other, by message."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(ours), Channel(theirs)


def identity(number: int) -> Optional[Tuple[int, int]]:
    """Return what tells an open file from others, whatever its number; None where none is open."""
    with contextlib.suppress(OSError):
        found = os.fstat(number)
        return found.st_dev, found.st_ino
    return None


def near(folder: int, name: str) -> str:
    """Return a path of a file in an open folder that a socket's address has room for, wherever it lies."""
    return "/proc/self/fd/%d/%s" % (folder, name)


def connect(job: Path) -> Channel:
    """Connect to the host, which listens in the job's folder; ``OSError`` where nobody does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = os.open(str(job), os.O_RDONLY | os.O_DIRECTORY)
    try:
        connection.connect(near(folder, SOCKET))
    finally:
        os.close(folder)
    return Channel(connection)
