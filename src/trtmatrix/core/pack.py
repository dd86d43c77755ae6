"""What a pack for a host without a network holds: its parts, files and images, by digest. Pure.

It is read on the other side, by any Python: ``unpacker/pack_check.py`` says what a manifest must hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trtmatrix.core.config import ImageOrigin, Version
from trtmatrix.core.errors import UsageError
from trtmatrix.core.jsontext import to_json

LEAST_SPLIT = 1 << 20
"""Bytes that a part must be allowed to have."""


@dataclass(frozen=True, kw_only=True)
class PackedPart:
    """A file of the pack, its header included. ``sha256``: hexadecimal, of all its bytes."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class PackedFile:
    """A file of the suite or a wheel, by its path below the folder that it is unpacked into."""

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
    """What ``manifest.json`` says. ``made``: UTC, ISO 8601; ``commit``: of the suite, empty without git.

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
    files: tuple[PackedFile, ...]
    images: tuple[PackedImage, ...]


def manifest_text(manifest: PackManifest, schema: int) -> str:
    """Return ``manifest.json``."""
    return to_json({"schema": schema, **asdict(manifest)})


def packed_images(
    held: Mapping[str, str],
    sizes: Mapping[str, int],
    versions: Sequence[Version],
    tagged: Mapping[str, str],
) -> tuple[PackedImage, ...]:
    """Return the images of versions, each once. ``held``: version → image ID; ``sizes``: by ID, in bytes.

    ``tagged``: name → ID, as the engine has them. An image that is not locked is known by its name alone,
    so it gets that on the other side; a locked one keeps the name that it has here.

    :class:`UsageError` where one could not be found again after loading.
    """
    found: dict[str, PackedImage] = {}
    for version in versions:
        origin = version.origin
        if isinstance(origin, ImageOrigin) and "@" in origin.image and origin.pin is None:
            raise UsageError(
                f"{version.name}: {origin.image} is not in matrix.lock, and its digest does not survive "
                "docker save and load, so that no run would find it: nox -s lock -- --update "
                f"--trt {version.name}"
            )
    for version in versions:
        origin = version.origin
        if not isinstance(origin, ImageOrigin) or version.name not in held:
            continue
        image_id = held[version.name]
        before = found.get(image_id)
        keeps = origin.pin is None or tagged.get(origin.image) == image_id
        names = (*(before.names if before else ()), *([origin.image] if keeps else []))
        found[image_id] = PackedImage(
            id=image_id, names=tuple(dict.fromkeys(names)), size=sizes[image_id],
            versions=(*(before.versions if before else ()), version.name),
            manifest=origin.pin.manifest if origin.pin else (before.manifest if before else ""),
        )  # fmt: skip
    return tuple(found.values())


def bytes_of_layers(histories: Iterable[Sequence[Mapping[str, Any]]]) -> int:
    """Return about how many bytes images have together: a layer that several share counts once.

    Each history is what an engine says of one image's layers: when and by what each was made, and its size.
    """
    layers = {(step.get("Created"), step.get("CreatedBy"), step["Size"]) for one in histories for step in one}
    return sum(size for _, _, size in layers)


def part_limit(split: int) -> int:
    """Return the bytes that a part may have; below what was asked for, as FAT32 holds 4 GiB less one byte.

    0 stays 0: no limit. :class:`UsageError` where parts would be tiny.
    """
    if split and split < LEAST_SPLIT:
        raise UsageError(f"--split: parts of {split} bytes are too small: at least 1MB, or leave it out")
    return max(split - 512, 0)
