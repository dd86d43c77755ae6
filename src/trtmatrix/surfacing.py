"""``surfaces``: reads the API surfaces of NVIDIA's own bindings again, the package's data."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from trtmatrix.core.api import Surface
from trtmatrix.core.errors import ExitCode, TrtMatrixError
from trtmatrix.core.surfacefile import format_store, parse_store
from trtmatrix.effects.bindings import fetch_bindings, find_python, find_releases, read_bindings
from trtmatrix.effects.paths import default_cache
from trtmatrix.effects.surfaces import FOLDER, STORE


def surfaces_command(args: argparse.Namespace) -> ExitCode:
    """Fetch every release's bindings, read each, write the store; what cannot be read keeps its old entry."""
    folder: Path = args.to or FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / STORE
    known = read_known(file)
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
    text = format_store(surfaces.values())
    old = file.read_text(encoding="utf-8") if file.is_file() else ""
    file.write_text(text, encoding="utf-8")
    change = "as it was" if text == old else "changed" if old else "new"
    print(f"{file}: {len(surfaces)} surfaces, {len(text.encode()):,} bytes, {change}")
    for trouble in troubles:
        print(f"trtmatrix: {trouble}", file=sys.stderr)
    return ExitCode.MACHINERY if troubles else ExitCode.AS_EXPECTED


def read_known(file: Path) -> dict[str, Surface]:
    """Return the surfaces that a store holds, by version; none where there is no such file yet."""
    if not file.is_file():
        return {}
    store = parse_store(file.read_text(encoding="utf-8"), str(file))
    return {version: store.surface(version) for version in store.origins}


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
