"""What takes long to find out is remembered by content: never stale, never believed where it is damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trtmatrix.common.paths import KEPT
from trtmatrix.common.paths import recall as recall_value


class Counting:
    """Computes, and counts how often it was asked to."""

    def __init__(self, **value: str) -> None:
        self.value, self.calls = value, 0

    def __call__(self) -> dict[str, str]:
        self.calls += 1
        return self.value


def recall(cache: Path, compute: Counting, kind: str = "k", content: str = "c") -> dict[str, str]:
    return recall_value(cache, kind, content, compute)


def only_file(cache: Path) -> Path:
    (file,) = (cache / "known").iterdir()
    return file


def test_what_is_known_is_not_computed_again(tmp_path: Path) -> None:
    compute = Counting(tensorrt="10.7.0")
    assert [recall(tmp_path, compute) for _ in range(3)] == [{"tensorrt": "10.7.0"}] * 3
    assert compute.calls == 1


@pytest.mark.parametrize("other", [{"kind": "l"}, {"content": "d"}])
def test_another_kind_or_content_is_computed(other: dict[str, str], tmp_path: Path) -> None:
    recall(tmp_path, Counting(a="old"))
    assert recall(tmp_path, Counting(a="new"), **other) == {"a": "new"}


@pytest.mark.parametrize("damage", [b'{"content": "c"', b"[]", b'{"content": "d", "value": "planted"}'])
def test_a_damaged_file_is_computed_and_written_anew(damage: bytes, tmp_path: Path) -> None:
    recall(tmp_path, Counting(a="old"))
    only_file(tmp_path).write_bytes(damage)
    compute = Counting(a="new")
    assert [recall(tmp_path, compute), recall(tmp_path, compute)] == [{"a": "new"}] * 2
    assert compute.calls == 1


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_text("a file where the folder would be")
    assert recall(cache, Counting(a="b")) == {"a": "b"}


def test_the_oldest_files_go(tmp_path: Path) -> None:
    for number in range(KEPT + 5):
        recall(tmp_path, Counting(), content=str(number))
        for file in (tmp_path / "known").iterdir():  # the clock of a file system may be coarse
            status = file.stat()
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns - 10**9))
    newest, oldest = Counting(), Counting()
    recall(tmp_path, newest, content=str(KEPT + 4))
    recall(tmp_path, oldest, content="0")
    assert (newest.calls, oldest.calls) == (0, 1)
    assert len(list((tmp_path / "known").iterdir())) == KEPT
