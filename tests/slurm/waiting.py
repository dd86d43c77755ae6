"""Waiting until something holds that a daemon, a job or another process is to bring about."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(
    holds: Callable[[], object], seconds: float, what: str, explain: Callable[[], str] = str
) -> None:
    """Wait until something holds; fails with what ``explain`` returns."""
    assert wait_quietly(holds, seconds), f"not within {seconds} s: {what}\n{explain()}"


def wait_quietly(holds: Callable[[], object], seconds: float) -> bool:
    """Wait until something holds; returns whether it did."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
