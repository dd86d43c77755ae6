"""What a move does to code: the surfaces that are known here, the table, and the scan, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

import orjson
import yaml
from pydantic import TypeAdapter

from trtmatrix.api.compare import ChangeTable, compare_surfaces, find_behaviours, find_older, read_kept
from trtmatrix.api.types import ApiClass, ApiSection, Member, MemberKind, Origin, Surface, numbers_of
from trtmatrix.common.border import read_file
from trtmatrix.common.errors import ConfigError
from trtmatrix.common.paths import whole_file
from trtmatrix.suite.model import is_release

STORE, TABLE = Path(__file__).with_name("surfaces.json"), Path(__file__).with_name("changes.yaml")
LOCAL = Path("local", "surfaces")
"""Where surfaces lie, below the results, that were read inside images on this host."""
LEAST = 3
"""So many leading numbers of two versions must agree: 10.0 is no answer to what 10.0.1 has."""


@cache
def read_store() -> Mapping[str, Surface]:
    """Return the surfaces that are installed with the package, by version, oldest first."""
    return parse_store(STORE.read_bytes())


@cache
def read_change_table() -> ChangeTable:
    """Return the hand-kept table that is installed with the package."""
    data = yaml.load(TABLE.read_bytes(), yaml.CSafeLoader)
    parts = {
        part: tuple(read_kept(entry, data["sources"]) for entry in data[part])
        for part in ("replacements", "behaviours", "flags", "older")
    }
    replacements = {name: each for each in parts.pop("replacements") for name in each.names}
    return ChangeTable(replacements=replacements, **parts)


def read_surfaces(results: Path) -> dict[str, Surface]:
    """Return the installed surfaces and those read inside images, by version, oldest first.

    :class:`ConfigError` where a file is none.
    """
    known = dict(read_store())
    for file in sorted((results / LOCAL).glob("*.json")):
        try:
            surface = TypeAdapter(Surface).validate_json(read_file(file))
        except (OSError, ValueError) as error:
            remedy = "remove the file: the next run in that image writes it anew"
            raise ConfigError([f"{file}: this is no surface: {error}\n  {remedy}"]) from error
        known[surface.version] = surface
    return {name: known[name] for name in sorted(known, key=numbers_of)}


def keep_surface(left: Path, results: Path, version: str, image: str) -> None:
    """Keep what the probe has left of a version; ``OSError`` or ``ValueError`` where that cannot be used."""
    surface, read = TypeAdapter(Surface), datetime.now(timezone.utc).date().isoformat()
    found = surface.validate_json(read_file(left))
    found = replace(found, origin=replace(found.origin, image=image, extracted=read))
    with whole_file(results / LOCAL / f"{version}.json") as out:
        out.write(surface.dump_json(found, exclude_defaults=True))


def find_surface(version: str, surfaces: Mapping[str, Surface] | None = None) -> Surface | None:
    """Return the surface of a column such as ``"10.0.1.6"``; None where none is known.

    Of ``surfaces``, or those installed: the leading numbers that both have must agree, at least three of
    them; of several the newest.
    """
    wanted, known = numbers_of(version), surfaces or read_store()
    for name in reversed(list(known)):
        common = min(len(wanted), len(numbers_of(name)))
        if common >= LEAST and wanted[:common] == numbers_of(name)[:common]:
            return known[name]
    return None


def make_api_section(
    before: str, after: str, code: Sequence[Path] = (), results: Path = Path("results")
) -> ApiSection:
    """Compare the surfaces of two versions and scan code for what changes; the code is never run.

    Never raises for a surface that is not there: ``lacking`` says why there is nothing to show, and what
    would supply it.
    """
    from trtmatrix.api.scan import read_code, scan_code

    surfaces, named = read_surfaces(results), tuple(map(str, code))
    first, last = find_surface(before, surfaces), find_surface(after, surfaces)
    if first is None or last is None:
        missing = [name for name, found in ((before, first), (after, last)) if found is None]
        what = f"the API of TensorRT {' and '.join(missing)} is not known here"
        reads = f". nox -s matrix -- --trt {','.join(missing)} reads it inside the image"
        reads = reads if all(map(is_release, missing)) else ""
        return ApiSection(code=named, lacking=f"{what} (known: {', '.join(surfaces)}){reads}")
    table = read_change_table()
    changes, behaviours = compare_surfaces(first, last, table), find_behaviours(before, after, table)
    files = read_code(code)
    looked_for = (*changes, *find_older(surfaces.values(), first, last, table))
    scan = scan_code(files.texts, first, last, looked_for, behaviours)
    return ApiSection(
        changes=changes, behaviours=behaviours, code=named, files=files.seen, uses=scan.uses,
        unread=(*sorted(files.unread), *scan.unread),
        surfaces=tuple(
            f"TensorRT {each.version}: {each.origin.wheel or each.origin.image}, read {each.origin.extracted}"
            for each in (first, last)
        ),
    )  # fmt: skip


def parse_store(text: str | bytes) -> dict[str, Surface]:
    """Return the surfaces of the store, which is a part of this package, by version, oldest first.

    Of each version it has what is new or other than in the one before. Entries are named ``Builder``, of
    members ``Builder:build_engine``; null is one that is gone.
    """
    of_class, of_member = TypeAdapter(ApiClass), TypeAdapter(Member)
    surfaces, known, data = dict[str, Surface](), dict[str, ApiClass | Member](), orjson.loads(text)
    for line in data["surfaces"]:
        version = line.pop("version")
        for name, entry in data["changes"][version].items():
            known.pop(name, None)
            if entry is not None:
                is_class = entry["kind"] == MemberKind.CLASS and "returns" not in entry
                known[name] = (of_class if is_class else of_member).validate_python(entry)
        members = {name: dict[str, Member]() for name in known if isinstance(known[name], ApiClass)}
        classes, names = dict[str, ApiClass](), dict[str, Member]()
        for dotted, entry in sorted(known.items()):
            owner, _, name = dotted.partition(":")
            if isinstance(entry, ApiClass):
                classes[owner] = replace(entry, members=members[owner])
            else:
                (members[owner] if name else names)[name or owner] = entry
        surfaces[version] = Surface(version=version, origin=Origin(**line), classes=classes, names=names)
    return surfaces
