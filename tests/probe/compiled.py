"""Shared libraries that tests compile: a stand-in CUDA driver, and empty libraries under NVIDIA's names."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


def compiler() -> str | None:
    """Return the C compiler, or None where there is none."""
    return shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")


def make_driver(folder: Path) -> Path:
    """Compile ``libcuda.so.1`` into a folder, and return the folder."""
    return compile_library(folder / "libcuda.so.1", (HERE / "standins" / "libcuda.c").read_text())


def compile_library(path: Path, source: str) -> Path:
    """Compile a shared library whose soname is its file's name; returns its folder."""
    found = compiler()
    assert found is not None
    command = [found, "-shared", "-fPIC", "-x", "c", "-", f"-Wl,-soname,{path.name}", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)
    return path.parent
