"""Writes an archive: the same bytes for the same files, whole or not at all."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trtmatrix.core.bundle.facts import LIMIT_BYTES, SUFFIX, SUMS, LeftOut
from trtmatrix.core.bundle.manifest import LEFT_OUT, left_out_json, sums_text, write_size
from trtmatrix.core.errors import MachineryError, UsageError
from trtmatrix.core.redact import Secrets
from trtmatrix.effects.packing import Packed, Part, digest_stream, pack_parts, public_name


@dataclass(frozen=True, kw_only=True)
class Written:
    """An archive that was written. ``sha256`` and ``size``: of its file; ``folder``: the one inside."""

    file: Path
    sha256: str
    size: int
    folder: str
    names: tuple[str, ...]


def write_archive(
    target: Path,
    packed: Sequence[Packed],
    secrets: Secrets,
    *,
    left_out: Sequence[LeftOut] = (),
    limit: int = LIMIT_BYTES,
) -> Written:
    """Write files, their digests and the list of what was left out as ``.tar.gz``; replaces an older one.

    All lie in one folder that is named like the archive. :class:`UsageError` where the archive cannot be
    written there, or would be larger than ``limit``.
    """
    check_name(target)
    folder = public_name(target.name.removesuffix(SUFFIX), secrets)
    files = _with_lists(packed, left_out, secrets)
    try:
        with _new_file(target) as out:
            _write_tar(out, folder, files)
            size = out.tell()
            if size > limit:
                raise UsageError(_too_large(target, size, limit))
            out.flush()
            out.seek(0)
            digest = digest_stream(out)
    except OSError as error:
        raise UsageError(f"--to {target}: cannot be written: {error.strerror or error}") from error
    names = tuple(sorted(file.item.name for file in files))
    return Written(file=target, sha256=digest, size=size, folder=folder, names=names)


def check_name(target: Path) -> None:
    """Refuse a target that is not called as an archive is."""
    if not target.name.endswith(SUFFIX) or target.name == SUFFIX:
        raise UsageError(f"--to {target}: name it with {SUFFIX} at its end: --to {target}{SUFFIX}")


def _too_large(target: Path, size: int, limit: int) -> str:
    return (
        f"{target}: would have {write_size(size)}, more than {write_size(limit)}: nothing was written; "
        "minimise the case first: nox -s minimise -- CELL"
    )


def _with_lists(packed: Sequence[Packed], left_out: Sequence[LeftOut], secrets: Secrets) -> list[Packed]:
    files = list(packed)
    if left_out:
        files += pack_parts([Part(name=LEFT_OUT, text=left_out_json(left_out))], secrets)
    digests: dict[str, str] = {}
    for file in files:
        if file.item.name in digests or file.item.name == SUMS:
            raise MachineryError(f"an archive has one {file.item.name}, and two were given")
        digests[file.item.name] = file.item.sha256
    return [*files, *pack_parts([Part(name=SUMS, text=sums_text(digests))], Secrets())]


@contextmanager
def _new_file(target: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes the target's place at the end, and is gone where it does not come to that."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".partial")
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "w+b") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        partial.chmod(0o644)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _write_tar(out: IO[bytes], folder: str, files: Sequence[Packed]) -> None:
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=out, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file in sorted(files, key=lambda file: file.item.name):
            name = file.item.name
            info = tarfile.TarInfo(f"{folder}/{name}")  # owner 0, no names, time 0
            info.size, info.mode = file.item.size, 0o755 if name.endswith(".sh") else 0o644
            with _open(file) as stream:
                archive.addfile(info, stream)


@contextmanager
def _open(file: Packed) -> Iterator[IO[bytes]]:
    if file.file is None:
        yield io.BytesIO(file.data or b"")
        return
    with file.file.open("rb") as stream:
        yield stream
