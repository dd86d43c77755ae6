"""Fatal errors, each with the exit code that it ends the program with."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

FULL_BYTES = 16_000_000
"""A disk with less than this is what was full, where something was."""


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
    ExitCode.INTERRUPTED,
    ExitCode.USAGE,
    ExitCode.MACHINERY,
    ExitCode.DONT,
    ExitCode.NOT_ENOUGH,
    ExitCode.WORKAROUNDS,
    ExitCode.SURPRISE,
    ExitCode.NOTHING,
    ExitCode.AS_EXPECTED,
)


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
        """Keep the problems, one line each."""
        super().__init__("\n".join(problems))
        self.problems = problems


class MachineryError(TrtMatrixError):
    """Docker, an interpreter, the disk or the network failed."""


class HungUp(KeyboardInterrupt):
    """The terminal or the connection that the command was typed over is gone (SIGHUP)."""


def explain_trouble(error: OSError | MemoryError, folders: Mapping[str, Path]) -> str:
    """Say what the system refused, and what to do about it; ``folders``: by the options that name them."""
    if isinstance(error, MemoryError):
        return "its memory is full\n  end what else needs it, or choose fewer cells: --repro, --case"
    said = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror or str(error)
    words = ("No space left", " requested and ")  # shutil's, and NumPy's of an array that went in half
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT} or any(word in said for word in words)
    full = {option: folder for option, folder in folders.items() if is_full and _free(folder) < FULL_BYTES}
    if full:
        places = " and ".join(f"{folder} has {_free(folder) / 1e6:.0f} MB free" for folder in full.values())
        return (
            f"the disk is full: {places}\n  free 5 GB there, or name another folder by {' and '.join(full)}"
        )
    remedy = ""
    if error.errno == errno.EMFILE:
        remedy = "\n  raise the limit of open files: ulimit -n 4096"
    elif folders and (is_full or error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}):
        remedy = f"\n  {'free some room there, or ' * is_full}name another place by {', '.join(folders)}"
    where = f"{error.filename}: " if error.filename else ""
    return f"a file could not be written or read: {where}{said}{remedy}"


def _free(folder: Path) -> int:
    """Return the bytes that are free where a folder is, or would be made."""
    there = folder.absolute()
    return shutil.disk_usage(next(each for each in (there, *there.parents) if each.exists())).free


def shorten(value: object) -> str:
    """Write a value that was found in at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
