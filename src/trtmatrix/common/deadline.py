"""Asks many at the same time, and waits for no answer longer than there is time for."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

TOGETHER = 8
"""Questions under way."""
PATIENCE = 2.0
"""Seconds after which it is told who is waited for."""


def ask_all(
    ask: Callable[[str], T], names: Sequence[str], *, seconds: float, note: Callable[[list[str]], None]
) -> dict[str, T]:
    """Return what each name is answered within so many ``seconds`` in all; the others are left out.

    ``note``: told, once, whose answers are still missing after :data:`PATIENCE`. What ``ask`` raises is
    raised. The threads hold up no interrupt, and no end of this process: a silent host cannot be called off.
    """
    waiting = deque(names)
    answered: queue.SimpleQueue[tuple[str, Future[T]]] = queue.SimpleQueue()

    def work() -> None:
        with contextlib.suppress(IndexError):  # nothing is left to ask
            while True:
                name = waiting.popleft()
                answer = Future[T]()
                try:
                    answer.set_result(ask(name))
                except BaseException as error:  # noqa: BLE001 - it is raised again where it is waited for
                    answer.set_exception(error)
                answered.put((name, answer))

    for _ in range(min(TOGETHER, len(names))):
        threading.Thread(target=work, daemon=True).start()
    started, found = time.monotonic(), dict[str, T]()
    for end in (min(PATIENCE, seconds), seconds):
        with contextlib.suppress(queue.Empty):
            while len(found) < len(names):
                name, answer = answered.get(timeout=max(0.0, started + end - time.monotonic()))
                found[name] = answer.result()
        missing = [name for name in names if name not in found]
        if missing and end < seconds:
            note(missing)
    waiting.clear()
    return {name: found[name] for name in names if name in found}
