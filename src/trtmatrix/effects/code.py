"""Digests of this program's own code: what records, prepared cases and parsed files depend on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import trtmatrix
import trtprobe

PACKAGES = {"trtmatrix": Path(trtmatrix.__file__).parent, "trtprobe": Path(trtprobe.__file__).parent}


@dataclass(frozen=True, kw_only=True)
class Code:
    """Digests of code, comments apart: of the probe, of what repros import to build graphs, of emulating."""

    probe: str = ""
    authoring: str = ""
    noise: str = ""


@cache
def digest_own_code() -> Code:
    """Return the digests; every file of these parts is tokenised for them."""
    effects = PACKAGES["trtmatrix"] / "effects"
    return Code(
        probe=digest_package("trtprobe"), authoring=digest_package("trtmatrix.authoring"),
        noise=digest_files([effects / "noise.py"], effects) + digest_package("trtmatrix.onnxmodel"),
    )  # fmt: skip


@cache
def digest_package(name: str) -> str:
    """Return the SHA-256 of the code of a package of ours, comments and docstrings apart (hexadecimal)."""
    package, _, inner = name.partition(".")
    root = PACKAGES[package].joinpath(*inner.split(".")) if inner else PACKAGES[package]
    return digest_files(sorted(root.rglob("*.py")), root)


def digest_files(files: Iterable[Path], root: Path) -> str:
    """Return the SHA-256 over names and code of Python files."""
    from trtmatrix.core.digest import digest_code

    total = sha256()
    for file in files:
        code = digest_code(file.read_text(encoding="utf-8"))
        total.update(f"{file.relative_to(root)} {code}\n".encode())
    return total.hexdigest()


def digest_program(roots: Iterable[Path] = tuple(PACKAGES.values())) -> str:
    """Return the SHA-256 of all that parsing depends on beside the parsed files (hexadecimal).

    That is every byte of our packages' code, the Python that runs, and what is installed for it: installing
    or removing a package changes its folder's time.
    """
    total = sha256(sys.version.encode())
    for folder in (path for path in sys.path if path.endswith(("site-packages", "dist-packages"))):
        if os.path.isdir(folder):  # noqa: PTH112 - os.stat is all that is needed, of strings
            total.update(f"\n{folder} {os.stat(folder).st_mtime_ns}".encode())  # noqa: PTH116
    for root in roots:
        for file in sorted(_sources(str(root))):
            with open(file, "rb") as stream:  # noqa: PTH123 - a hundred of them: Path takes longer to make
                total.update(f"\n{file}\n".encode() + sha256(stream.read()).digest())
    return total.hexdigest()


def _sources(folder: str) -> Iterator[str]:
    """Yield the Python files below a folder."""
    with os.scandir(folder) as found:
        for item in found:
            if item.is_dir():
                yield from _sources(item.path)
            elif item.name.endswith(".py"):
                yield item.path
