"""Archives: one folder as ``.tar.gz``, the same bytes for the same files, whole or not at all.

One that is read may come from anyone: files alone, into one folder, their digests checked.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from trtmatrix.common.border import ARRAY, BorderError, opened, read_file, remove_tree
from trtmatrix.common.errors import ExitCode, TrtMatrixError, UsageError
from trtmatrix.common.paths import digest_stream, whole_file

SUFFIX = ".tar.gz"
"""What the name of an archive ends in."""
SUMS = "SHA256SUMS"
"""The file in an archive with the digests of the others."""
Files = Mapping[str, bytes | Path]
"""Files for an archive by their names inside, with ``/``: their bytes, or the file that holds them."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """An archive that was written. ``sha256`` and ``size``: of its file."""

    file: Path
    sha256: str
    size: int


def write_archive(target: Path, files: Files) -> Written:
    """Write files and their digests in one folder that is named like the archive; replaces an older one.

    :class:`UsageError` where it cannot be written there.
    """
    check_name(target)
    sums = sums_text({name: digest_of(content) for name, content in files.items()})
    try:
        with (
            whole_file(target) as out,
            gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=out, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name, content in sorted({**files, SUMS: sums.encode()}.items()):
                # A new entry has owner 0, no names and time 0: the same files make the same bytes.
                info = tarfile.TarInfo(f"{target.name.removesuffix(SUFFIX)}/{name}")
                info.size = len(content) if isinstance(content, bytes) else content.stat().st_size
                info.mode = 0o755 if name.endswith(".sh") else 0o644
                with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as stream:
                    archive.addfile(info, stream)
    except OSError as error:
        raise UsageError(f"--to {target}: cannot be written: {error.strerror or error}") from error
    return Written(file=target, sha256=digest_of(target), size=target.stat().st_size)


def check_name(target: Path) -> None:
    """Refuse a target that is not called as an archive is."""
    if not target.name.endswith(SUFFIX) or target.name == SUFFIX:
        raise UsageError(f"--to {target}: name it with {SUFFIX} at its end: --to {target}{SUFFIX}")


def sums_text(digests: Mapping[str, str]) -> str:
    """Return what ``sha256sum -c`` reads."""
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


def digest_of(content: bytes | Path) -> str:
    """Return the SHA-256 of bytes or of a file (hexadecimal)."""
    if isinstance(content, bytes):
        return sha256(content).hexdigest()
    with content.open("rb") as stream:
        return digest_stream(stream)


def write_size(size: int) -> str:
    """Write bytes in decimal units: ``812 B``, ``4.1 kB``, ``25.0 MB``."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


HEADER = 1 << 24
"""Bytes that are read at once at most: a tar's own notes on a file are held in memory whole."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How much an archive may hold: bytes unpacked, and files; and the command that makes such ones."""

    size: int = 1_000_000_000
    files: int = 10_000
    maker: str = "bundle make"


class ChangedError(TrtMatrixError):
    """Files of an archive are not those that its list of digests names; ``problems`` has one line each."""

    exit_code = ExitCode.SURPRISE

    def __init__(self, file: Path, problems: list[str]) -> None:
        super().__init__("\n".join([f"{file}: is not as it was made:", *(f"  {one}" for one in problems)]))
        self.problems = tuple(problems)


def read_archive(file: Path, folder: Path, bounds: Bounds | None = None) -> Path:
    """Unpack an archive into a folder that is empty or not there; returns the folder with its files.

    :class:`UsageError` where it is no archive of ours, or holds what could harm (links, devices, paths that
    lead out, more than can be meant); :class:`ChangedError` where files differ from SHA256SUMS, are missing
    or extra. Where it raises, nothing is left but what was there. ``bounds``: of a bundle where not given.
    """
    bounds = bounds or Bounds()
    if not file.is_file():
        raise UsageError(f"{file}: is not there, or is no file: name the archive that {bounds.maker} wrote")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder}: an archive is unpacked into an empty folder, and this is none")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        top = _unpack(file, partial, bounds)
        partial.rename(folder)
    except BaseException:
        remove_tree(partial)
        raise
    return folder / top


