"""Fatal errors, each with the exit code that it ends the program with."""

from __future__ import annotations

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


def shorten(value: object) -> str:
    """Write a value that was found in at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
