"""What was computed from files, kept by their content below the user's cache."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

KEPT = 30
"""Files that are kept; the oldest go. One state of a project has three."""

CONTENTS = "image contents 1"
"""In place of a program, for what images have inside: it changes with what is read of them."""

CHECK_BYTES = 32


class Remembered:
    """Values by content in ``<cache>/parsed``.

    They are pickled: that is what loads fastest, and it runs nothing that its writer could not run anyway.
    Whoever can write the cache folder can write the environments in it, whose Python is run. A file that
    belongs to somebody else, that others may write, or that is damaged is not read.
    """

    def __init__(self, cache: Path, program: str) -> None:
        """Name the folder, and ``program``: the digest of the code that computes (see effects.code)."""
        self.folder = cache / "parsed"
        self.program = program

    def recall(self, kind: str, content: str, compute: Callable[[], T]) -> T:
        """Return what ``compute`` gives for a content, computed only where it is not remembered.

        What ``compute`` raises is raised each time. A folder that cannot be written is no error.
        """
        name = sha256(f"{kind}\n{content}\n{self.program}".encode()).hexdigest()
        path = self.folder / f"{kind}-{name[:40]}.pickle"
        found: list[T] = _read(path)
        if found:
            return found[0]
        value = compute()
        with contextlib.suppress(OSError):
            self._write(path, value)
        return value

    def _write(self, path: Path, value: object) -> None:
        """Write a value whole or not at all; what cannot be pickled is not kept."""
        import tempfile

        try:
            payload = pickle.dumps([value])
        except Exception:  # noqa: BLE001 - a repro's own classes may raise what they like
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor, partial = tempfile.mkstemp(dir=self.folder, suffix=".partial")
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.write(sha256(payload).digest() + payload)
            Path(partial).replace(path)
        except BaseException:
            Path(partial).unlink()
            raise
        self._forget()

    def _forget(self) -> None:
        """Remove the oldest files, of programs and projects that are no more."""
        files = sorted(self.folder.iterdir(), key=lambda file: file.stat().st_mtime_ns, reverse=True)
        for file in files[KEPT:]:
            file.unlink(missing_ok=True)


def _read(path: Path) -> list[T]:
    """Return a list with the value of a file; an empty one where there is none that can be believed."""
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_uid != os.getuid() or status.st_mode & 0o022:
                return []
            content = stream.read()
    except OSError:
        return []
    check, payload = content[:CHECK_BYTES], content[CHECK_BYTES:]
    if sha256(payload).digest() != check:
        return []
    try:
        found: list[T] = pickle.loads(payload)  # noqa: S301 - our own file, as the class says
    except Exception:  # noqa: BLE001 - whatever is wrong with it, the value is computed anew
        return []
    return found
