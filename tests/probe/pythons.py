"""The Python versions that images ship, found on this host, each with an environment that has NumPy."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

WANTED = ("3.8", "3.10", "3.12", "3.13")  # those that images of 2023 to today ship, and the newest
FOLDERS = "TRTMATRIX_TEST_PYTHONS"
CACHE = "TRTMATRIX_TEST_CACHE"


def cache_folder() -> Path:
    default = Path(tempfile.gettempdir()) / f"trtmatrix-tests-{os.getuid()}"
    folder = Path(os.environ.get(CACHE, default)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@lru_cache(maxsize=1)
def find_pythons() -> dict[str, Path]:
    """Return an interpreter for each wanted version that this host has: "3.8" → its path.

    They are looked for in ``TRTMATRIX_TEST_PYTHONS`` (interpreters, separated as PATH is), then on
    PATH, then among pyenv's.
    """
    listed = [Path(word) for word in os.environ.get(FOLDERS, "").split(os.pathsep) if word]
    on_path = [Path(path) for version in WANTED if (path := shutil.which(f"python{version}"))]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found: dict[str, Path] = {}
    for python in [*listed, *on_path, *sorted(pyenv.glob("*/bin/python"))]:
        version = _version_of(python)
        if version in WANTED:
            found.setdefault(version, python)
    return found


def _version_of(python: Path) -> str:
    """Return "3.8" for an interpreter that runs (a shim of pyenv's may not), else nothing."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def environment_of(version: str) -> Path:
    return environment(version, ("numpy",))


def environment(version: str, wheels: tuple[str, ...]) -> Path:
    """Return the interpreter of an environment with these wheels, made now if it is not there."""
    words = [word for wheel in wheels for word in wheel.split("==")]
    folder = cache_folder() / "-".join([f"python{version}", *words])
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _call(str(find_pythons()[version]), "-m", "venv", str(folder))
            python = str(folder / "bin" / "python")
            _call(python, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                  "--only-binary=:all:", *wheels)  # fmt: skip
            (folder / "complete").touch()
    return folder / "bin" / "python"


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
