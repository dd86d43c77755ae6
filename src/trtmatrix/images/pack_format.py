"""What a pack for a host without a network is made of: parts, their digests, the lists, the script.

It is read on the other side, by any Python: :mod:`.unpacker` is the script that goes along.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO

from trtmatrix.common.archive import sums_text
from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.common.jsontext import to_json
from trtmatrix.common.paths import whole_file
from trtmatrix.images import unpacker
from trtmatrix.images.unpacker import BLOCK, MANIFEST, SCHEMA, SCRIPT, SUMS

LEAST_SPLIT = 1 << 20
"""Bytes that a part must be allowed to have."""

FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, kw_only=True)
class PackedPart:
    """A part of the pack."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class PackedImage:
    """An image: ``id`` is what the engine that saved it calls it, ``names`` are given back after loading.

    ``versions``: those that run in it; ``size``: bytes, unpacked; ``manifest``: the digest that it was pulled
    by (empty where it is none of a registry's or not locked).
    """

    id: str
    names: tuple[str, ...]
    versions: tuple[str, ...]
    size: int
    manifest: str = ""


@dataclass(frozen=True, kw_only=True)
class PackManifest:
    """What ``manifest.json`` says. ``made``: UTC, ISO 8601; ``commit``: of the suite.

    ``changed``: the suite's files are not those of that commit; ``pythons``: those that wheels are for.
    """

    pack: str
    made: str
    by: str
    commit: str
    changed: bool
    platform: str
    pythons: tuple[str, ...]
    versions: tuple[str, ...]
    parts: tuple[PackedPart, ...]
    images: tuple[PackedImage, ...]


def part_limit(split: int) -> int:
    """Return the bytes that a part may have; below what was asked for, as FAT32 holds 4 GiB less one byte.

    0 stays 0: no limit. :class:`UsageError` where parts would be tiny.
    """
    if split and split < LEAST_SPLIT:
        raise UsageError(f"--split: parts of {split} bytes are too small: at least 1MB, or leave it out")
    return max(split - 512, 0)


class PartWriter:
    """Writes one stream as ``KIND.001``, ``KIND.002``, …: hashed while it is written, in little memory.

    ``limit``: bytes of a part; 0: one part holds all. Every part is on the disk, not only in memory, when
    this has ended well.
    """

    def __init__(self, folder: Path, kind: str, limit: int = 0) -> None:
        """Name the parts; the first is opened at once."""
        self.folder, self.kind, self.limit = folder, kind, limit
        self.parts: list[PackedPart] = []
        self._hasher = ThreadPoolExecutor(max_workers=1)
        self._open()

    def _open(self) -> None:
        self._name = f"{self.kind}.{len(self.parts) + 1:03}"
        self._out: IO[bytes] = (self.folder / self._name).open("xb", buffering=0)
        self._digest, self._size = sha256(), 0

    def write(self, data: bytes) -> int:
        """Write bytes of the stream, into as many parts as it takes; returns their number."""
        rest = memoryview(data)
        while rest:
            if self.limit and self._size == self.limit:
                self._close()
                self._open()
            piece = rest[: self.limit - self._size] if self.limit else rest
            hashed = self._hasher.submit(self._digest.update, piece)  # both leave Python's lock
            written = 0
            while written < len(piece):
                written += self._out.write(piece[written:])
            hashed.result()
            self._size += written
            rest = rest[written:]
        return len(data)

    def _close(self) -> None:
        os.fdatasync(self._out.fileno())
        self._out.close()
        self.parts.append(PackedPart(name=self._name, size=self._size, sha256=self._digest.hexdigest()))

    def __enter__(self) -> PartWriter:
        """Write from here on."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Finish the last part."""
        self._hasher.shutdown()
        if kind is None:
            self._close()
        else:
            self._out.close()


def write_files(writer: PartWriter, files: Sequence[tuple[str, Path]]) -> None:
    """Write files as a tar, by name; no owner and no time goes along."""
    with tarfile.open(fileobj=writer, mode="w|", format=tarfile.PAX_FORMAT, bufsize=BLOCK) as archive:  # type: ignore[call-overload]  # it writes alone
        for name, file in sorted(files):
            with file.open("rb") as stream:
                facts = os.fstat(stream.fileno())
                info = tarfile.TarInfo(name)
                info.size, info.mode = facts.st_size, 0o755 if facts.st_mode & 0o100 else 0o644
                archive.addfile(info, stream)


def write_lists(folder: Path, manifest: PackManifest) -> str:
    """Write the script, the digests of all, and last the manifest: without it nothing is taken for a pack.

    Returns the SHA-256 of the list of digests, which stands for the whole pack.
    """
    texts = {SCRIPT: script_text(), MANIFEST: to_json({"schema": SCHEMA, **asdict(manifest)})}
    digests = {name: sha256(text.encode()).hexdigest() for name, text in texts.items()}
    texts[SUMS] = sums_text({**digests, **{part.name: part.sha256 for part in manifest.parts}})
    for name in (SCRIPT, SUMS, MANIFEST):
        with whole_file(folder / name, 0o755 if name == SCRIPT else 0o644) as out:
            out.write(texts[name].encode())
    return sha256(texts[SUMS].encode()).hexdigest()


def script_text() -> str:
    """Return the script that lies in every pack: :mod:`.unpacker` as it is."""
    return "#!/usr/bin/env python3\n" + Path(unpacker.__file__).read_text(encoding="utf-8")


@contextlib.contextmanager
def open_target(folder: Path) -> Iterator[Path]:
    """Make a pack's folder, in which no file may be; where this ends in an error, nothing stays in it.

    Folders may be there: systems make some at the root of a disk, such as ``lost+found``.
    """
    made = not folder.exists()
    if not made and (not folder.is_dir() or any(not path.is_dir() for path in folder.iterdir())):
        words = "a pack is written into a new or empty folder, and this is none"
        raise UsageError(f"--to {folder}: {words}: remove what is in it (a killed pack may have left it)")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except BaseException as error:
        for path in folder.iterdir() if folder.is_dir() else ():
            if not path.is_dir():
                path.unlink()
        if made and folder.is_dir():
            folder.rmdir()
        if isinstance(error, OSError):
            hint = ": name another disk by --to, or make room" if error.errno in FULL else ""
            words = f"{error.strerror or error}{hint}; nothing is left of it"
            raise MachineryError(f"--to {folder}: the pack cannot be written: {words}") from error
        raise
