"""Messages between the supervisor and a worker over a socket, with a file handed over beside them."""

from __future__ import annotations

import array
import json
import os
import socket
from typing import Any, Dict, Iterator, Optional, Tuple

LARGEST = 1 << 18
"""Bytes of a message; the kernel's own limit is below."""

Message = Dict[str, Any]


def open_channels() -> Tuple[Channel, Channel]:
    """Return both ends of a new connection: what goes in at one comes out at the other, by message."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(ours), Channel(theirs)


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

    def take(self) -> Iterator[Tuple[Message, Optional[int]]]:
        """Yield what is there, each message with the file beside it, without waiting."""
        while self.open:
            try:
                message, file = self._read(socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            if message is not None:
                yield message, file

    def receive(self) -> Optional[Tuple[Message, Optional[int]]]:
        """Wait for a message; returns it with the file beside it, None where the other end is gone."""
        message, file = None, None
        while self.open and message is None:
            message, file = self._read(0)
        return None if message is None else (message, file)

    def _read(self, flags: int) -> Tuple[Optional[Message], Optional[int]]:
        """Read one message, None where it is none; more files than one beside it are closed."""
        files, room = array.array("i"), socket.CMSG_SPACE(array.array("i").itemsize)
        try:
            data, beside, _, _ = self.connection.recvmsg(LARGEST, room, flags | socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            raise
        except OSError:
            data, beside = b"", []
        try:
            message = json.loads(data.decode())
        except (ValueError, RecursionError):  # nothing but this package writes here: a cell did
            message = None
        for level, kind, content in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files.frombytes(content[: len(content) - len(content) % files.itemsize])
        self.open = self.open and bool(data)
        found = message if isinstance(message, dict) else None
        for file in files[1:] if found is not None else files:
            os.close(file)
        return found, files[0] if files and found is not None else None

    def close(self) -> None:
        """Hang up."""
        self.open = False
        self.connection.close()


def identity(number: int) -> Optional[Tuple[int, int]]:
    """Return what tells an open file from others, whatever its number; None where none is open."""
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino
