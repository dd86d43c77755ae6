"""Runs commands that may take long and asks many hosts at once; what is started ends with this process."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from functools import partial
from pathlib import Path
from typing import TypeVar

from trtmatrix.common.interrupts import undisturbed

PATIENCE_SECONDS = 5.0
"""How long a command may take to clean up when this process ends before it."""


def run_to_end(
    command: Sequence[str], environment: Mapping[str, str], seconds: float | None = None,
    folder: Path | None = None, *, shown: bool = False,
) -> tuple[int, str]:  # fmt: skip
    """Run a command in a session of its own, in ``folder``; returns its exit code and all that it said.

    One that cannot be started has code 127, one that takes longer than ``seconds`` code 124, as in a shell.
    ``shown``: what it says goes to standard error instead.
    """
    with tempfile.TemporaryFile() as said:
        out = 2 if shown else said
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment,
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
    """End a command and what it started; its first signal lets it clean up, which nothing cuts short."""
    with undisturbed():
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
    raised. The threads are daemons, for a silent host cannot be called off: they hold up no interrupt, and no
    end of this process, as those of a pool would.
    """
    answers: dict[str, Future[T]] = {name: Future() for name in names}
    turns, late = threading.Semaphore(TOGETHER), threading.Event()

    def work(name: str) -> None:
        with turns:
            if late.is_set():
                return
            try:
                answers[name].set_result(ask(name))
            except BaseException as error:  # noqa: BLE001 - it is raised again where it is waited for
                answers[name].set_exception(error)

    for name in names:
        threading.Thread(target=work, args=(name,), daemon=True).start()
    first = min(PATIENCE, seconds)
    done, missing = wait(answers.values(), first, FIRST_EXCEPTION)
    if missing and not any(answer.exception() for answer in done):
        if first < seconds:
            note([name for name, answer in answers.items() if answer in missing])
        done, _ = wait(answers.values(), seconds - first, FIRST_EXCEPTION)
    late.set()
    return {name: answer.result() for name, answer in answers.items() if answer in done}
