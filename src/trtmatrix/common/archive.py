"""Archives: one folder as ``.tar.gz``, the same bytes for the same files, whole or not at all.

One that is read may come from anyone: files alone, into one folder, their digests checked.
"""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import IO

from trtmatrix.common.border import ARRAY, BorderError, opened, read_file
from trtmatrix.common.errors import ExitCode, TrtMatrixError, UsageError
from trtmatrix.common.paths import digest_stream, whole_file

SUFFIX = ".tar.gz"  # what the name of an archive ends in
SUMS = "SHA256SUMS"  # the file in an archive with the digests of the others
Files = Mapping[str, bytes | Path]
"""Files for an archive by their names inside, with ``/``: their bytes, or the file that holds them."""


def write_archive(target: Path, files: Files) -> None:
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


class ChangedError(TrtMatrixError):
    """Files of an archive are not those that its list of digests names; ``problems`` has one line each."""

    exit_code = ExitCode.SURPRISE

    def __init__(self, file: Path, problems: list[str]) -> None:
        super().__init__("\n".join([f"{file}: is not as it was made:", *(f"  {one}" for one in problems)]))
        self.problems = tuple(problems)


def read_archive(
    file: Path, folder: Path, maker: str = "bundle make", size: int = 1_000_000_000, files: int = 10_000
) -> Path:
    """Unpack an archive of a command, ``maker``, into a new folder; returns the one folder in it.

    ``size``: bytes that it may hold unpacked, ``files``: how many. :class:`UsageError` where it is no archive
    of ours, or holds what could harm: anything but files and folders in one folder, more than can be meant.
    :class:`ChangedError` where files differ from SHA256SUMS, are missing or extra.
    """
    folder.mkdir(parents=True)
    try:
        with gzip.open(file) as packed, tempfile.TemporaryFile(dir=folder) as plain:
            _copy(packed, plain, size)
            with tarfile.open(fileobj=plain, mode="r:") as archive:
                top = _extract(archive, folder, files)
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        why = f"{error}; it may be cut short, or no archive of {maker}"
        raise UsageError(f"{file}: cannot be unpacked: {why}") from error
    if problems := find_differences(top):
        raise ChangedError(file, problems)
    return top


def _copy(packed: gzip.GzipFile, plain: IO[bytes], most: int) -> None:
    while block := packed.read(1 << 20):
        plain.write(block)
        if plain.tell() > most:
            raise ValueError(f"it unpacks to more than {most:,} bytes")
    plain.seek(0)


def _extract(archive: tarfile.TarFile, folder: Path, files: int) -> Path:
    """Write files and folders; returns the one folder that has them all.

    ``ValueError`` for anything else, for names that lead out, for too many.
    """
    for number, member in enumerate(archive, 1):
        parts = member.name.split("/")
        plain = (member.isreg() and not member.issparse()) or member.isdir()
        if not plain or {"", ".", ".."} & {*parts} or number > files:
            raise ValueError(f"it holds {member.name[:200]!r}, which could harm")
        target = folder / member.name
        (target if member.isdir() else target.parent).mkdir(parents=True, exist_ok=True)
        if source := archive.extractfile(member):
            with target.open("xb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            target.chmod(0o755 if member.name.endswith(".sh") else 0o644)
    tops = [path for path in folder.iterdir() if path.is_dir()]
    if len(tops) != 1:
        raise ValueError("it does not hold one folder with files")
    return tops[0]


def find_differences(top: Path) -> list[str]:
    """Say which files of a folder are not those of its list of digests."""
    try:
        lines = read_file(top / SUMS).decode().splitlines()
        wanted = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except (OSError, ValueError) as error:
        return [f"{SUMS} cannot be read: {error}"]
    found = dict[str, str]()
    for path in top.rglob("*"):
        name = path.relative_to(top).as_posix()
        if name != SUMS and not path.is_dir():
            try:
                with opened(path, ARRAY) as (stream, _):
                    found[name] = digest_stream(stream)
            except BorderError as error:
                found[name] = str(error)
    return [
        f"{name}: {found.get(name, 'is missing')}, and {SUMS} says {wanted.get(name, 'nothing')}"
        for name in sorted(wanted.keys() | found.keys()) if found.get(name) != wanted.get(name)
    ]  # fmt: skip
