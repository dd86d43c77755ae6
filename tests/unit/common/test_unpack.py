"""Archives that may come from anyone: what could harm is refused."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from pathlib import Path

import pytest

from trtmatrix.common.archive import SUMS, Bounds, read_archive, write_archive
from trtmatrix.common.errors import UsageError

FILES = {
    "model.onnx": b"\0graph", "ISSUE.md": b"text\n", "others/a.onnx": b"\0other",
    "reproduce.sh": b"#!/bin/sh\n",
}  # fmt: skip


Member = tuple[str, bytes, dict[str, object]]


def made(folder: Path, *members: Member) -> Path:
    """An archive of these members, without a list of digests."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data, facts in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in facts.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
    file = folder / "made.tar.gz"
    file.write_bytes(gzip.compress(out.getvalue(), mtime=0))
    return file


def test_what_was_written_is_unpacked(tmp_path: Path) -> None:
    file = write_archive(tmp_path / "a.tar.gz", FILES).file
    top = read_archive(file, tmp_path / "new" / "out")
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
    "many": ([(f"a/{i}", b"", {}) for i in range(9)], "more than 5 files"),
    "zeros": ([("a/zeros", bytes(6_000_000), {})], "unpacks to more than 5,000,000 bytes"),
    "much said": ([("a/x", b"", {"pax_headers": {"k": "v" * 20_000_000}})], "notes on a file"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_could_harm_is_refused_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    members, said = HOSTILE[name]
    file = made(tmp_path, *members)
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        read_archive(file, tmp_path / "out", Bounds(size=5_000_000, files=5))
    assert str(file) in str(caught.value)
    assert list((tmp_path / "out").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made.tar.gz", "out"]


def test_where_to_and_what_from_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not there"):
        read_archive(tmp_path / "gone.tar.gz", tmp_path / "out")
    file = made(tmp_path, FINE)
    with pytest.raises(UsageError, match="into an empty folder"):
        read_archive(file, tmp_path)
    assert file.exists()
