"""Archives that may come from anyone: what could harm is refused."""

import gzip
import io
import re
import tarfile
from pathlib import Path

import pytest
from goldenfile import check_golden

from trtmatrix.common.archive import SUMS, read_archive, write_archive
from trtmatrix.common.errors import TrtMatrixError

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
    write_archive(tmp_path / "a.tar.gz", FILES)
    top = read_archive(tmp_path / "a.tar.gz", tmp_path / "new" / "out")
    assert top == tmp_path / "new" / "out" / "a"
    found = {p.relative_to(top).as_posix(): p.read_bytes() for p in top.rglob("*") if p.is_file()}
    assert {name: data for name, data in found.items() if name != SUMS} == FILES
    assert oct((top / "reproduce.sh").stat().st_mode)[-3:] == "755"
    assert oct((top / "ISSUE.md").stat().st_mode)[-3:] == "644"


SPARSE = {"GNU.sparse.map": "0,1", "GNU.sparse.size": "999999999999"}
FINE: Member = ("a/x", b"x", {})
HOSTILE: list[list[Member]] = [
    [FINE, ("/a/x2", b"", {})], [FINE, ("a/../../x", b"", {})], [FINE, FINE], [FINE, ("a/x/y", b"", {})],
    [("a/l", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc"})], [("a/f", b"", {"type": tarfile.FIFOTYPE})],
    [("a/s", b"", {"pax_headers": SPARSE})], [("x", b"", {})], [FINE, ("b/x", b"", {})], [],
    [(f"a/{i}", b"", {}) for i in range(9)], [("a/zeros", bytes(6_000_000), {})],
    [("a/x", b"", {"pax_headers": {"k": "v" * 20_000_000}})],
]  # fmt: skip


def test_what_could_harm_is_refused_and_writes_nothing_elsewhere(tmp_path: Path) -> None:
    told = ""
    for number, members in enumerate(HOSTILE):
        file, out = made(tmp_path, *members), tmp_path / "out" / str(number)
        with pytest.raises(TrtMatrixError) as caught:
            read_archive(file, out, size=5_000_000, files=5)
        told += f"{[name for name, *_ in members]}\n  {caught.value}\n"
        assert {path.name for path in tmp_path.iterdir()} == {"made.tar.gz", "out"}
        assert not any(path.is_symlink() for path in out.rglob("*"))
    check_golden("archives.txt", re.sub(r"/out/\d+", "/out", told.replace(str(tmp_path), "FOLDER")))
