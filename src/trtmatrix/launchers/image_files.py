"""Files of images that the user names: what is in them, by which records and engines know them."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from trtmatrix.common.errors import UsageError
from trtmatrix.common.remembered import Remembered
from trtmatrix.suite.matrix import ImageOrigin, Pin

CHUNK = 1 << 22


def read_file(name: str, cache: Path) -> ImageOrigin:
    """Return a file as an origin, pinned by what is in it: its own SHA-256, or the ID of a tar's image.

    It is read once for as long as path, size and time of its last change stay: a large one takes a while.
    :class:`UsageError` where it is not there, or is no tar with one image.
    """
    path = Path(name).expanduser().absolute()
    try:
        status = path.stat()
        if not path.is_file():
            raise UsageError(f"--image: {path} is no file")
        key = f"{path}\n{status.st_size}\n{status.st_mtime_ns}"
        read = tar_ids if path.suffix == ".tar" else file_ids
        ids = tuple(Remembered(cache).recall("image-file", key, lambda: list(read(path))))
    except OSError as error:
        raise UsageError(
            f"--image: {path} cannot be read: {error.strerror or error}\n  name a file that this host sees"
        ) from error
    return ImageOrigin(image=str(path), pin=Pin(manifest=ids[0], ids=ids))


def file_ids(path: Path) -> tuple[str, ...]:
    """Return ``sha256:`` and the SHA-256 of a file."""
    digest = sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return (f"sha256:{digest.hexdigest()}",)


def tar_ids(path: Path) -> tuple[str, ...]:
    """Return the IDs that engines may give the image of a tar of ``docker save``.

    That is the digest of its configuration; in engines with containerd's image store that of its manifest
    or index, which Docker 25 and later write into index.json.
    Source: https://github.com/opencontainers/image-spec/blob/main/image-layout.md.
    """
    try:
        with tarfile.open(path) as archive:
            found = dict(_listings(archive))
        configurations = [str(entry["Config"]) for entry in found["manifest.json"]]
        manifests = [str(entry["digest"]) for entry in found.get("index.json", {}).get("manifests", [])]
    except (tarfile.TarError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"--image: {path} is no image as docker save writes it: {error!r}") from error
    if len(set(configurations)) != 1:
        raise UsageError(f"--image: {path} has {len(configurations)} images: save the one that is meant")
    own = configurations[0].rpartition("/")[2].removesuffix(".json")
    return tuple(dict.fromkeys((f"sha256:{own}", *manifests)))


def _listings(archive: tarfile.TarFile) -> Iterator[tuple[str, Any]]:
    for member in archive:
        if member.name in {"manifest.json", "index.json"} and (stream := archive.extractfile(member)):
            yield member.name, json.load(stream)
