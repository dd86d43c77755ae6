"""A folder of wheels that stands for the package index, on a host without a network."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

VARIABLE = "TRTMATRIX_WHEELHOUSE"
"""Names the folder."""

FOLDER = "wheelhouse"
"""What it is called in a project's folder, where the variable is not set."""


def find_wheelhouse(folder: Path) -> Path | None:
    """Return the folder that TRTMATRIX_WHEELHOUSE names, else ``wheelhouse`` in the project, or None."""
    named = os.environ.get(VARIABLE)
    found = Path(named) if named else folder.resolve() / FOLDER
    return found if found.is_dir() else None


def find_lacking(wheelhouse: Path | None, wheels: Sequence[str]) -> str:
    """Return in words which requirements no wheel in the folder meets for this Python; nothing: all are met.

    What they need themselves is not looked at: that pip does.
    """
    here = list(_wheels(wheelhouse)) if wheelhouse is not None else []
    lacking = [wheel for wheel in wheels if not any(_meets(wheel, *one) for one in here)]
    if not lacking:
        return ""
    where = f"not in {wheelhouse}" if wheelhouse is not None else f"there is no {FOLDER}"
    return f"{', '.join(lacking)}: not installed, and {where}"


def _wheels(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield name and version of each wheel that this Python can use."""
    from packaging.tags import sys_tags
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    usable = frozenset(sys_tags())
    for file in sorted(folder.glob("*.whl")):
        try:
            name, version, _, tags = parse_wheel_filename(file.name)
        except InvalidWheelFilename:
            continue
        if tags & usable:
            yield name, str(version)


def _meets(wheel: str, name: str, version: str) -> bool:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        wanted = Requirement(wheel)
    except InvalidRequirement:
        return False
    return canonicalize_name(wanted.name) == name and wanted.specifier.contains(version, prereleases=True)
