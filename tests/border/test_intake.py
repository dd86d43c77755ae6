"""Whoever has the one connection to the host: names, sizes and numbers of files are the host's to allow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trtmatrix.common.border import RECORD
from trtmatrix.common.errors import MachineryError
from trtmatrix.run import worker
from trtmatrix.run.worker import Intake
from trtprobe.channel import connect

RIGHT = {"0.record.json", "0/a b é.npy"}
MOST = 1 << 20
NAMES = (
    "../0.record.json", "/etc/trtmatrix-was-here", "0/../../x.npy", "../job/end.npy", "0/.hidden.npy", "0/x",
    "x.json", "0.cell.json", "0.record.json\n", "0.record.json/x.npy", "0/a\x1bb.npy", "0/a\0.npy", "0/.npy",
    "0/" + "é" * 130 + ".npy", "0/a\n.npy",
    "0/\ud800.npy", "0//x.npy", "0/x/y.npy", f"0/{'n' * 300}.npy", "1234567890.record.json", "surface.json/x",
    "owner", "",
)  # fmt: skip


class Here:
    """A job's folder with the host's end, and a stranger at the other."""

    def __init__(self, folder: Path) -> None:
        for part in ("job", "out", "work"):
            (folder / part).mkdir()
        self.folder, self.intake = folder, Intake(folder, MOST)
        self.stranger = connect(folder / "job")
        self.before = {*folder.rglob("*")}

    def send(self, name: str, size: int = 2) -> None:
        self.stranger.hand({"file": name}, lambda stream: stream.truncate(size))
        self.intake.take()

    def left(self) -> set[str]:
        """What the host has written, by path below ``out``; all else is as it was."""
        files = {path for path in self.folder.rglob("*") if path.is_file()} - self.before
        return {os.path.relpath(path, self.folder / "out") for path in files}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    place = Here(tmp_path)
    yield place
    place.intake.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_none_of_ours_writes_nothing(name: str, here: Here) -> None:
    here.send(name)
    assert here.left() == set()
    for right in sorted(RIGHT):
        here.send(right)
    assert here.left() == RIGHT


def test_what_is_no_sealed_memory_is_not_read(here: Here) -> None:
    """A pipe would block who reads it, a file of the disk or open memory may change meanwhile."""
    pipe, _ = os.pipe()
    disk = os.open(here.folder / "work" / "x", os.O_RDWR | os.O_CREAT)
    here.before.add(here.folder / "work" / "x")
    for file in (pipe, disk, os.memfd_create("open"), os.open("/dev/zero", os.O_RDONLY)):
        here.stranger.send({"file": "0.record.json"}, file)
    here.stranger.send({"file": "0.record.json"})
    here.intake.take()
    assert here.left() == set()


def test_words_that_are_none_are_passed_over(here: Here) -> None:
    for words in (b"{", b"[" * 50_000, b"7", b"\xff", b'{"file": 7}'):
        here.stranger.connection.send(words)
    here.send("0.record.json")
    assert here.left() == {"0.record.json"}


def test_a_file_may_have_so_many_bytes_and_no_more(here: Here) -> None:
    here.send("0.record.json", RECORD + 1)
    here.send("0/y.npy", MOST + RECORD + 1)
    assert here.left() == set()


def test_all_outputs_of_a_cell_count_together(here: Here) -> None:
    for name in "abc":
        here.send(f"0/{name}.npy", (MOST + RECORD) // 2)
    assert here.left() == {"0/a.npy", "0/b.npy"}


def test_a_cell_has_so_many_files(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MOST", 5)
    for number in range(9):
        here.send(f"0/{number}.npy")
    assert len(here.left()) == 5


def test_what_this_host_cannot_write_is_its_trouble(here: Here) -> None:
    (here.folder / "out").rmdir()
    with pytest.raises(MachineryError, match="cannot be written"):
        here.send("0/y.npy")


def test_nobody_is_let_in_after_the_first(here: Here) -> None:
    here.intake.take()
    with pytest.raises(OSError, match=r"Connection refused|No such file"):
        connect(here.folder / "job")
