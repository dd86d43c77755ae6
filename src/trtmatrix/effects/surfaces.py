"""The surfaces that are known here: those of the package, and those that were read inside images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import trtmatrix
from trtmatrix.core.api import Surface
from trtmatrix.core.change_table import ChangeTable
from trtmatrix.core.errors import ConfigError
from trtmatrix.core.surface_bracket import Bracket
from trtmatrix.core.surfacefile import Store, numbers_of, parse_store, parse_surface

FOLDER = Path(trtmatrix.__file__).with_name("surfaces")
STORE = "bindings.json"
TABLE = Path(trtmatrix.__file__).with_name("api_changes.yaml")
LEAST = 3
"""So many leading numbers of two versions must agree: 10.0 is no answer to what 10.0.1 has."""


@dataclass(frozen=True, kw_only=True)
class Surfaces:
    """Surfaces by version; ``problems`` tells of files that could not be read."""

    store: Store
    read_inside: Mapping[str, Surface] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions with a surface, oldest first."""
        return tuple(sorted({*self.store.origins, *self.read_inside}, key=numbers_of))

    def of(self, version: str) -> Surface | None:
        """Return the surface of a column such as ``"10.0.1.6"``; None where none is known.

        The leading numbers that both have must agree, at least three of them; of several that do, the one
        that agrees in most, then the newest.
        """
        found = self._match(version)
        return None if found is None else self._get(found)

    def around(self, version: str) -> tuple[Surface | None, Surface | None]:
        """Return the nearest known surfaces below and above a version; its own twice where it has one."""
        own = self.of(version)
        if own is not None:
            return own, own
        here = numbers_of(version)
        below = [name for name in self.versions if numbers_of(name) < here]
        above = [name for name in self.versions if numbers_of(name) > here]
        return (self._get(below[-1]) if below else None), (self._get(above[0]) if above else None)

    def between(self, before: str, after: str) -> Bracket | None:
        """Return the surfaces for a move, or the nearest outside of it; None where there are none."""
        upwards = numbers_of(before) <= numbers_of(after)
        first, last = self.around(before)[not upwards], self.around(after)[upwards]
        if first is None or last is None:
            return None
        return Bracket(
            before=first, after=last, moved_from=before, moved_to=after,
            exact_before=self.of(before) is not None, exact_after=self.of(after) is not None,
        )  # fmt: skip

    def _match(self, version: str) -> str | None:
        wanted, best = numbers_of(version), (0, "")
        for name in self.versions:
            have = numbers_of(name)
            common = min(len(wanted), len(have))
            if common >= LEAST and wanted[:common] == have[:common] and common >= best[0]:
                best = common, name
        return best[1] or None

    def _get(self, name: str) -> Surface:
        return self.read_inside[name] if name in self.read_inside else _packaged(self.store, name)


_built: dict[tuple[int, str], Surface] = {}


def _packaged(store: Store, name: str) -> Surface:
    """Return a surface of the store, put together once."""
    key = id(store), name
    if key not in _built:
        _built[key] = store.surface(name)
    return _built[key]


@cache
def read_store() -> Store:
    """Return the surfaces that are installed with the package; none where there is no such file."""
    file = FOLDER / STORE
    if not file.is_file():
        return Store(origins={}, entries={})
    return parse_store(file.read_text(encoding="utf-8"), str(file))


@cache
def read_change_table() -> ChangeTable:
    """Return the hand-kept table that is installed with the package."""
    from trtmatrix.core.change_file import parse_change_table

    return parse_change_table(TABLE.read_text(encoding="utf-8"), str(TABLE))


def local_folder(results: Path) -> Path:
    """Return where surfaces lie that were read inside images on this host."""
    return results / "local" / "surfaces"


def publish_surfaces(results: Path) -> list[Path]:
    """Copy local surfaces to where git sees them; returns the new files."""
    new: list[Path] = []
    for file in sorted(local_folder(results).glob("*.json")):
        target = results / "surfaces" / file.name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
            new.append(target)
    return new


def read_surfaces(results: Path) -> Surfaces:
    """Return the packaged surfaces and those below ``results``; a file that cannot be read is told of."""
    inside: dict[str, Surface] = {}
    problems: list[str] = []
    for folder in (results / "surfaces", local_folder(results)):
        for file in sorted(folder.glob("*.json")) if folder.is_dir() else ():
            try:
                surface = parse_surface(json.loads(file.read_text(encoding="utf-8")), str(file))
            except (OSError, ValueError) as error:
                problems.append(f"{file}:1: this is no surface of the bindings: {error}")
            except ConfigError as error:
                problems += error.problems
            else:
                inside[surface.version] = surface
    return Surfaces(store=read_store(), read_inside=inside, problems=tuple(problems))
