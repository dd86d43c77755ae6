"""Surfaces: kept whole in the package, found by version, read again, and taken from inside images."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench.surfaces import format_store
from builders import make_version
from playing import RIGHT, Playing, always, cells_of, perform

from trtmatrix.api.section import LEFT, STORE, SurfaceIntake, find_surface, read_surfaces
from trtmatrix.api.surface import format_surface, parse_store, parse_surface
from trtmatrix.api.types import ApiClass, Member, MemberKind, Origin, Surface
from trtmatrix.common.errors import ConfigError
from trtmatrix.launchers.launcher import Ended, Poll, Ready
from trtprobe import surface as probe_surface

SURFACES = read_surfaces(Path("nowhere"))


def get(version: str) -> Surface:
    found = find_surface(SURFACES, version)
    assert found is not None, version
    return found


def as_json(surface: Surface) -> str:
    return json.dumps(format_surface(surface))


UNKNOWN = Surface(
    version="9.3.0.post12", origin=Origin(python="3.10"), classes={"A": ApiClass(bases=("B",))}, names={}
)
WHOLE = as_json(UNKNOWN)


def test_a_store_gives_back_what_was_put_in() -> None:
    """As the package has it, whatever the order; and so does a file of one surface, with odd texts."""
    text, surfaces = STORE.read_text(encoding="utf-8"), [*SURFACES.values()]
    assert format_store(reversed(surfaces)) == text
    assert list(parse_store(text).values()) == surfaces
    odd = Member(
        kind=MemberKind.METHOD, signatures=('(a: str = "é,)") -> None',), deprecated="√", settable=True
    )
    for surface in (*surfaces[::9], replace(UNKNOWN, names={"f": odd})):
        assert parse_surface(as_json(surface)) == surface


def test_the_package_has_every_release_that_was_named_and_says_whence() -> None:
    wanted = ("8.5.3.1", "8.6.0", "8.6.1", "10.0.1", "10.7.0", "10.8.0", "10.16.1", "11.0.0", "11.4.0.106")
    assert all(find_surface(SURFACES, version) for version in wanted)
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
    surface = find_surface(SURFACES, asked)
    assert (surface.version if surface else None) == found


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": 7}', WHOLE.replace('"A": {', '"A": 3, "B": {'),
     WHOLE.replace('"A": {', '"A": {"members": {"f": {"kind": "what"}}, ')],
)  # fmt: skip
def test_a_file_that_is_no_surface_is_told_of(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "local" / "surfaces"
    folder.mkdir(parents=True)
    (folder / "9.3.0.json").write_text(text)
    with pytest.raises(ConfigError, match=r"9\.3\.0\.json:1: (?s:.*)\n  remove the file"):
        read_surfaces(tmp_path)


# Read inside images


class Leaving(Playing):
    """A probe that leaves a surface, whole or not, where it is asked for one."""

    def __init__(self, left: str) -> None:
        super().__init__(always(RIGHT))
        self.left = left

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        ended = super().run(ready, folder, poll)
        if self.starts[-1].get("surface"):
            (folder / "out" / LEFT).write_text(self.left)
        return ended


def run(folder: Path, launcher: Leaving, version: str) -> list[str]:
    """Run two cells of a version; returns what was noted."""
    notes: list[str] = []
    intake = SurfaceIntake(folder / "results", notes.append)
    done = perform(folder, launcher, cells_of("a", "b", versions=[version]), surfaces=intake, confirm=False)
    assert [record.ended for record in done.records] == ["ran", "ran"]
    return notes


def test_a_surface_that_nobody_has_is_asked_for_once_and_kept(tmp_path: Path) -> None:
    assert probe_surface.FILE == LEFT
    first, second, packaged = Leaving(WHOLE), Leaving(WHOLE), Leaving(WHOLE)
    (note,) = run(tmp_path / "1", first, "9.3.0")
    assert "9.3.0" in note
    assert first.starts[0]["surface"] == "tensorrt"
    kept = find_surface(read_surfaces(tmp_path / "1" / "results"), "9.3.0")
    assert kept is not None
    assert (kept.version, kept.classes) == (UNKNOWN.version, UNKNOWN.classes)
    assert (kept.origin.image, kept.origin.python, len(kept.origin.extracted)) == ("i", "3.10", 10)
    (tmp_path / "2").mkdir()
    (tmp_path / "1" / "results").rename(tmp_path / "2" / "results")
    assert run(tmp_path / "2", second, "9.3.0") == run(tmp_path / "3", packaged, "10.7.0") == []
    assert not [start for start in (*second.starts, *packaged.starts) if "surface" in start]
    asked = SurfaceIntake(tmp_path, print)
    assert asked.wanted(make_version("9.3.0")) == {"surface": "tensorrt"}
    assert asked.wanted(make_version("onnxruntime-1.31.1")) == {}


@pytest.mark.parametrize("left", ['{"schema": 99}', WHOLE[:-3], "in the way"])
def test_a_surface_that_cannot_be_used_or_kept_is_told_of_and_the_cells_stand(
    tmp_path: Path, left: str
) -> None:
    if left == "in the way":
        (tmp_path / "results").mkdir()
        (tmp_path / "results" / "local").write_text(left)
    (note,) = run(tmp_path, Leaving(WHOLE if left == "in the way" else left), "9.3.0")
    assert "could not be kept" in note
    assert find_surface(read_surfaces(tmp_path / "results"), "9.3.0") is None
