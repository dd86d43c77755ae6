"""The host's end of a probe's one connection: what the probe hands over is written below the job's ``out``.

Whoever connects first is the probe, since nothing of a repro has run by then; nobody can after it. What comes
is sealed memory: it can neither change nor block who reads it, and each file's name and size is checked here
by the limits of the border (:mod:`trtmatrix.common.border`), by which the files are read, too. So the folder
that the records are read from is written by this process alone, and no container has it.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from trtmatrix.common.border import RECORD, BorderError, check_name
from trtmatrix.common.errors import MachineryError
from trtprobe.channel import SOCKET, Channel, near, sealed_size

NAMES = re.compile(r"(?:\d{1,9}\.(?:started|record)|surface)\.json|\d{1,9}/(?!\.)[^/\x00-\x1f\x7f]+\.npy")
MOST = 4096
"""Files that are taken of one cell."""


class Intake:
    """Listens in a job's folder until the probe has connected, then takes what it hands over."""

    def __init__(self, folder: Path, most: int) -> None:
        """Listen; ``most``: bytes that the outputs of one cell may have."""
        self.out, self.most = folder / "out", most
        self._job = os.open(folder / "job", os.O_RDONLY | os.O_DIRECTORY)
        self._listening: socket.socket | None = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel: Channel | None = None
        self._taken = (0, 0)  # files and bytes since the last record
        try:
            self._listening.bind(near(self._job, SOCKET))
            (folder / "job" / SOCKET).chmod(0o666)  # the job's folder itself lets nobody else in
            self._listening.listen(1)
            self._listening.setblocking(False)
        except OSError as error:
            self.close()
            raise MachineryError(
                f"{folder} cannot hold a socket: {error}; name a folder on this host's own disk by "
                "TRTMATRIX_SCRATCH"
            ) from error

    def take(self) -> None:
        """Write what has come since, without waiting; :class:`MachineryError` where this host cannot."""
        if self._channel is None and self._listening is not None:
            try:
                connection, _ = self._listening.accept()
            except BlockingIOError:
                return
            self._hang_up()
            self._channel = Channel(connection)
        for words, file in () if self._channel is None else self._channel.take():
            if file is None:
                continue
            try:
                self._write(str(words.get("file")), file)
            except ValueError:  # of no use: whoever reads the record finds that it is not there
                continue
            except OSError as error:
                raise MachineryError(f"what came out cannot be written to {self.out}: {error}") from error
            finally:
                os.close(file)

    def _write(self, name: str, file: int) -> None:
        """Write one file below ``out``, whole; ``ValueError`` where it has no right name, or is too large."""
        size, (files, total) = sealed_size(file), self._taken
        array = name.endswith(".npy")
        self._taken = (files + 1, total + size) if array else (0, 0)
        if not NAMES.fullmatch(name) or files >= MOST or self._taken[1] > self.most + RECORD:
            raise BorderError("has no right name, or is one too many")
        if not array and size > RECORD:
            raise BorderError(f"has {size:,} bytes, more than a record may have")
        path = self.out / name
        check_name(path.stem)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        target = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            at = 0
            while at < size:
                at += os.sendfile(target, file, at, size - at)
        finally:
            os.close(target)
        partial.replace(path)

    def _hang_up(self) -> None:
        if self._listening is not None:
            self._listening.close()
            os.close(self._job)
        self._listening = None

    def close(self) -> None:
        """Take no more."""
        self._hang_up()
        if self._channel is not None:
            self._channel.close()
