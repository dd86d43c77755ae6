"""Surfaces: kept whole in the package, found by version, read inside images."""

from pathlib import Path

import pytest
from bench.surfaces import format_store
from playing import RIGHT, Playing, always, cells_of, perform

from trtmatrix.api.section import STORE, find_surface, parse_store, read_store, read_surfaces
from trtmatrix.api.types import Surface
from trtmatrix.common.errors import ConfigError
from trtmatrix.launchers.launcher import Ended, Poll, Ready

SURFACES = read_store()


def get(version: str) -> Surface:
    found = find_surface(version)
    assert found is not None, version
    return found


def test_a_store_gives_back_what_was_put_in() -> None:
    """As the package has it, whatever the order."""
    text, surfaces = STORE.read_text(encoding="utf-8"), [*SURFACES.values()]
    assert format_store(reversed(surfaces)) == text
    assert list(parse_store(text).values()) == surfaces


def test_the_package_has_every_release_that_was_named_and_says_whence() -> None:
    wanted = ("8.5.3.1", "8.6.0", "8.6.1", "10.0.1", "10.7.0", "10.8.0", "10.16.1", "11.0.0", "11.4.0.106")
    assert all(find_surface(version) for version in wanted)
    assert len(SURFACES) >= 28
    for surface in map(get, SURFACES):
        origin, names = surface.origin, {*surface.classes, *surface.names}
        found = (origin.wheel[-4:], len(origin.sha256), origin.python, len(origin.extracted))
        assert found == (".whl", 64, "3.10", 10)
        assert not [name for name in names if name.startswith("_")]
        assert not {"attr", "value", "common_enter", "ctypes", "os"} & names, "of the package's own start"
    text = STORE.read_text(encoding="utf-8")
    assert not [word for word in ("0x", "tensorrt_bindings.tensorrt") if word in text]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("10.0.1.6", "10.0.1"), ("10.8.0", "10.8.0.43"), ("8.6.1", "8.6.1"), ("8.6.1.6", "8.6.1"),
        ("10.7.0.23", "10.7.0"), ("10.14.1", "10.14.1.48.post1"), ("10.13.3", "10.13.3.9"),
        ("10.0", None), ("11", None), ("9.3.0", None), ("10.8.0.40", None), ("tensorrt-rtx-1.4", None),
    ],
)  # fmt: skip
def test_a_column_finds_its_surface(asked: str, found: str | None) -> None:
    surface = find_surface(asked)
    assert (surface.version if surface else None) == found


class Leaving(Playing):
    """A probe that leaves a surface, whole or not, where it is asked for one."""

    def __init__(self, left: str) -> None:
        super().__init__(always(RIGHT))
        self.left = left

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        ended = super().run(ready, folder, poll)
        if self.starts[-1]["surface"]:
            (folder / "out" / "surface.json").write_text(self.left)
        return ended


WHOLE = (
    '{"schema": 1, "version": "9.3.0.post12", "origin": {"python": "3.10"}, "names": {}, '
    '"classes": {"A": {"bases": ["B"]}}}'
)


def test_a_surface_that_nobody_has_is_asked_for_once_and_kept(tmp_path: Path) -> None:
    asked = []
    for version in ("9.3.0", "9.3.0", "10.7.0", "onnxruntime-1.31.1"):
        launcher = Leaving(WHOLE)
        done = perform(tmp_path, launcher, cells_of("a", "b", versions=[version]), confirm=False)
        assert {record.ended for record in done.records} == {"ran"}
        asked.append(launcher.starts[0]["surface"])
    assert asked == ["tensorrt", "", "", ""]
    kept = find_surface("9.3.0", read_surfaces(tmp_path))
    assert kept is not None
    assert kept.classes["A"].bases == ("B",)
    assert (kept.origin.image, kept.origin.python, len(kept.origin.extracted)) == ("i", "3.10", 10)


def test_a_surface_that_cannot_be_used_is_told_of_and_the_cells_stand(tmp_path: Path) -> None:
    done = perform(tmp_path, Leaving(WHOLE[:-3]), cells_of("a", versions=["9.3.0"]), confirm=False)
    assert [record.ended for record in done.records] == ["ran"]
    folder = tmp_path / "local" / "surfaces"
    assert not folder.exists()
    folder.mkdir()
    (folder / "9.3.0.json").write_text(WHOLE[:-3])
    with pytest.raises(ConfigError, match=r"9\.3\.0\.json: (?s:.*)\n  remove the file"):
        read_surfaces(tmp_path)
