"""What an image ships is compared with its pin before a cell is started; and who is recorded of then."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import H200, make_version
from playing import Playing, always
from sidebyside import cells_of, perform

from trtmatrix.launchers.containers import find_wrong_library
from trtmatrix.launchers.launcher import Ready, WrongVersion
from trtmatrix.suite.model import Cause
from trtmatrix.suite.plan import Launch


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ({"tensorrt": "10.7.0"}, None),
        ({"tensorrt": "10.8.0.43"}, "pinned for 10.7.0.23, the image or wheel ships 10.8.0.43"),
        ({"torch": "2.6.0"}, None),
        ({}, None),
    ],
)
def test_what_an_image_ships_is_compared_and_remembered(
    found: dict[str, str], wrong: str | None, tmp_path: Path
) -> None:
    asked, told = list[str](), list[str]()

    def read(image_id: str) -> dict[str, str]:
        asked.append(image_id)
        return found

    version = make_version("10.7.0", library="10.7.0.23")
    for _ in range(2):
        seen = find_wrong_library(version, "sha256:1", tmp_path, told.append, read)
        assert seen == wrong
    assert asked == ["sha256:1"]
    assert bool(told) is ("tensorrt" not in found)


class Wrong(Playing):
    """The image of 10.7.0 has 10.8.0 in it, which another version is pinned for."""

    def make_ready(self, launch: Launch) -> Ready:
        if launch.version.name == "10.7.0":
            raise WrongVersion("pinned for 10.7.0, the image or wheel ships 10.8.0", {"image": "sha256:1"})
        return super().make_ready(launch)


@pytest.mark.parametrize("pull", [False, True])
def test_no_cell_of_it_is_started_and_each_is_a_version_mismatch(pull: bool, tmp_path: Path) -> None:
    launcher = Wrong(always(0.0))
    cells = cells_of("a", "b", versions=("10.7.0", "10.8.0"))
    done = perform(tmp_path, launcher, cells, H200, pull=pull)
    wrong = [record for record in done.records if record.cell.version == "10.7.0"]
    assert {record.ended for record in wrong} == {Cause.VERSION_MISMATCH.value}
    assert len(wrong) == 2
    assert wrong[0].detail == "pinned for 10.7.0, the image or wheel ships 10.8.0"
    assert wrong[0].digests["image"] == "sha256:1"
    assert len(done.records) == 4, "the other version ran"
    assert done.not_ready == []
