"""What containers get is copied to the shared folder once and whole; what they have mounted stays."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from trtmatrix.core.errors import MachineryError
from trtmatrix.effects.shared_folder import SharedFolder


@pytest.fixture
def shared(tmp_path: Path) -> SharedFolder:
    root = tmp_path / "shared"
    root.mkdir()
    return SharedFolder(root)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        file = folder / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_a_suite_is_copied_once_and_can_be_read_by_all(shared: SharedFolder, tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        probe = write(tmp_path / "p", a_dot_py="1", __pycache____a_dot_pyc="x")
        write(probe, __pycache____b="x")
        repros = write(tmp_path / "r", b_dot_py="2")
        folder = shared.stage_suite(probe, repros, "d1")
    finally:
        os.umask(old)
    assert folder == shared.root / "suite" / "d1"
    assert "repros/b.py" in names(folder)
    assert "trtprobe/a.py" in names(folder)
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o755 if path.is_dir() else 0o644)
    before = folder.stat().st_ino
    shared.stage_suite(probe, repros, "d1")
    assert folder.stat().st_ino == before


def test_a_case_is_copied_once_by_whoever_comes_first(shared: SharedFolder, tmp_path: Path) -> None:
    case = write(tmp_path / "case1", case_dot_json="{}", inputs__x_dot_npy="123")
    first = shared.stage_case(case)
    inode = first.stat().st_ino
    assert SharedFolder(shared.root).stage_case(case) == first == shared.root / "cases" / "case1"
    assert first.stat().st_ino == inode
    assert names(shared.root / "cases") == ["case1/case.json", "case1/inputs/x.npy"]


def test_a_case_of_which_a_site_removed_files_is_made_anew(shared: SharedFolder, tmp_path: Path) -> None:
    case = write(tmp_path / "case1", case_dot_json="{}", inputs__x_dot_npy="123")
    staged = shared.stage_case(case)
    (staged / "inputs" / "x.npy").unlink()
    shared.stage_case(case)
    assert (staged / "inputs" / "x.npy").read_text() == "123"
    (staged / "case.json").write_text("")  # cut short
    shared.stage_case(case)
    assert (staged / "case.json").read_text() == "{}"
    assert [path.name for path in (shared.root / "cases").iterdir()] == ["case1"]


def test_what_cases_share_is_copied_once(shared: SharedFolder, tmp_path: Path) -> None:
    first = write(tmp_path / "case1", x_dot_npy="123")
    second = write(tmp_path / "case2", y="4")
    os.link(first / "x.npy", second / "x.npy")
    SharedFolder(shared.root).stage_case(first)  # another client did
    staged = [shared.stage_case(case) / "x.npy" for case in (first, second)]
    assert staged[0].stat().st_ino == staged[1].stat().st_ino
    assert staged[0].stat().st_ino != (first / "x.npy").stat().st_ino


def test_what_jobs_have_mounted_stays_whatever_else_lies_beside_the_code(
    shared: SharedFolder, tmp_path: Path
) -> None:
    probe, repros = write(tmp_path / "p", a_dot_py="1"), write(tmp_path / "r", b_dot_py="2", c_dot_py="3")
    folder = shared.stage_suite(probe, repros, "d1")
    mounted = os.open(folder, os.O_RDONLY)
    try:
        write(repros, b_dot_py="2  # a remark", notes_dot_txt="mine", _dot_b_dot_py_dot_swp="an editor's")
        SharedFolder(shared.root).stage_suite(probe, repros, "d1")
        assert sorted(os.listdir(mounted)) == ["repros", "trtprobe"]  # noqa: PTH208 - of a descriptor
    finally:
        os.close(mounted)
    (repros / "notes.txt").unlink()
    (folder / "repros" / "c.py").unlink()  # a site's cleaner
    (repros / "b.py").write_text("22")
    SharedFolder(shared.root).stage_suite(probe, repros, "d1")
    assert names(folder) == ["repros/b.py", "repros/c.py", "repros/notes.txt", "trtprobe/a.py"]
    assert (folder / "repros" / "c.py").read_text() == "3"
    assert [path.name for path in folder.parent.iterdir()] == ["d1"]


def test_of_two_checkouts_that_differ_in_comments_the_first_ones_files_stay(
    shared: SharedFolder, tmp_path: Path
) -> None:
    probe = write(tmp_path / "p", a_dot_py="1")
    checkouts = [
        write(tmp_path / "r1", b_dot_py="# one\n2"),
        write(tmp_path / "r2", b_dot_py="# the other\n2"),
    ]
    for first, second in (checkouts, reversed(checkouts)):
        folder = shared.stage_suite(probe, first, first.name)
        SharedFolder(shared.root).stage_suite(probe, second, first.name)
        assert (folder / "repros" / "b.py").read_text() == (first / "b.py").read_text()


def test_hidden_files_of_a_case_are_a_part_of_it(shared: SharedFolder, tmp_path: Path) -> None:
    staged = shared.stage_case(write(tmp_path / "case1", inputs___dot_x_dot_npy="123"))
    assert names(staged) == ["inputs/.x.npy"]


def test_a_full_disk_is_told_and_leaves_nothing(
    shared: SharedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    case = write(tmp_path / "case1", x_dot_npy="123")
    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(MachineryError, match=r"No space left.*make room"):
        shared.stage_case(case)
    assert names(shared.root) == []
    assert list((shared.root / "cases").iterdir()) == []


def test_of_two_that_stage_a_case_at_once_the_first_ones_copy_stays(
    shared: SharedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = write(tmp_path / "case1", case_dot_json="{}", inputs__x_dot_npy="123")
    real, late, first = shutil.copyfile, [True], list[int]()

    def copy(*words: Any, **more: Any) -> Any:
        if late:
            late.clear()
            first.append(SharedFolder(shared.root).stage_case(case).stat().st_ino)
        return real(*words, **more)

    monkeypatch.setattr("shutil.copyfile", copy)
    staged = shared.stage_case(case)
    assert names(staged) == ["case.json", "inputs/x.npy"]
    assert first == [staged.stat().st_ino]
    assert [path.name for path in staged.parent.iterdir()] == ["case1"]


def test_what_another_copied_first_is_linked_to(
    shared: SharedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = write(tmp_path / "case1", x_dot_npy="123")
    second = write(tmp_path / "case2", y="4")
    os.link(case / "x.npy", second / "x.npy")
    real, late = shutil.copyfile, [True]

    def copy(*words: Any, **more: Any) -> Any:
        if late:
            late.clear()
            SharedFolder(shared.root).stage_case(case)
        return real(*words, **more)

    monkeypatch.setattr("shutil.copyfile", copy)
    staged = [shared.stage_case(each) / "x.npy" for each in (case, second)]
    assert staged[0].stat().st_ino == staged[1].stat().st_ino


def test_what_is_cut_off_under_both_its_names_is_copied_anew(shared: SharedFolder, tmp_path: Path) -> None:
    first, second = write(tmp_path / "case1", x_dot_npy="123"), write(tmp_path / "case2", y="4")
    os.link(first / "x.npy", second / "x.npy")
    staged = [shared.stage_case(case) / "x.npy" for case in (first, second)]
    staged[0].write_text("12")
    for case in (first, second):
        shared.stage_case(case)
    assert [file.read_text() for file in staged] == ["123", "123"]
    assert staged[0].stat().st_ino == staged[1].stat().st_ino
    assert names(shared.root / "cases") == ["case1/x.npy", "case2/x.npy", "case2/y"]
