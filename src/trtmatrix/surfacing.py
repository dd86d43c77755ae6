"""``surfaces``: reads the API surfaces of NVIDIA's own bindings again, the package's data."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from trtmatrix.core.api import Surface
from trtmatrix.core.errors import ConfigError, ExitCode, TrtMatrixError, UsageError
from trtmatrix.core.surfacefile import format_store, parse_store
from trtmatrix.effects.bindings import fetch_bindings, find_python, find_releases, read_bindings
from trtmatrix.effects.offline import need_network
from trtmatrix.effects.paths import default_cache
from trtmatrix.effects.stubs import need_compiler
from trtmatrix.effects.surfaces import FOLDER, STORE


def surfaces_command(args: argparse.Namespace) -> ExitCode:
    """Fetch every release's bindings, read each, write the store; what cannot be read keeps its old entry."""
    need_network("reading NVIDIA's bindings from PyPI")
    folder: Path = args.to or FOLDER
    file = folder / STORE
    known = read_known(file)
    need_compiler()
    surfaces, troubles = dict(known), []
    today = datetime.now(timezone.utc).date().isoformat()
    python = find_python(_note)
    for requirement in find_releases():
        try:
            surface = _read(requirement, (args.cache or default_cache()).resolve(), python)
        except TrtMatrixError as error:
            troubles.append(f"{requirement}: {error}")
            continue
        surfaces[surface.version] = dated(surface, known.get(surface.version), today)
        _note(f"{surface.version}: {len(surface.classes)} classes, from {surface.origin.wheel}")
    for trouble in troubles:
        print(f"trtmatrix: {trouble}", file=sys.stderr)
    if surfaces:
        print(_write(file, format_store(surfaces.values()), len(surfaces)))
    return ExitCode.MACHINERY if troubles else ExitCode.AS_EXPECTED


def _write(file: Path, text: str, count: int) -> str:
    """Write the store whole or not at all; returns what happened, in words."""
    partial = file.with_suffix(".partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        old = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        partial.write_text(text, encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be written ({error}): name a folder that can by --to") from error
    change = "as it was" if text == old else "changed" if old else "new"
    return f"{file}: {count} surfaces, {len(text.encode()):,} bytes, {change}"


def read_known(file: Path) -> dict[str, Surface]:
    """Return the surfaces that a store holds, by version; none where there is no whole one yet."""
    if not file.is_file():
        return {}
    try:
        store = parse_store(file.read_text(encoding="utf-8"), str(file))
        return {version: store.surface(version) for version in store.origins}
    except (ConfigError, KeyError, ValueError, OSError):
        _note(f"{file}: this is no store of surfaces, and is written anew")
        return {}


def dated(surface: Surface, before: Surface | None, today: str) -> Surface:
    """Return a surface with the day on which it was first read: nothing changes where nothing did."""
    if before is not None and replace(before, origin=replace(before.origin, extracted="")) == surface:
        return before
    return replace(surface, origin=replace(surface.origin, extracted=today))


def _read(requirement: str, cache: Path, python: Path) -> Surface:
    bindings = fetch_bindings(requirement, cache)
    with tempfile.TemporaryDirectory() as scratch:
        return read_bindings(bindings, python, Path(scratch))


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
