"""``--image``: what the user has stand for images of matrix.yaml, references or files."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from trtmatrix.common.errors import UsageError
from trtmatrix.common.remembered import Remembered
from trtmatrix.launchers.references import parse_reference
from trtmatrix.suite.image_names import SUFFIXES
from trtmatrix.suite.matrix import ImageOrigin, Matrix, Pin

FILES = tuple(dict.fromkeys(SUFFIXES.values()))
"""What files of images end with; no reference does."""
CHUNK = 1 << 22


def with_own_images(
    matrix: Matrix, texts: Sequence[str], engine: str, read_file: Callable[[str], ImageOrigin]
) -> Matrix:
    """Return the matrix with the images of ``texts`` (``VERSION=REFERENCE|FILE``) in place of its own.

    What is locked or built of an image that is replaced says nothing of the one that replaces it.
    ``read_file`` returns a file as an origin. :class:`UsageError` where a text cannot be obeyed.
    """
    in_images = [v.name for v in matrix.versions if isinstance(v.origin, ImageOrigin)]
    origins: dict[str, ImageOrigin] = {}
    for text in texts:
        name, _, image = text.partition("=")
        if not (name and image):
            raise UsageError(f"--image {text}: write VERSION=REFERENCE or VERSION=FILE")
        if name not in in_images:
            known = name in {version.name for version in matrix.versions}
            why = "runs in no image" if known else "is no version of matrix.yaml"
            raise UsageError(f"--image {text}: {name} {why}\n  name one of {', '.join(in_images)}")
        if name in origins:
            raise UsageError(f"--image {text}: {name} has an image by another --image: leave one out")
        if not image.startswith(("/", "./", "../", "~")) and not image.endswith(FILES):
            parse_reference(image)
            origins[name] = ImageOrigin(image=image)
        elif image.endswith(SUFFIXES[engine]):
            origins[name] = read_file(image)
        else:
            taken = "; ".join(f"--engine {name}: {suffix}" for name, suffix in SUFFIXES.items())
            raise UsageError(
                f"--image {text}: --engine {engine} takes files that end in {SUFFIXES[engine]}\n  {taken}"
            )
    versions = (replace(v, origin=origins[v.name]) if v.name in origins else v for v in matrix.versions)
    return replace(matrix, versions=tuple(versions))


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
        read = tar_ids if path.suffix == ".tar" else lambda file: (file_digest(file),)
        ids = tuple(Remembered(cache).recall("image-file", key, lambda: list(read(path))))
    except OSError as error:
        raise UsageError(
            f"--image: {path} cannot be read: {error.strerror or error}\n  name a file that this host sees"
        ) from error
    return ImageOrigin(image=str(path), pin=Pin(manifest=ids[0], ids=ids))


def file_digest(path: Path) -> str:
    """Return ``sha256:`` and the SHA-256 of a file."""
    digest = sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def tar_ids(path: Path) -> tuple[str, ...]:
    """Return the IDs that engines may give the image of a tar of ``docker save``.

    That is the digest of its configuration; in engines with containerd's image store that of its manifest
    or index, which Docker 25 and later write into index.json.
    Source: https://github.com/opencontainers/image-spec/blob/main/image-layout.md.
    """
    listings = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                listed = member.name in {"manifest.json", "index.json"}
                if listed and (stream := archive.extractfile(member)) is not None:
                    listings[member.name] = json.load(stream)
        configurations = {str(entry["Config"]) for entry in listings["manifest.json"]}
        manifests = [str(entry["digest"]) for entry in listings.get("index.json", {}).get("manifests", [])]
    except (tarfile.TarError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"--image: {path} is no image as docker save writes it: {error!r}") from error
    if len(configurations) != 1:
        raise UsageError(f"--image: {path} has {len(configurations)} images: save the one that is meant")
    own = configurations.pop().rpartition("/")[2].removesuffix(".json")
    return tuple(dict.fromkeys((f"sha256:{own}", *manifests)))
