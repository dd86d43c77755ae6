"""Reads the sources that an archive's repro.py is made of."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from trtmatrix.effects.code import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTS = {"trtprobe": PACKAGES["trtprobe"], "trtmatrix.standalone": PACKAGES["trtmatrix"] / "standalone"}


@cache
def read_sources() -> Mapping[str, str]:
    """Return the sources of the probe and of the script's own parts by the names of their modules."""
    found: dict[str, str] = {}
    for package, folder in PARTS.items():
        for file in sorted(folder.rglob("*.py")):
            parts = [package, *file.relative_to(folder).with_suffix("").parts]
            if parts[-1] == "__main__":
                continue
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = file.read_text(encoding="utf-8")
    return MappingProxyType(found)
