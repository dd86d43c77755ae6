"""What ends: a command with all that it started; a process by SIGTERM or a hang-up, however deaf it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trtmatrix.common.processes import run_to_end

PROGRAM = """
import os, signal, sys, time
from trtmatrix.common.interrupts import interruptible

class Deaf:
    def __del__(self):
        os.kill(os.getpid(), signal.{signal})
        for _ in range(1000):
            pass

try:
    with interruptible():
        Deaf()  # what is raised in a finalizer goes nowhere
        time.sleep(20)
    print("went on")
except KeyboardInterrupt as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize(("name", "raised"), [("SIGTERM", "KeyboardInterrupt"), ("SIGHUP", "HungUp")])
def test_an_interruption_that_was_swallowed_comes_again(name: str, raised: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(signal=name)], capture_output=True, text=True, check=False,
        timeout=60, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL), env=dict(os.environ),
    )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == (raised, "")


STARTS = "sleep 60 & echo $! > child; wait"


def is_gone(process: int) -> bool:
    for _ in range(500):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_what_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    assert run_to_end(["sh", "-c", STARTS], dict(os.environ), 1.0, tmp_path)[0] == 124
    assert is_gone(int((tmp_path / "child").read_text()))


def test_what_cannot_be_started_has_the_shells_code() -> None:
    assert run_to_end(["/nowhere/at-all"], {}) == (127, "/nowhere/at-all: No such file or directory")
