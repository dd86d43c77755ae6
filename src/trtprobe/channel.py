"""Messages between the supervisor and a worker over a socket, with a file handed over beside them."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
from typing import Any, Dict, List, Optional, Tuple

HEADER = 4
"""Bytes in front of a message that tell its length."""


class Channel:
    """One end of a connection that carries JSON objects; ``open`` until the other end is gone."""

    def __init__(self, connection: socket.socket) -> None:
        """Take the socket over."""
        self.connection, self.open = connection, True
        self._data, self._files = b"", []  # type: bytes, List[int]
        self._identity = identity(connection.fileno())

    def fileno(self) -> int:
        """Return the number of the socket's file, for select."""
        return self.connection.fileno()

    def send(self, message: Dict[str, Any], file: Optional[int] = None) -> bool:
        """Send a message, and an open file if one is given; whether the other end was still there."""
        if not self.is_there():
            self.open = False
            return False
        text = json.dumps(message).encode()
        data = len(text).to_bytes(HEADER, "big") + text
        handed = [] if file is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))]
        try:
            sent = self.connection.sendmsg([data], handed, socket.MSG_NOSIGNAL)
            self.connection.sendall(data[sent:], socket.MSG_NOSIGNAL)
        except OSError:
            self.open = False
        return self.open

    def take(self) -> List[Dict[str, Any]]:
        """Read what is there, without waiting, and return the messages that are complete."""
        with contextlib.suppress(BlockingIOError):
            while self._read(socket.MSG_DONTWAIT):
                pass
        messages = []
        message = self._message()
        while message is not None:
            messages.append(message)
            message = self._message()
        return messages

    def receive(self) -> Optional[Tuple[Dict[str, Any], Optional[int]]]:
        """Wait for a message; returns it with the file beside it, None where the other end is gone."""
        while True:
            message = self._message()
            if message is not None:
                return message, self._files.pop(0) if self._files else None
            if not self._read(0):
                return None

    def is_there(self) -> bool:
        """Whether the socket's number still names the socket: a cell may close what is not its own."""
        return identity(self.connection.fileno()) == self._identity

    def close(self) -> None:
        """Hang up."""
        self.open = False
        self.connection.close()

    def _read(self, flags: int) -> bool:
        """Read once; whether there may be more."""
        room = socket.CMSG_SPACE(array.array("i").itemsize)
        try:
            data, beside, _, _ = self.connection.recvmsg(1 << 16, room, flags)
        except BlockingIOError:
            raise
        except OSError:
            data, beside = b"", []
        for level, kind, content in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files = array.array("i")
                files.frombytes(content[: len(content) - len(content) % files.itemsize])
                self._files += files
        self._data += data
        self.open = self.open and bool(data)
        return bool(data)

    def _message(self) -> Optional[Dict[str, Any]]:
        """Return the first complete message of what was read, or None."""
        end = HEADER + int.from_bytes(self._data[:HEADER], "big")
        if len(self._data) < max(end, HEADER):
            return None
        text, self._data = self._data[HEADER:end], self._data[end:]
        message: Dict[str, Any] = json.loads(text.decode())
        return message


def identity(number: int) -> Optional[Tuple[int, int]]:
    """Return what tells an open file from others, whatever its number; None where none is open."""
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino
