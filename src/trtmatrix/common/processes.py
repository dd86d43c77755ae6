"""Runs commands that may take long; what is started ends with this process."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from trtmatrix.common.errors import deferred, undisturbed

PATIENCE_SECONDS = 5.0  # how long a command may take to clean up when this process ends before it


def run_to_end(
    command: Sequence[str], environment: Mapping[str, str], seconds: float | None = None,
    folder: Path | None = None, *, shown: bool = False,
) -> tuple[int, str]:  # fmt: skip
    """Run a command in a session of its own, in ``folder``; returns its exit code and all that it said.

    One that cannot be started has code 127, one that takes longer than ``seconds`` code 124, as in a shell.
    ``shown``: what it says goes to standard error instead.
    """
    with contextlib.ExitStack() as stack:
        said = stack.enter_context(tempfile.TemporaryFile())
        out = 2 if shown else said

        def end() -> None:
            """End it and what it started; its first signal lets it clean up, which nothing cuts short."""
            atexit.unregister(end)
            if child.poll() is not None:
                return
            with undisturbed():
                for number in (signal.SIGINT, signal.SIGKILL):
                    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                        os.killpg(child.pid, number)
                        child.wait(timeout=PATIENCE_SECONDS)

        try:
            with deferred():
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment,
                    start_new_session=True, cwd=folder,
                )  # fmt: skip
                stack.callback(end)
                atexit.register(end)  # also where this process ends without unwinding
        except OSError as error:
            return 127, f"{command[0]}: {error.strerror}"
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            code = 124
            end()
        said.seek(0)
        return code, said.read().decode("utf-8", "replace")
