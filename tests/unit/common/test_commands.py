"""A command that is run to its end, or is ended with all that it started."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import FrameType

import pytest

from trtmatrix.common.processes import run_to_end

STARTS = "sleep 60 & echo $! > child; wait"


def is_gone(process: int) -> bool:
    for _ in range(50):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def test_what_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    assert run_to_end(["sh", "-c", STARTS], dict(os.environ), 1.0, tmp_path)[0] == 124
    assert is_gone(int((tmp_path / "child").read_text()))


def test_an_interrupt_ends_it_too(tmp_path: Path) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_to_end(["sh", "-c", STARTS], dict(os.environ), 60.0, tmp_path)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert is_gone(int((tmp_path / "child").read_text()))


def test_what_cannot_be_started_has_the_shells_code() -> None:
    assert run_to_end(["/nowhere/at-all"], {}) == (127, "/nowhere/at-all: No such file or directory")
