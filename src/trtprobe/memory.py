"""The kernel's count of processes that the memory limit killed, for cgroup v1 and v2."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Iterator, Optional

ROOT = Path("/sys/fs/cgroup")


def oom_kills() -> int:
    """Return how often the kernel killed in this process's memory group, 0 where it cannot be told."""
    path = _counter()
    return 0 if path is None else _count(path) or 0


@lru_cache(maxsize=64)
def _counter() -> Optional[Path]:
    """Return the first place that tells the count."""
    return next((path for path in _counters() if _count(path) is not None), None)


def _count(path: Path) -> Optional[int]:
    try:
        match = re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match.group(1)) if match else None


def _counters() -> Iterator[Path]:
    """Yield where the counter may lie: inside a container's own view first, then the group's path."""
    groups = ["", *_own_groups()]
    for group in groups:
        yield ROOT / group / "memory.events"
        yield ROOT / "memory" / group / "memory.oom_control"


def _own_groups() -> Iterator[str]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "memory" in controllers.split(","):
            yield path.lstrip("/")
