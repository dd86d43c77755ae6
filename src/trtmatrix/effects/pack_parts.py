"""Writes a pack's files: streams in parts with their digests, the lists, the script that unpacks them."""

from __future__ import annotations

import ast
import contextlib
import errno
import os
import shlex
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import IO

from trtmatrix.core.errors import MachineryError, UsageError
from trtmatrix.core.pack import PackedFile, PackedPart, PackManifest, manifest_text
from trtmatrix.effects.archive import sums_text
from trtmatrix.effects.code import PACKAGES
from trtmatrix.unpacker.pack_check import (
    BLOCK,
    MANIFEST,
    PART,
    SCHEMA,
    SCRIPT,
    SUMS,
    is_litter,
    parse_manifest,
    part_header,
)

SCRIPT_PARTS = ("pack_check", "pack_engine", "unpack_pack")
OWN = "trtmatrix.unpacker"

SCRATCH = ".trtmatrix-wheels-"
"""How a folder's name begins that wheels are fetched into, inside of the pack's."""

FULL = (errno.ENOSPC, errno.EDQUOT)

FLUSH = 64 << 20
"""Bytes after which the disk is told to begin: it works while the next ones are hashed."""


FIRST = '''
import posix
import sys


def _is_here(place):
    """Whether modules would be looked for beside this script: what lies there is nobody's code."""
    try:
        return posix.stat(place or ".")[1:3] == posix.stat(__file__.rpartition("/")[0] or ".")[1:3]
    except OSError:
        return False


sys.path[:] = [place for place in sys.path if not _is_here(place)]
'''
"""What the script does before it imports anything that does not lie in the interpreter itself."""


class PartWriter:
    """Writes one stream as ``KIND.001``, ``KIND.002``, …: hashed while it is written, in little memory.

    ``limit``: bytes of a part, its header included; 0: one part holds all. Every part is on the disk, not
    only in memory, when this has ended well.
    """

    def __init__(self, folder: Path, pack: str, kind: str, limit: int = 0) -> None:
        """Name the parts; the first is opened at once."""
        self.folder, self.pack, self.kind, self.limit = folder, pack, kind, limit
        self.parts: list[PackedPart] = []
        self._flusher = ThreadPoolExecutor(max_workers=1)
        self._hasher = ThreadPoolExecutor(max_workers=1)
        self._flushing: Future[None] | None = None
        self._open()

    def _open(self) -> None:
        self._name = f"{self.kind}.{len(self.parts) + 1:03}"
        self._out: IO[bytes] = (self.folder / self._name).open("xb", buffering=0)
        self._digest, self._size = sha256(), 0
        self._put(memoryview(part_header(self.pack, self._name)))

    def _put(self, data: memoryview) -> None:
        hashed = self._hasher.submit(
            self._digest.update, data
        )  # beside the writing: both leave Python's lock
        done = 0
        while done < len(data):
            done += self._out.write(data[done:])
        hashed.result()
        if self._size // FLUSH < (self._size + done) // FLUSH:
            self._wait()
            self._flushing = self._flusher.submit(os.fdatasync, self._out.fileno())
        self._size += done

    def _wait(self) -> None:
        """Wait for the disk: what it has not yet is never more than twice what it is told of at once."""
        if self._flushing is not None:
            self._flushing.result()
            self._flushing = None

    def write(self, data: bytes) -> int:
        """Write bytes of the stream, into as many parts as it takes; returns their number."""
        rest = memoryview(data)
        while rest:
            room = self.limit - self._size if self.limit else len(rest)
            if not room:
                self._close()
                self._open()
                continue
            self._put(rest[:room])
            rest = rest[room:]
        return len(data)

    def _close(self) -> None:
        self._wait()
        os.fdatasync(self._out.fileno())
        self._out.close()
        self.parts.append(PackedPart(name=self._name, size=self._size, sha256=self._digest.hexdigest()))

    def __enter__(self) -> PartWriter:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the last part."""
        self._flusher.shutdown()
        self._hasher.shutdown()
        if kind is None:
            self._close()
        else:
            self._out.close()


@contextlib.contextmanager
def open_target(folder: Path) -> Iterator[Path]:
    """Make a pack's folder, which must be new or empty; where this ends in an error, nothing stays in it.

    What a system makes at the root of a disk, such as ``lost+found``, may be there.
    """
    made = not folder.exists()
    if not made and (not folder.is_dir() or _content(folder)):
        raise UsageError(_told_content(folder))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except BaseException as error:
        for path in _content(folder) if folder.is_dir() else ():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        if made and folder.is_dir():
            folder.rmdir()
        if isinstance(error, OSError):
            hint = ": name another disk by --to, or make room" if error.errno in FULL else ""
            raise MachineryError(
                f"--to {folder}: the pack cannot be written: {error.strerror or error}{hint}; "
                "nothing is left of it"
            ) from error
        raise


def _content(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if not is_litter(path)]


def _told_content(folder: Path) -> str:
    """Say why a pack cannot be written here, and where another one was cut off how to go on."""
    names = [path.name for path in _content(folder)] if folder.is_dir() else []
    ours = [n for n in names if PART.fullmatch(n) or n.startswith(SCRATCH) or n.endswith(".partial")]
    if names and set(names) <= {*ours, SCRIPT, SUMS}:
        return (
            f"--to {folder}: holds what a pack left that was killed ({', '.join(names[:5])}): remove that "
            f"first: rm -r -- {shlex.quote(str(folder))}"
        )
    return f"--to {folder}: a pack is written into a new or empty folder, and this is none"


def write_files(writer: PartWriter, files: Sequence[tuple[str, Path]]) -> tuple[PackedFile, ...]:
    """Write files as a tar, by name; no owner and no time goes along. Returns what was written."""
    packed = []
    with tarfile.open(fileobj=writer, mode="w|", format=tarfile.PAX_FORMAT, bufsize=BLOCK) as archive:  # type: ignore[call-overload]  # it writes alone
        for name, file in sorted(files):
            with file.open("rb") as stream:
                facts = os.fstat(stream.fileno())
                info = tarfile.TarInfo(name)
                info.size, info.mode = facts.st_size, 0o755 if facts.st_mode & 0o100 else 0o644
                hashed = _Hashed(stream)
                archive.addfile(info, hashed)
            packed.append(PackedFile(name=name, size=facts.st_size, sha256=hashed.digest.hexdigest()))
    return tuple(packed)


class _Hashed:
    """A file whose bytes are hashed while they are read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.digest = stream, sha256()

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.digest.update(data)
        return data