class _Bounded:
    """A packed file that is read forwards, up to a size, and no more than HEADER bytes at once."""

    def __init__(self, packed: gzip.GzipFile, file: Path, size: int) -> None:
        self._packed, self._file, self._size = packed, file, size
        self.tell = packed.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= HEADER:
            raise tarfile.ReadError(f"its notes on a file have {size:,} bytes")
        content = self._packed.read(size)
        self._check(self.tell())
        return content

    def seek(self, position: int) -> int:
        self._check(position)
        return self._packed.seek(position)

    def _check(self, position: int) -> None:
        if position > self._size:
            raise UsageError(f"{self._file}: unpacks to more than {self._size:,} bytes: it is not unpacked")


def _unpack(file: Path, folder: Path, bounds: Bounds) -> str:
    """Write the files of an archive and check them; returns the name of their common folder."""
    try:
        with gzip.open(file, "rb") as packed:
            plain = _Bounded(packed, file, bounds.size)
            with tarfile.open(fileobj=plain, mode="r:") as archive:  # type: ignore[call-overload]  # reads alone
                top = _extract(file, archive, folder, bounds)
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{file}: cannot be unpacked: {reason}: it may be cut short, or no archive of {bounds.maker}"
        ) from error
    if problems := find_differences(folder / top):
        raise ChangedError(file, problems)
    return top


def _extract(file: Path, archive: tarfile.TarFile, folder: Path, bounds: Bounds) -> str:
    seen: set[str] = set()
    tops: set[str] = set()
    for member in archive:
        name = member.name.removesuffix("/")
        if reason := _refused(member, name, seen):
            raise UsageError(f"{file}: holds {name[:200]!r}, {reason}: it is not unpacked")
        seen.add(name.casefold())
        tops.add(name.partition("/")[0])
        if len(seen) > bounds.files or len(tops) > 1:
            what = "one folder at its top" if len(tops) > 1 else f"{bounds.files:,} files"
            raise UsageError(f"{file}: holds more than {what}: it is no archive of {bounds.maker}")
        target = folder / name
        (target if member.isdir() else target.parent).mkdir(parents=True, exist_ok=True)
        if source := archive.extractfile(member):
            with target.open("xb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            target.chmod(0o755 if name.endswith(".sh") else 0o644)
    if not tops or not (folder / min(tops)).is_dir():
        raise UsageError(f"{file}: holds no folder with files: it is no archive of {bounds.maker}")
    return min(tops)


def _refused(member: tarfile.TarInfo, name: str, seen: set[str]) -> str:
    parts = name.split("/")
    if member.type not in {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE} or member.issparse():
        return "which is neither file nor folder"
    if any(part in {"", ".", ".."} for part in parts) or re.search(r"[\x00-\x1f\x7f\\]|^[A-Za-z]:", name):
        return "a path that is not relative and plain"
    if len(name) > 400 or any(len(part.encode("utf-8", "surrogateescape")) > 250 for part in parts):
        return "a name that is too long"
    if name.casefold() in seen:
        return "which is in it twice"
    return ""


def find_differences(top: Path) -> list[str]:
    """Say which files of a folder are not those of its list of digests."""
    sums = top / SUMS
    if not sums.is_file():
        return [f"{SUMS} is missing"]
    try:
        lines = read_file(sums).decode().splitlines()
    except ValueError as error:
        return [f"{SUMS} {error}"]
    wanted: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        match = re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line)
        if match is None or match[2] in wanted:
            return [f"{SUMS} line {number} is no digest of a file, or names one again"]
        wanted[match[2]] = match[1]
    there = {path.relative_to(top).as_posix(): path for path in sorted(top.rglob("*")) if path.is_file()}
    there.pop(SUMS)
    problems = [f"{name} is missing" for name in sorted(wanted.keys() - there.keys())]
    problems += [f"{name} is extra: {SUMS} does not name it" for name in sorted(there.keys() - wanted.keys())]
    for name in sorted(wanted.keys() & there.keys()):
        try:
            with opened(there[name], ARRAY) as (stream, _):
                found = digest_stream(stream)
            if found != wanted[name]:
                problems.append(f"{name} differs: sha256 {found}, and {SUMS} says {wanted[name]}")
        except BorderError as error:
            problems.append(f"{name} {error}")
    return problems
