"""What takes long to find out is remembered by content: never stale, never believed where it is damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trtmatrix.common.paths import KEPT, recall


class Counting:
    """Computes, and counts how often it was asked to."""

    def __init__(self, value: str = "") -> None:
        self.value, self.calls = value, 0

    def __call__(self) -> str:
        self.calls += 1
        return self.value


def test_what_is_known_is_not_computed_again_and_another_kind_or_content_is(tmp_path: Path) -> None:
    compute = Counting("old")
    assert [recall(tmp_path, "k", "c", compute) for _ in range(3)] == ["old"] * 3
    assert compute.calls == 1
    for kind, content in (("l", "c"), ("k", "d")):
        assert recall(tmp_path, kind, content, Counting("new")) == "new"


@pytest.mark.parametrize("damage", [b'{"content": "c"', b"[]", b'{"content": "d", "value": "planted"}'])
def test_a_damaged_file_is_computed_and_written_anew(damage: bytes, tmp_path: Path) -> None:
    recall(tmp_path, "k", "c", Counting("old"))
    (file,) = (tmp_path / "known").iterdir()
    file.write_bytes(damage)
    compute = Counting("new")
    assert [recall(tmp_path, "k", "c", compute) for _ in range(2)] == ["new"] * 2
    assert compute.calls == 1


def test_the_oldest_files_go(tmp_path: Path) -> None:
    for number in range(KEPT + 5):
        recall(tmp_path, "k", str(number), Counting())
        for file in (tmp_path / "known").iterdir():  # the clock of a file system may be coarse
            status = file.stat()
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns - 10**9))
    newest, oldest = Counting(), Counting()
    recall(tmp_path, "k", str(KEPT + 4), newest)
    recall(tmp_path, "k", "0", oldest)
    assert (newest.calls, oldest.calls) == (0, 1)
    assert len(list((tmp_path / "known").iterdir())) == KEPT