def write_lists(folder: Path, manifest: PackManifest) -> str:
    """Write the script, the digests of all, and last the manifest: without it nothing is taken for a pack.

    Returns the SHA-256 of the list of digests, which stands for the whole pack.
    """
    texts = {SCRIPT: script_text(), MANIFEST: manifest_text(manifest, SCHEMA)}
    try:
        parse_manifest(texts[MANIFEST])
    except ValueError as error:
        raise MachineryError(
            f"{folder}: unpack would refuse this pack, so it is not written: {error}"
        ) from error
    digests = {name: sha256(text.encode()).hexdigest() for name, text in texts.items()}
    texts[SUMS] = sums_text({**digests, **{part.name: part.sha256 for part in manifest.parts}})
    for name in (SCRIPT, SUMS, MANIFEST):
        partial = folder / f"{name}.partial"
        partial.write_text(texts[name], encoding="utf-8")
        partial.chmod(0o755 if name == SCRIPT else 0o644)
        partial.replace(folder / name)
    return sha256(texts[SUMS].encode()).hexdigest()


def script_text() -> str:
    """Return the script that lies in every pack: its modules one after another, in one file."""
    sources = [
        (PACKAGES["trtmatrix"] / "unpacker" / f"{name}.py").read_text(encoding="utf-8")
        for name in SCRIPT_PARTS
    ]
    head = f'#!/usr/bin/env python3\n"""{ast.get_docstring(ast.parse(sources[-1]))}\n"""\n'
    return "\n\n".join([f"{head}{FIRST}", *map(_without_own_imports, sources)])


def _without_own_imports(source: str) -> str:
    """Return a module's text without what it imports of the others, which stand above it."""
    lines = source.splitlines()
    drop: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("__future__", OWN)):
            drop |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            if node.col_offset:  # something must stay in a block
                lines[node.lineno - 1] = f"{' ' * node.col_offset}pass"
                drop.discard(node.lineno)
    return "\n".join(line for number, line in enumerate(lines, 1) if number not in drop) + "\n"
