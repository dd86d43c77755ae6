"""Runs commands that may take long and asks many hosts at once; what is started ends with this process."""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeVar

PATIENCE_SECONDS = 5.0
"""How long a command may take to clean up when this process ends before it."""


def run_to_end(
    command: Sequence[str], environment: Mapping[str, str], seconds: float | None = None,
    folder: Path | None = None,
) -> tuple[int, str]:  # fmt: skip
    """Run a command in a session of its own, in ``folder``; returns its exit code and all that it said.

    One that cannot be started has code 127, one that takes longer than ``seconds`` code 124, as in a shell.
    """
    with tempfile.TemporaryFile() as said:
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment,
                start_new_session=True, cwd=folder,
            )  # fmt: skip
        except OSError as error:
            return 127, f"{command[0]}: {error.strerror}"
        end = partial(_end, child)
        atexit.register(end)  # also where this process ends without unwinding
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            code = 124
        finally:
            atexit.unregister(end)
            if child.poll() is None:  # also where an interrupt ends the wait
                end()
        said.seek(0)
        return code, said.read().decode("utf-8", "replace")


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a command and what it started; its first signal lets it clean up."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(child.pid, number)
            child.wait(timeout=PATIENCE_SECONDS)


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
