"""A stand-in CUDA driver that tests compile."""

from __future__ import annotations

from pathlib import Path

from trtmatrix.effects.stubs import compile_library, find_compiler

__all__ = ["compile_library", "find_compiler", "make_driver"]

HERE = Path(__file__).resolve().parent


def make_driver(folder: Path) -> Path:
    """Compile ``libcuda.so.1`` into a folder, and return the folder."""
    return compile_library(folder / "libcuda.so.1", (HERE / "standins" / "libcuda.c").read_text())
