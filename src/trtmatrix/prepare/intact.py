"""Whether a prepared case is still what was prepared: a changed bit in a reference must be no verdict.

``case.json`` has the SHA-256 of each file, and its own. A file is read once a process, and looked at (inode,
size, time of change) each time after that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from trtmatrix.common.archive import digest_stream
from trtmatrix.common.border import ARRAY, BorderError, opened, read_json, remove_tree
from trtmatrix.common.jsontext import parse_json

CASE = "case.json"
SEAL = "seal"
_KNOWN: dict[tuple[int, int, int, int], str] = {}
"""Device, inode, size and time of change of a file that this process has read → its SHA-256."""


def sealed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``case.json`` holds: facts with a digest of themselves."""
    text = json.dumps(facts, sort_keys=True, allow_nan=False)
    text = json.dumps(parse_json(text), sort_keys=True)  # as it is read again
    return {**facts, SEAL: sha256(text.encode()).hexdigest()}


def digest_known(file: Path) -> str:
    """Return the SHA-256 of a file (hexadecimal), read where this process has not read it as it is."""
    facts = os.stat(file, follow_symlinks=False)  # noqa: PTH116 - as Path's, but quicker
    key = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    if key not in _KNOWN:
        with opened(file, ARRAY) as (stream, _):
            _KNOWN[key] = digest_stream(stream)
    return _KNOWN[key]


def find_change(folder: Path) -> str:
    """Return what of a prepared case is not as it was prepared, in words; nothing where all is.

    ``OSError`` where a file is there and cannot be read.
    """
    name = CASE
    try:
        facts = read_json(folder / CASE)
        if facts.pop(SEAL, "") != sealed(facts)[SEAL]:
            return f"{CASE} differs"
        wanted: dict[str, str] = facts["files"]
        for name, digest in wanted.items():
            if digest_known(folder / name) != digest:
                return f"{name} differs"
    except (FileNotFoundError, NotADirectoryError):
        return f"{name} is gone"
    except BorderError as error:
        return f"{name} {error}"
    return next((f"{name} is extra" for name in _files(folder) if name not in wanted and name != CASE), "")


def drop(folder: Path, blobs: Path) -> None:
    """Remove a prepared case that has changed, and the changed files that others share with it."""
    bad = set()
    try:
        wanted: dict[str, str] = read_json(folder / CASE).get("files", {})
    except (OSError, BorderError):
        wanted = {}
    for name in _files(folder):
        try:
            if digest_known(folder / name) != wanted.get(name):
                bad.add((folder / name).lstat().st_ino)
        except (OSError, BorderError):
            continue
    for entry in os.scandir(blobs) if bad and blobs.is_dir() else ():
        if entry.inode() in bad:
            Path(entry.path).unlink(missing_ok=True)
    remove_tree(folder)


def _files(folder: Path) -> Iterator[str]:
    """Yield the files of a folder by their names below it, with ``/``."""
    start = len(str(folder)) + 1
    return (f"{place}/{name}"[start:] for place, _, names in os.walk(folder) for name in names)
