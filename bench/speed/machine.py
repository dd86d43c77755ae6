"""What a figure depends on beside the program: processor, memory, kernel, engine, GPU, day, commit."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def read_machine() -> dict[str, str]:
    """Return the facts of this host, in the order in which they are shown; an empty one is not known."""
    return {
        "processor": _processor(), "cores": str(os.cpu_count() or ""), "memory": _memory(),
        "kernel": platform.release(), "Docker": _said("docker", "version", "--format={{.Server.Version}}"),
        "Python": platform.python_version(),
        "GPU": _said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"), "commit": _commit(),
    }  # fmt: skip


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def _commit() -> str:
    commit = _said("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD")
    changed = commit and _said("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return f"{commit} and changes" if changed else commit


def _said(*words: str) -> str:
    """Return what a command prints, in one line; nothing where there is no such command or it fails."""
    if shutil.which(words[0]) is None:
        return ""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return "; ".join(done.stdout.strip().splitlines()) if done.returncode == 0 else ""
