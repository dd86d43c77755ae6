"""Waiting until something holds that a daemon, a job or another process is to bring about."""

import time
from collections.abc import Callable


def wait_until(
    holds: Callable[[], object], seconds: float, what: str, explain: Callable[[], str] = str
) -> None:
    """Wait until something holds; fails with what ``explain`` returns."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s: {what}\n{explain()}"
        time.sleep(0.05)
