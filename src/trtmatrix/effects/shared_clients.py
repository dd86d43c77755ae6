"""The clients that live: each holds a lock on a file of its own, which ends with its process."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from trtmatrix.effects.shared_files import PARTIAL, failure, make_folder, names_in
from trtmatrix.effects.shared_lock import try_lock

if TYPE_CHECKING:
    from trtmatrix.effects.shared_folder import SharedFolder

_ours: dict[str, frozenset[str]] = {}
"""This process's own clients, by file: their files are never opened again, which would end their locks."""

_GONE = frozenset({errno.ENOENT, errno.ESTALE})


class Client:
    """This process as a client of a shared folder, from ``with`` to its end.

    But for entering and leaving it is to be used under the folder's lock.
    """

    def __init__(self, folder: SharedFolder) -> None:
        """Name the shared folder; the client is there from ``__enter__`` on."""
        self.root = folder.root
        self.folder = self.root / "clients"
        host = re.sub(r"[^A-Za-z0-9-]", "-", platform.node())[:40]
        self.id = f"{host}-{os.getpid()}-{os.urandom(4).hex()}"
        self.follows: frozenset[str] = frozenset()
        self._descriptor = -1

    @property
    def _file(self) -> Path:
        return self.folder / self.id

    def __enter__(self) -> Client:
        """Register: the file has its name only once it is locked. :class:`MachineryError` where it is not."""
        make_folder(self.folder)
        partial = self.folder / f"{PARTIAL}{self.id}"
        try:
            self._descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try_lock(self._descriptor, partial)
            self._write()
            partial.rename(self._file)
        except BaseException as error:
            self._end(partial)
            if isinstance(error, OSError):
                raise failure(self._file, error) from error
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Follow nothing any more."""
        self._end(self._file)

    def _end(self, file: Path) -> None:
        with contextlib.suppress(OSError):  # without its lock it is a dead one's, which others remove
            file.unlink(missing_ok=True)
        _ours.pop(str(self._file), None)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def follow(self, keys: Iterable[str]) -> None:
        """Follow these arrays beside those that are followed already."""
        self.follows |= frozenset(keys)
        self._write()

    def leave(self, keys: Iterable[str]) -> None:
        """Follow these arrays no longer."""
        self.follows -= frozenset(keys)
        self._write()

    def followed_by_others(self) -> frozenset[str]:
        """Return the arrays that other living clients follow."""
        followed = living_clients(self.root)
        return frozenset(key for name, keys in followed.items() if name != self.id for key in keys)

    def _write(self) -> None:
        data = json.dumps({"follows": sorted(self.follows)}).encode()
        try:
            os.pwrite(self._descriptor, data, 0)
            os.ftruncate(self._descriptor, len(data))
            os.fsync(self._descriptor)
        except OSError as error:
            raise failure(self._file, error) from error
        _ours[str(self._file)] = self.follows


def living_clients(root: Path) -> dict[str, frozenset[str]]:
    """Return by id the arrays that each living client follows; the files of dead ones are removed.

    :class:`MachineryError` where a file cannot be looked at: its client may live.
    """
    folder = root / "clients"
    found = {}
    for name in names_in(folder):
        follows = _look(folder / name)
        if follows is not None:
            found[name] = follows
    return found


def _look(file: Path) -> frozenset[str] | None:
    """Return what a client follows; None where it is dead."""
    if str(file) in _ours:
        return _ours[str(file)]
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        try:
            if try_lock(descriptor, file):
                file.unlink(missing_ok=True)
                return None
            data = json.loads(os.pread(descriptor, 1 << 20, 0) or b"{}")
            return frozenset(str(key) for key in data.get("follows", []))
        except ValueError:  # it is writing just now, without the folder's lock
            return frozenset()
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _GONE:  # just now
            return None
        raise failure(file, error) from error
