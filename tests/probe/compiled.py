"""A stand-in CUDA driver that tests compile."""

from __future__ import annotations

from pathlib import Path

from bench.surfaces import compile_library, need_compiler

from trtmatrix.common.errors import MachineryError

__all__ = ["compile_library", "find_compiler", "make_driver"]

HERE = Path(__file__).resolve().parent


def find_compiler() -> str | None:
    try:
        return need_compiler()
    except MachineryError:
        return None


def make_driver(folder: Path) -> Path:
    return compile_library(folder / "libcuda.so.1", (HERE / "standins" / "libcuda.c").read_text())
