"""A folder of wheels that stands for the package index, on a host without a network."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from email import message_from_bytes
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

    What they need themselves, by their metadata, must be there too.
    """
    house = _House(wheelhouse)
    lacking = [words for wheel in wheels if (words := house.lacking(wheel))]
    if not lacking:
        return ""
    where = f"not in {wheelhouse}" if wheelhouse is not None else f"there is no {FOLDER}"
    return f"{', '.join(dict.fromkeys(lacking))}: not installed, and {where}"


class _House:
    """The wheels of a folder that this Python can use, by name."""

    def __init__(self, folder: Path | None) -> None:
        self._files: dict[str, list[tuple[str, Path]]] = {}
        for name, version, file in _wheels(folder) if folder is not None else ():
            self._files.setdefault(name, []).append((version, file))
        self._known: dict[tuple[str, tuple[str, ...]], str] = {}

    def lacking(self, text: str) -> str:
        """Return what lacks of a requirement, itself or the first of what it needs, or nothing.

        It is met where all that any one wheel needs is met: which of them pip chooses is not asked.
        """
        from packaging.requirements import InvalidRequirement, Requirement
        from packaging.utils import canonicalize_name

        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            return text
        fitting = [
            file
            for version, file in self._files.get(canonicalize_name(wanted.name), ())
            if wanted.specifier.contains(version, prereleases=True)
        ]
        extras = tuple(sorted(wanted.extras))
        troubles = [self._needs(file, extras) for file in fitting]
        return min(troubles, key=bool) if troubles else text

    def _needs(self, file: Path, extras: tuple[str, ...]) -> str:
        """Return the first thing that a wheel needs and that lacks, or nothing; circles are met."""
        key = (file.name, extras)
        if key not in self._known:
            self._known[key] = ""
            needed = _requirements(file, extras)
            lacking = next((words for each in needed if (words := self.lacking(each))), "")
            name = file.name.partition("-")[0]
            self._known[key] = f"{lacking} (for {name})" if lacking and "(for " not in lacking else lacking
        return self._known[key]


def _requirements(file: Path, extras: Sequence[str]) -> Iterator[str]:
    """Yield what a wheel needs for this Python; of one that cannot be read nothing is known: pip says so."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        with zipfile.ZipFile(file) as archive:
            name = next(
                n for n in archive.namelist() if n.count("/") == 1 and n.endswith(".dist-info/METADATA")
            )
            needs = message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    except (OSError, zipfile.BadZipFile, StopIteration):
        return
    for text in map(str, needs):
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            continue
        marker, wanted.marker = wanted.marker, None
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield str(wanted)


def _wheels(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield name, version and file of each wheel that this Python can use."""
    from packaging.tags import sys_tags
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    usable = frozenset(sys_tags())
    for file in sorted(folder.glob("*.whl")):
        try:
            name, version, _, tags = parse_wheel_filename(file.name)
        except InvalidWheelFilename:
            continue
        if tags & usable:
            yield name, str(version), file
