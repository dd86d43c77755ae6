"""What a move does to code: the surfaces that are known here, the table, and the scan, put together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

from trtmatrix.api.changes import ChangeTable, parse_change_table
from trtmatrix.api.compare import compare_surfaces, find_behaviours, find_older
from trtmatrix.api.surface import format_surface, parse_store, parse_surface
from trtmatrix.api.types import ApiSection, Surface, numbers_of
from trtmatrix.common.border import read_file
from trtmatrix.common.errors import ConfigError
from trtmatrix.common.paths import whole_file
from trtmatrix.common.text import to_json
from trtmatrix.launchers.launcher import Ready
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import Product

STORE, TABLE = Path(__file__).with_name("surfaces.json"), Path(__file__).with_name("changes.yaml")
LOCAL, LEFT = "local/surfaces", "surface.json"
"""Where surfaces lie that were read inside images on this host; what the probe leaves beside its records."""
LEAST = 3
"""So many leading numbers of two versions must agree: 10.0 is no answer to what 10.0.1 has."""


@cache
def read_store() -> Mapping[str, Surface]:
    """Return the surfaces that are installed with the package, by version, oldest first."""
    return parse_store(STORE.read_bytes())


@cache
def read_change_table() -> ChangeTable:
    """Return the hand-kept table that is installed with the package."""
    return parse_change_table(TABLE.read_text(encoding="utf-8"))


def read_surfaces(results: Path) -> dict[str, Surface]:
    """Return the packaged surfaces and those read inside images, which lie below ``results``.

    By version, oldest first; :class:`ConfigError` where a file is none.
    """
    known = dict(read_store())
    for file in sorted((results / LOCAL).glob("*.json")):
        try:
            surface = parse_surface(read_file(file))
        except (OSError, ValueError) as error:
            remedy = "remove the file: the next run in that image writes it anew"
            raise ConfigError([f"{file}:1: this is no surface: {error}\n  {remedy}"]) from error
        known[surface.version] = surface
    return {name: known[name] for name in sorted(known, key=numbers_of)}


def find_surface(surfaces: Mapping[str, Surface], version: str) -> Surface | None:
    """Return the surface of a column such as ``"10.0.1.6"``; None where none is known.

    The leading numbers that both have must agree, at least three of them; of several the newest.
    """
    wanted = numbers_of(version)
    for name in reversed(list(surfaces)):
        common = min(len(wanted), len(numbers_of(name)))
        if common >= LEAST and wanted[:common] == numbers_of(name)[:common]:
            return surfaces[name]
    return None


def make_api_section(results: Path, before: str, after: str, code: Sequence[Path] = ()) -> ApiSection:
    """Compare the surfaces of two versions and scan code for what changes; the code is never run.

    Never raises for a surface that is not there: ``lacking`` says why there is nothing to show, and what
    would supply it.
    """
    from trtmatrix.api.scan import read_code, scan_code

    surfaces, named = read_surfaces(results), tuple(map(str, code))
    first, last = find_surface(surfaces, before), find_surface(surfaces, after)
    if first is None or last is None:
        missing = [name for name, found in ((before, first), (after, last)) if found is None]
        what = f"the API of TensorRT {' and '.join(missing)} is not known here"
        reads = f"nox -s matrix -- --trt {','.join(missing)} reads it inside the image on the first run"
        return ApiSection(code=named, lacking=f"{what} (known: {', '.join(surfaces)}). {reads}")
    table = read_change_table()
    changes, behaviours = compare_surfaces(first, last, table), find_behaviours(before, after, table)
    files = read_code(code)
    looked_for = (*changes, *find_older(surfaces.values(), first, last, table))
    scan = scan_code(files.texts, first, last, looked_for, behaviours)
    return ApiSection(
        changes=changes, behaviours=behaviours, code=named, files=files.seen, uses=scan.uses,
        unread=(*sorted(files.unread), *scan.unread),
        surfaces=(_source(first), _source(last)),
    )  # fmt: skip


def _source(surface: Surface) -> str:
    """Return where a surface was read, in words."""
    origin = surface.origin
    read = f", read {origin.extracted}" if origin.extracted else ""
    return f"TensorRT {surface.version}: {origin.wheel or origin.image or 'the bindings here'}{read}"


def today() -> str:
    """Return the date, by which it is known when a surface was read."""
    return datetime.now(timezone.utc).date().isoformat()


class SurfaceIntake:
    """Asks the probe for the surface of a TensorRT version that has none, once a run, and keeps it."""

    def __init__(self, results: Path, note: Callable[[str], None]) -> None:
        """Name the folder of results; ``note`` is told of what was read, and of what went wrong."""
        self.results, self.note = results, note
        self._had: dict[str, bool] = {}

    def wanted(self, version: Version) -> dict[str, str]:
        """Return what is added to a version's job: nothing where its surface is known."""
        if version.product is Product.TENSORRT and version.name not in self._had:
            self._had[version.name] = find_surface(read_surfaces(self.results), version.name) is not None
        return {} if self._had.get(version.name, True) else {"surface": "tensorrt"}

    def take(self, ready: Ready, out: Path) -> None:
        """Keep the surface that a job left, if it was asked for one and left it; never troubles a cell."""
        file, name = out / LEFT, ready.launch.version.name
        if self._had.get(name, True) or not os.path.lexists(file):
            return
        target = self.results / LOCAL / f"{name}.json"
        try:
            surface = parse_surface(read_file(file))
            origin = replace(surface.origin, image=ready.digests.get("image", ""), extracted=today())
            with whole_file(target) as stream:
                stream.write(to_json(format_surface(replace(surface, origin=origin))).encode())
        except (OSError, ValueError) as error:
            self.note(f"{name}: the API surface that was read inside could not be kept: {error}")
            return
        self._had[name] = True
        self.note(f"{name}: its API surface was read inside and is kept in {target}")
