"""Who owns a container or a folder: this process, so that leftovers of dead ones can be told."""

from __future__ import annotations

import os
from pathlib import Path


def own_identity() -> str:
    """Return ``boot:namespace:pid:start``, which no other process ever has."""
    pid = os.getpid()
    return f"{_boot()}:{_namespace()}:{pid}:{_start_time(pid)}"


def is_dead(identity: str) -> bool:
    """Whether an owner is known to be gone; an owner that cannot be seen from here counts as alive."""
    try:
        boot, namespace, pid, start = identity.split(":")
        number = int(pid)
    except ValueError:
        return False
    if boot != _boot():
        return True
    if namespace != _namespace():
        return False
    return _start_time(number) != start


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def _start_time(pid: int) -> str:
    """Return when a process started, in clock ticks since boot, or an empty string."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
