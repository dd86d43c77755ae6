"""Archives that may come from anyone: what could harm is refused, what was changed is named."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from trtmatrix.common import archive
from trtmatrix.common.archive import SUMS, Bounds, ChangedError, read_archive, write_archive
from trtmatrix.common.errors import ExitCode, UsageError

FILES = {
    "model.onnx": b"\0graph",
    "ISSUE.md": b"text\n",
    "others/a.onnx": b"\0other",
    "reproduce.sh": b"#!/bin/sh\n",
}


def good(folder: Path) -> Path:
    """An archive as ``bundle make`` writes it."""
    return write_archive(folder / "a.tar.gz", FILES).file


Member = tuple[str, bytes, dict[str, object]]


def made(folder: Path, *members: Member, whole: bool = True) -> Path:
    """An archive of these members, with a list of digests that is right where they are files."""
    sums = "".join(f"{sha256(data).hexdigest()}  {name[2:]}\n" for name, data, _ in members)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data, facts in (*members, ("a/" + SUMS, sums.encode(), {})) if whole else members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in facts.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
    file = folder / "made.tar.gz"
    file.write_bytes(gzip.compress(out.getvalue(), mtime=0))
    return file


def test_what_was_written_is_unpacked(tmp_path: Path) -> None:
    top = read_archive(good(tmp_path), tmp_path / "new" / "out")
    assert top == tmp_path / "new" / "out" / "a"
    found = {p.relative_to(top).as_posix(): p.read_bytes() for p in top.rglob("*") if p.is_file()}
    assert {name: data for name, data in found.items() if name != SUMS} == FILES
    assert oct((top / "reproduce.sh").stat().st_mode)[-3:] == "755"
    assert oct((top / "ISSUE.md").stat().st_mode)[-3:] == "644"


SPARSE = {"GNU.sparse.map": "0,1", "GNU.sparse.size": "999999999999"}
FINE: Member = ("a/x", b"x", {})
HOSTILE: dict[str, tuple[list[Member], str]] = {
    "absolute": ([FINE, ("/a/x2", b"", {})], "not relative"),
    "up": ([FINE, ("a/../../x", b"", {})], "not relative and plain"),
    "backslash": ([FINE, ("a/..\\x", b"", {})], "not relative and plain"),
    "drive": ([("C:x/y", b"", {})], "not relative and plain"),
    "newline": ([FINE, ("a/y\nz", b"", {})], "not relative and plain"),
    "symlink": ([("a/l", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc"})], "neither file nor folder"),
    "fifo": ([("a/f", b"", {"type": tarfile.FIFOTYPE})], "neither file nor folder"),
    "sparse": ([("a/s", b"", {"pax_headers": SPARSE})], "neither file nor folder"),
    "twice": ([FINE, FINE], "in it twice"),
    "file and folder": ([FINE, ("a/x/y", b"", {})], "cannot be unpacked"),
    "no folder": ([("x", b"", {})], "no folder with files"),
    "long": ([FINE, ("a/" + "y" * 300, b"", {})], "too long"),
    "nothing": ([], "no folder with files"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_could_harm_is_refused_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    members, said = HOSTILE[name]
    file = made(tmp_path, *members, whole=False)
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        read_archive(file, tmp_path / "out")
    assert str(file) in str(caught.value)
    assert list((tmp_path / "out").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made.tar.gz", "out"]


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="unpacks to more than 5,000,000 bytes"):
        read_archive(
            made(tmp_path, ("a/zeros", bytes(6_000_000), {})), tmp_path / "out", Bounds(size=5_000_000)
        )
    monkeypatch.setattr(archive, "HEADER", 100_000)
    with pytest.raises(UsageError, match="notes on a file"):
        read_archive(made(tmp_path, ("a/x", b"", {"pax_headers": {"k": "v" * 200_000}})), tmp_path / "out")
    with pytest.raises(UsageError, match="more than 5 files"):
        read_archive(
            made(tmp_path, *((f"a/{i}", b"", {}) for i in range(9))), tmp_path / "out", Bounds(files=5)
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"", b"no archive", gzip.compress(b"no tar", mtime=0)])
def test_what_is_no_archive_is_said(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(UsageError, match="no archive of bundle make"):
        read_archive(tmp_path / "a.tar.gz", tmp_path / "out")


def test_where_to_and_what_from_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not there"):
        read_archive(tmp_path / "gone.tar.gz", tmp_path / "out")
    file = good(tmp_path)
    with pytest.raises(UsageError, match="into an empty folder"):
        read_archive(file, tmp_path)
    assert file.exists()


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "one byte": (lambda top: (top / "model.onnx").write_bytes(b"\1graph"), "model.onnx differs: sha256 "),
    "gone": (lambda top: (top / "others/a.onnx").unlink(), "others/a.onnx is missing"),
    "no list": (lambda top: (top / SUMS).unlink(), f"{SUMS} is missing"),
    "no text": (lambda top: (top / SUMS).write_bytes(b"\xff\xfe"), SUMS),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_is_named(name: str, tmp_path: Path) -> None:
    change, said = CHANGES[name]
    top = read_archive(good(tmp_path), tmp_path / "first")
    change(top)
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as archive:
        archive.add(top, "a")
    with pytest.raises(ChangedError) as caught:
        read_archive(tmp_path / "b.tar.gz", tmp_path / "out")
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(said)
    assert caught.value.exit_code is ExitCode.SURPRISE
    assert not (tmp_path / "out").exists()
