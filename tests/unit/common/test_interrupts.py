"""SIGTERM and a hang-up interrupt a command, also where the exception was swallowed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

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
