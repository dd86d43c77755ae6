"""What nobody needs any more goes from the shared folder; what somebody uses stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from slurmtries import make_manifest

from trtmatrix.effects.shared_clients import Client
from trtmatrix.effects.shared_folder import SharedFolder

DAY = 86400.0


@pytest.fixture
def shared(tmp_path: Path) -> SharedFolder:
    """A folder with an old array that is over, one that is new, one that is open, and what they use."""
    folder = SharedFolder(tmp_path)
    for key, suite in (("old", "s-old"), ("new", "s-new"), ("open", "s-open")):
        folder.add_array(make_manifest(key, suite=suite), "")
        (tmp_path / "suite" / suite).mkdir(parents=True)
        age(tmp_path / "suite" / suite, 30)
        if key != "open":
            folder.close_array(key, "done")
    for case in ("files-0", "unused"):
        (tmp_path / "cases" / case).mkdir(parents=True)
        age(tmp_path / "cases" / case, 30)
    age(folder.array("old") / "over", 30)
    return folder


def age(path: Path, days: float) -> None:
    moment = time.time() - days * DAY
    os.utime(path, (moment, moment))


def test_what_is_over_and_old_goes_with_what_nobody_else_uses(shared: SharedFolder) -> None:
    assert shared.clean(7) == ["arrays/old", "suite/s-old", "cases/unused"]
    assert sorted(path.name for path in (shared.root / "arrays").iterdir()) == ["new", "open"]
    assert sorted(path.name for path in (shared.root / "suite").iterdir()) == ["s-new", "s-open"]
    assert [path.name for path in (shared.root / "cases").iterdir()] == ["files-0"]
    assert shared.clean(7) == []


def test_what_a_client_follows_stays_however_old(shared: SharedFolder) -> None:
    with Client(shared) as client:
        client.follow(["old"])
        assert "arrays/old" not in shared.clean(7)
    assert "arrays/old" in shared.clean(7)


def test_what_is_staged_again_is_young_again(shared: SharedFolder, tmp_path: Path) -> None:
    case = tmp_path / "source" / "unused"
    case.mkdir(parents=True)
    shared.stage_case(case)
    assert "cases/unused" not in shared.clean(7)


def test_what_is_not_whole_goes_once_it_is_nobodys_any_more(shared: SharedFolder) -> None:
    for name, days in (
        ("cases/.partial-1", 3), ("arrays/.partial-2", 3), ("clients/.partial-4", 3), ("cases/.partial-3", 1),
    ):  # fmt: skip
        (shared.root / name / "x").mkdir(parents=True)
        age(shared.root / name, days)
    assert {"cases/.partial-1", "arrays/.partial-2", "clients/.partial-4"} <= set(shared.clean(99))
    assert (shared.root / "cases" / ".partial-3").is_dir()


def test_where_a_newer_trtmatrix_works_its_files_stay(shared: SharedFolder) -> None:
    (shared.array("open") / "manifest.json").write_text('{"layout": 2}')
    assert shared.clean(7) == ["arrays/old"]
