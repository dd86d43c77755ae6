"""A stand-in CUDA driver that tests compile."""

from __future__ import annotations

from pathlib import Path

from bench.surfaces import compile_library, need_compiler

from trtmatrix.common.errors import MachineryError

__all__ = ["compile_library", "find_compiler", "make_driver"]

HERE = Path(__file__).resolve().parent


def find_compiler() -> str | None:
    """Return the C compiler, or None where there is none."""
    try:
        return need_compiler()
    except MachineryError:
        return None


def make_driver(folder: Path) -> Path:
    """Compile ``libcuda.so.1`` into a folder, and return the folder."""
    return compile_library(folder / "libcuda.so.1", (HERE / "standins" / "libcuda.c").read_text())
