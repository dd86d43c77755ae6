"""The host asks for a surface that nobody has, once, and keeps it; nothing of that touches a cell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import make_version
from playing import RIGHT, Playing, always
from sidebyside import cells_of, perform

from trtmatrix.core.api import ApiClass, Origin, Surface
from trtmatrix.core.surfacefile import format_surface
from trtmatrix.effects.launcher import Ended, Poll, Ready
from trtmatrix.effects.surface_intake import LEFT, SurfaceIntake
from trtmatrix.effects.surfaces import read_surfaces
from trtprobe import surfacing

UNKNOWN = Surface(
    version="9.3.0.post12.dev1", origin=Origin(python="3.10"), classes={"Builder": ApiClass()}, names={}
)
WHOLE = json.dumps(format_surface(UNKNOWN))


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
    cells = cells_of("a", "b", versions=[version])
    done = perform(folder, launcher, cells, surfaces=intake, confirm=False)
    assert [record.ended for record in done.records] == ["ran", "ran"]
    return notes


def test_the_file_s_name_is_the_probe_s() -> None:
    assert surfacing.FILE == LEFT


def test_a_surface_that_nobody_has_is_asked_for_once_and_kept(tmp_path: Path) -> None:
    first, second = Leaving(WHOLE), Leaving(WHOLE)
    (note,) = run(tmp_path / "1", first, "9.3.0")
    assert "9.3.0" in note
    assert first.starts[0]["surface"] == "tensorrt"
    kept = read_surfaces(tmp_path / "1" / "results").of("9.3.0")
    assert kept is not None
    assert (kept.version, kept.classes) == (UNKNOWN.version, UNKNOWN.classes)
    assert (kept.origin.image, kept.origin.python, len(kept.origin.extracted)) == ("i", "3.10", 10)
    (tmp_path / "2").mkdir()
    (tmp_path / "1" / "results").rename(tmp_path / "2" / "results")
    assert run(tmp_path / "2", second, "9.3.0") == []
    assert "surface" not in second.starts[0]


def test_what_is_packaged_is_not_asked_for(tmp_path: Path) -> None:
    launcher = Leaving(WHOLE)
    assert run(tmp_path, launcher, "10.7.0") == []
    assert all("surface" not in start for start in launcher.starts)


@pytest.mark.parametrize("left", ["", "{}", "[1", '{"schema": 99}', WHOLE[:-3]])
def test_a_surface_that_cannot_be_used_is_told_of_and_the_cells_stand(tmp_path: Path, left: str) -> None:
    (note,) = run(tmp_path, Leaving(left), "9.3.0")
    assert "could not be kept" in note
    assert read_surfaces(tmp_path / "results").of("9.3.0") is None


def test_where_nothing_can_be_written_the_cells_stand(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "local").write_text("in the way")
    (note,) = run(tmp_path, Leaving(WHOLE), "9.3.0")
    assert "could not be kept" in note


def test_other_products_are_not_asked(tmp_path: Path) -> None:
    intake = SurfaceIntake(tmp_path, print)
    assert intake.wanted(make_version("9.3.0")) == {"surface": "tensorrt"}
    assert intake.wanted(make_version("onnxruntime-1.31.1")) == {}
