"""Signal handling: SIGTERM and a hang-up interrupt a command as Ctrl-C does, and are never lost."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from trtmatrix.common.errors import HungUp

AGAIN_SECONDS = 0.05
"""So soon an interruption is sent again that was swallowed: what swallowed it has come back by then."""
SAME_SECONDS = 2.0
"""So soon after a first signal a second one is no person's."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (SIGNALS if main else ())}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def ending(hurry: threading.Event) -> Iterator[Callable[[], None]]:
    """Give what is called when an interrupt is caught inside: no second signal cuts the clean-up short.

    A second Ctrl-C only sets ``hurry``. One that comes at once is the same keystroke, passed on; a hang-up
    says no more than that nobody looks on, and often comes twice. Once the interrupt leaves the block no
    signal is heard any more: it would hit the interpreter's own end.
    """

    def interrupted() -> None:
        first = time.monotonic()

        def again(*_: object) -> None:
            if time.monotonic() - first > SAME_SECONDS:
                hurry.set()

        signal.signal(signal.SIGINT, again)
        signal.signal(signal.SIGTERM, again)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    try:
        yield interrupted
    except KeyboardInterrupt:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise


def _interrupt(number: int, frame: FrameType | None) -> None:
    del frame
    raise HungUp if number == signal.SIGHUP else KeyboardInterrupt
