"""The clients that live: each holds a lock on a file of its own, which ends with its process."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from trtmatrix.effects.shared_files import make_folder, names_in
from trtmatrix.effects.shared_lock import try_lock

if TYPE_CHECKING:
    from trtmatrix.effects.shared_folder import SharedFolder

_ours: dict[str, frozenset[str]] = {}
"""This process's own clients, by file: their files are never opened again, which would end their locks."""


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
        """Register: the file has its name only once it is locked."""
        make_folder(self.folder)
        hidden = self.folder / f".{self.id}"
        self._descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try_lock(self._descriptor, hidden)
        self._write()
        hidden.rename(self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Follow nothing any more."""
        self._file.unlink(missing_ok=True)
        _ours.pop(str(self._file), None)
        os.close(self._descriptor)

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

    def living(self) -> frozenset[str]:
        """Return the ids of all living clients, this one among them."""
        return frozenset(living_clients(self.root))

    def _write(self) -> None:
        data = json.dumps({"follows": sorted(self.follows)}).encode()
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, len(data))
        os.fsync(self._descriptor)
        _ours[str(self._file)] = self.follows


def living_clients(root: Path) -> dict[str, frozenset[str]]:
    """Return by id the arrays that each living client follows; the files of dead ones are removed."""
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
    except OSError:  # it has just gone
        return None
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
