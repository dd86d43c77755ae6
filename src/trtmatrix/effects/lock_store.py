"""Writes matrix.lock whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from trtmatrix.core.errors import ConfigError, MachineryError
from trtmatrix.core.lock import Lock
from trtmatrix.core.lockfile import format_matrix_lock, parse_matrix_lock


def update_lock(path: Path, read: Callable[[Path], Lock], change: Callable[[Lock], Lock]) -> bool:
    """Change what a lock has at this moment; no other update gets in between. Returns whether it changed.

    ``read``: reads the file. Raises what it raises, and what :func:`write_lock` does.
    """
    with _one_at_a_time(path):
        return write_lock(path, change(read(path)))


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Hold the lock's folder, which leaves no file behind."""
    descriptor = None
    with contextlib.suppress(OSError):  # what cannot be written is told by the writing
        descriptor = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def write_lock(path: Path, lock: Lock) -> bool:
    """Write a lock where its text is another than the file's; returns whether it was.

    :class:`MachineryError` where it cannot be written, or could not be read again (a registry may say
    anything); the old file is then as it was.
    """
    text = _checked_text(path, lock).encode()
    target = path.resolve()  # a link stays one
    try:
        if target.read_bytes() == text if target.exists() else lock == Lock():
            return False
        _replace(target, text)
    except OSError as error:
        raise MachineryError(
            f"{path} cannot be written: {error.strerror}; it is as it was\n"
            "  check the folder's rights and its free disk, then run it again: nox -s lock -- --update"
        ) from error
    return True


def _checked_text(path: Path, lock: Lock) -> str:
    text = format_matrix_lock(lock)
    try:
        parse_matrix_lock(text, str(path))
    except ConfigError as error:
        told = "\n  ".join(error.problems[:-1])
        raise MachineryError(
            f"{path} is as it was: what was resolved cannot be kept in it\n  {told}\n"
            "  the registry says what no image should have; leave that version out by --trt"
        ) from error
    return text


def _replace(target: Path, text: bytes) -> None:
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    descriptor, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-", suffix=".partial")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
            os.fchmod(out.fileno(), mode)
        Path(partial).replace(target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
