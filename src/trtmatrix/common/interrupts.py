"""What SIGTERM and a hang-up do: they interrupt a command as Ctrl-C does, and are never lost."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from trtmatrix.common.errors import HungUp

AGAIN_SECONDS = 0.05
"""So soon an interruption is sent again that was swallowed: what swallowed it has come back by then."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Have signals raise :class:`KeyboardInterrupt` in the main thread, and again where that was swallowed.

    A hang-up that is ignored (nohup) stays so. Python raises at whatever line it is: in a callback of a fork,
    of a weak reference, or in a finalizer that goes nowhere but to ``sys.unraisablehook``
    (https://docs.python.org/3/library/signal.html, "Note on Signal Handlers and Exceptions").
    """
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)
    before = sys.unraisablehook

    def again(unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        number = signal.SIGHUP if issubclass(unraisable.exc_type, HungUp) else signal.SIGTERM
        timer = threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), number))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let no signal cut short what cleans up after another one; what answers signals is put back."""
    main = threading.current_thread() is threading.main_thread()  # no other may set any
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if main else ()
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del frame
    raise HungUp if number == signal.SIGHUP else KeyboardInterrupt
