"""Fatal errors, each with the exit code that it ends the program with."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of ``python -m trtmatrix``."""

    AS_EXPECTED = 0
    SURPRISE = 1
    USAGE = 2
    MACHINERY = 3
    NOTHING = 4
    WORKAROUNDS = 10
    DONT = 11
    NOT_ENOUGH = 12
    INTERRUPTED = 130


#: Where several apply, the first of these is the one that is returned.
PRECEDENCE = (
    ExitCode.INTERRUPTED, ExitCode.USAGE, ExitCode.MACHINERY, ExitCode.DONT, ExitCode.NOT_ENOUGH,
    ExitCode.WORKAROUNDS, ExitCode.SURPRISE, ExitCode.NOTHING, ExitCode.AS_EXPECTED,
)  # fmt: skip


def combine_exit_codes(codes: set[ExitCode]) -> ExitCode:
    """Return the one exit code that stands for several."""
    return next((code for code in PRECEDENCE if code in codes), ExitCode.AS_EXPECTED)


class TrtMatrixError(Exception):
    """An error that ends the program with a message and no traceback."""

    exit_code = ExitCode.MACHINERY


class UsageError(TrtMatrixError):
    """The command line or a file of the user's cannot be used as it is."""

    exit_code = ExitCode.USAGE


class ConfigError(UsageError):
    """A file has mistakes; the message lists all of them."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class MachineryError(TrtMatrixError):
    """Docker, an interpreter, the disk or the network failed."""


class HungUp(KeyboardInterrupt):
    """The terminal or the connection that the command was typed over is gone (SIGHUP)."""


def explain_trouble(error: OSError | MemoryError, options: Sequence[str]) -> str:
    """Say what the system refused, and what to do about it; ``options``: those that name folders."""
    if isinstance(error, MemoryError):
        return "its memory is full\n  end what else needs it, or choose fewer cells: --repro, --case"
    said = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror or str(error)
    where = f"{error.filename}: " if error.filename else ""
    another = f"name another folder by {' or '.join(options)}" if options else "take another folder"
    words = ("No space left", " requested and ")  # shutil's, and NumPy's of an array that went in half
    if error.errno in {errno.ENOSPC, errno.EDQUOT} or any(word in said for word in words):
        return f"the disk is full: {where}{said}\n  free 5 GB there, or {another}"
    remedy = ""
    if error.errno == errno.EMFILE:
        remedy = "\n  raise the limit of open files: ulimit -n 4096"
    elif error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
        remedy = f"\n  {another}"
    return f"a file could not be written or read: {where}{said}{remedy}"


def shorten(value: object) -> str:
    """Write a value that was found in at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
