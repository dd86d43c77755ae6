"""Writes an archive: one folder as ``.tar.gz``, the same bytes for the same files, whole or not at all."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO

from trtmatrix.common.errors import UsageError
from trtmatrix.common.paths import whole_file

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
        with whole_file(target) as out:
            _write_tar(out, target.name.removesuffix(SUFFIX), {**files, SUMS: sums.encode()})
            size = out.tell()
            out.flush()
            out.seek(0)
            digest = digest_stream(out)
    except OSError as error:
        raise UsageError(f"--to {target}: cannot be written: {error.strerror or error}") from error
    return Written(file=target, sha256=digest, size=size)


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


def digest_stream(stream: IO[bytes]) -> str:
    """Return the SHA-256 of what is left of a stream (hexadecimal)."""
    total = sha256()
    while block := stream.read(1 << 20):
        total.update(block)
    return total.hexdigest()


def write_size(size: int) -> str:
    """Write bytes in decimal units: ``812 B``, ``4.1 kB``, ``25.0 MB``."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def _write_tar(out: IO[bytes], folder: str, files: Files) -> None:
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=out, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in sorted(files.items()):
            info = tarfile.TarInfo(f"{folder}/{name}")  # owner 0, no names, time 0
            info.size = len(content) if isinstance(content, bytes) else content.stat().st_size
            info.mode = 0o755 if name.endswith(".sh") else 0o644
            with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as stream:
                archive.addfile(info, stream)
