"""Removes from a shared folder what nobody needs any more."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from trtmatrix.core.errors import MachineryError
from trtmatrix.core.slurm import layout
from trtmatrix.core.slurm.shared_json import parse_manifest
from trtmatrix.effects.shared_clients import living_clients
from trtmatrix.effects.shared_files import PARTIAL, failure, names_in, read_text, write_text

DAY = 86400.0
PARTIAL_DAYS = 2.0
"""What is not whole after so long is nobody's any more: no copy takes longer."""


def set_aside(root: Path, days: float) -> dict[str, Path]:
    """Rename arrays that have been over for so long, unused suites and cases as old, and what is not whole.

    Never an array that is open or that a living client follows, nor what an open one uses; images stay: to
    have one again takes long. To be called under the folder's lock. Returns what each is called now, to be
    removed.
    """
    followed = {key for keys in living_clients(root).values() for key in keys}
    now = _now(root)
    old = [
        root / "arrays" / key for key in names_in(root / "arrays")
        if key not in followed and _age(root / "arrays" / key / layout.OVER, now) > days * DAY
    ]  # fmt: skip
    unchanged = [
        root / kind / name for kind in ("suite", "cases") for name in names_in(root / kind)
        if _age(root / kind / name, now) > days * DAY
    ]  # fmt: skip
    used = _used(root, {folder.name for folder in old}) if unchanged else set[str]()
    if used is not None:
        old += [path for path in unchanged if path.name not in used]
    asides = {str(path.relative_to(root)): _set_aside(path) for path in (*old, *_partial(root, now))}
    return {name: aside for name, aside in asides.items() if aside is not None}


def _now(root: Path) -> float:
    """Return the time as the folder's server has it: hosts' clocks differ."""
    file = root / f"{PARTIAL}time-{os.urandom(4).hex()}"
    write_text(file, "")
    try:
        return file.stat().st_mtime
    except OSError as error:
        raise failure(file, error) from error
    finally:
        remove(file)


def _age(path: Path, now: float) -> float:
    """Return for how many seconds a file or folder has not changed; -1 where it is not there."""
    try:
        return now - path.stat().st_mtime
    except OSError:
        return -1.0


def _used(root: Path, without: set[str]) -> set[str] | None:
    """Return the names of suites and cases of arrays that stay; None where that cannot be known."""
    used = set()
    for key in names_in(root / "arrays"):
        file = root / "arrays" / key / layout.MANIFEST
        text = None if key in without else read_text(file)
        if text is None:
            continue
        try:
            manifest = parse_manifest(text, str(file))
        except MachineryError:  # a newer trtmatrix's: it knows what it needs
            return None
        used.add(manifest.suite)
        used.update(str(cell.handed.get("files", "")) for task in manifest.tasks for cell in task)
    return used


def _partial(root: Path, now: float) -> Iterator[Path]:
    """Yield what is not whole, and has not changed for long."""
    for folder in (
        root,
        *(root / name for name in ("suite", "cases", "arrays", "images", "nodes", "clients")),
    ):
        for path in folder.glob(f"{PARTIAL}*"):
            if _age(path, now) > PARTIAL_DAYS * DAY:
                yield path


def _set_aside(path: Path) -> Path | None:
    """Rename a folder, so that nobody takes half of it for whole while it goes; None where it is gone."""
    if path.name.startswith(PARTIAL):
        return path
    aside = path.with_name(f"{PARTIAL}old-{os.urandom(4).hex()}")
    try:
        return path.rename(aside)
    except OSError:
        return None


def remove(path: Path) -> None:
    """Remove a file, or a folder with all in it, as far as that can be done."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
