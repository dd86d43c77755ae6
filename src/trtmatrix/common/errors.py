"""How a command ends: fatal errors, each with its exit code, and signals.

SIGTERM and a hang-up interrupt a command as Ctrl-C does, and are never lost.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from types import FrameType


class ExitCode(IntEnum):
    """Exit codes of ``python -m trtmatrix``; where several apply, the first of these is returned."""

    INTERRUPTED = 130
    USAGE = 2
    MACHINERY = 3
    DONT = 11
    NOT_ENOUGH = 12
    WORKAROUNDS = 10
    SURPRISE = 1
    NOTHING = 4
    AS_EXPECTED = 0


def combine_exit_codes(codes: set[ExitCode]) -> ExitCode:
    """Return the one exit code that stands for several."""
    return next((code for code in ExitCode if code in codes), ExitCode.AS_EXPECTED)


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
    another = f"name another folder by {' or '.join(options)}" if options else "take another folder"
    words = ("No space left", " requested and ")  # shutil's, and NumPy's of an array that went in half
    if error.errno in {errno.ENOSPC, errno.EDQUOT} or any(word in str(error) for word in words):
        return f"the disk is full: {error}\n  free 5 GB there, or {another}"
    remedy = f"\n  {another}" if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM} else ""
    return f"a file could not be written or read: {error}{remedy}"


def shorten(value: object) -> str:
    """Write a value that was found in at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


AGAIN_SECONDS = 0.05
"""So soon an interruption is sent again that was swallowed: what swallowed it has come back by then."""
SAME_SECONDS = 2.0  # so soon after a first signal a second one is no person's
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def hear_signals() -> None:
    """Have signals raise :class:`KeyboardInterrupt` in the main thread, and again where that was swallowed.

    Ctrl-C or a hang-up that is ignored (nohup) stays so. One that comes right after another is not heard: it
    would cut short what the first has begun to end. What is raised in a finalizer or in a callback of a fork,
    such as logging's, goes nowhere but to ``sys.unraisablehook``
    (https://docs.python.org/3/library/signal.html, "Note on Signal Handlers and Exceptions").
    """
    before, heard = sys.unraisablehook, -math.inf

    def interrupt(number: int, _: FrameType | None) -> None:
        nonlocal heard
        if time.monotonic() - heard > SAME_SECONDS:
            heard = time.monotonic()
            raise HungUp if number == signal.SIGHUP else KeyboardInterrupt

    def again(unraisable: sys.UnraisableHookArgs) -> None:
        nonlocal heard
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        heard = -math.inf
        number = signal.SIGHUP if issubclass(unraisable.exc_type, HungUp) else signal.SIGTERM
        timer = threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), number))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = again
    for number in SIGNALS:
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let no signal cut short what cleans up after another one; what answers signals is put back."""
    with _answering(signal.SIG_IGN):
        yield


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Have signals heard when the block has ended: what it starts has somebody by then who ends it."""
    heard: list[int] = []
    try:
        with _answering(lambda number, _: heard.append(number)):
            yield
    finally:
        for number in heard:
            signal.raise_signal(number)


@contextlib.contextmanager
def _answering(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    """Have another answer to the signals that are not ignored; only the main thread may set any."""
    main = threading.current_thread() is threading.main_thread()
    heard = [number for number in SIGNALS if main and signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


@contextlib.contextmanager
def ending(hurry: threading.Event) -> Iterator[Callable[[], None]]:
    """Give what is called when an interrupt is caught inside: no second signal cuts the clean-up short.

    A second Ctrl-C only sets ``hurry``. One that comes at once is the same keystroke, passed on; a hang-up
    says no more than that nobody looks on, and often comes twice. Once the interrupt leaves the block no
    signal is heard any more: it would hit the interpreter's own end.
    """

    def interrupted() -> None:
        first = time.monotonic()

        def again(number: int, _: FrameType | None) -> None:
            if number != signal.SIGHUP and time.monotonic() - first > SAME_SECONDS:
                hurry.set()

        for number in SIGNALS:
            signal.signal(number, again)

    try:
        yield interrupted
    except KeyboardInterrupt:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise
