"""Takes archives apart and puts them together again, changed."""

import hashlib
import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from trtmatrix.common.archive import SUMS, sums_text

Change = Callable[[bytes], bytes]


def read_files(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as packed:
        return {
            member.name.partition("/")[2]: stream.read()
            for member in packed.getmembers() if (stream := packed.extractfile(member)) is not None
        }  # fmt: skip


def write_files(files: Mapping[str, bytes], target: Path, *, sums: bool = True) -> Path:
    """Write files as an archive; ``sums``: with digests that fit."""
    if sums:
        digests = {name: digest_of(data) for name, data in files.items() if name != SUMS}
        files = {**files, SUMS: sums_text(digests).encode()}
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:gz") as packed:
        for name, data in files.items():
            info = tarfile.TarInfo(f"{target.name.removesuffix('.tar.gz')}/{name}")
            info.size, info.mode = len(data), 0o755 if name.endswith(".sh") else 0o644
            packed.addfile(info, io.BytesIO(data))
    return target


def change(archive: Path, target: Path, changes: Mapping[str, Change], *, sums: bool) -> Path:
    files = read_files(archive)
    for name, alter in changes.items():
        assert alter(files[name]) != files[name], f"{name} is not changed"
        files[name] = alter(files[name])
    return write_files(files, target, sums=sums)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def flip(place: int) -> Change:
    return lambda data: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def put(before: str, after: str) -> Change:
    return lambda data: data.replace(before.encode(), after.encode())
