"""matrix.lock: matrix.yaml's images as a registry had them. Pure."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Annotated, Literal

from pydantic import Field, Strict

from trtmatrix.common.errors import ConfigError
from trtmatrix.suite.keys import keys, parse_keys
from trtmatrix.suite.matrix import Image, ImageOrigin, Matrix, Pin, Version

NGC = "nvcr.io/nvidia"  # where NVIDIA's images are: what a mirror stands for

REMEDY = (
    "the file is written by the tool: take it back from git (git checkout), or remove it and run\n"
    "  nox -s lock -- --update"
)


Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]


@keys
class LockedLayer:
    """A layer as it lies in the registry: the digest of its (compressed) bytes, and how many they are."""

    digest: Digest
    size: Annotated[int, Strict(), Field(ge=0)]


@keys
class LockedPlatform:
    """An image for one platform.

    ``manifest``: the digest that pulls exactly this; ``image_id``: the digest of its configuration, which
    survives ``docker save`` and ``load``. ``says``: the versions of TensorRT, CUDA, driver and torch that the
    image's own variables name.
    """

    manifest: Digest
    image_id: Digest
    layers: tuple[LockedLayer, ...]
    says: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes to be pulled where none of its layers is here; a layer that stands twice counts once."""
        return sum({layer.digest: layer.size for layer in self.layers}.values())


@keys
class LockedImage:
    """An image of matrix.yaml, by platform such as ``linux/amd64``.

    ``digest``: what the name pointed at, an index or a manifest; ``registry``: the host that said so, a
    mirror's where one was asked; ``resolved``: when, in UTC (ISO 8601).
    """

    digest: Digest
    registry: str
    resolved: str
    platforms: Annotated[dict[str, LockedPlatform], Field(min_length=1)]


@keys
class Lock:
    """The whole of matrix.lock: images by name."""

    schema: Literal[1] = 1
    images: dict[Image, LockedImage] = field(default_factory=dict)


def pin_of(lock: Lock, image: str, platform: str) -> Pin | None:
    """Return what the lock has of an image for a platform, or None."""
    if (locked := lock.images.get(image)) is None or (found := locked.platforms.get(platform)) is None:
        return None
    ids = tuple(dict.fromkeys((found.image_id, found.manifest, locked.digest)))
    return Pin(manifest=found.manifest, ids=ids)


def mirrored(image: str, registry: str) -> str | None:
    """Return an image's name at the mirror that stands for ``nvcr.io/nvidia``, or None where none does."""
    if registry and image.startswith(f"{NGC}/"):
        return registry.rstrip("/") + image.removeprefix(NGC)
    return None


def pin_matrix(matrix: Matrix, lock: Lock, platform: str) -> Matrix:
    """Return a matrix whose images are known by the lock, and pulled from the mirror where one is set.

    Of images that are built here that goes for what they are built on.
    """

    def known(image: str) -> ImageOrigin:
        mirror, pin = mirrored(image, matrix.registry), pin_of(lock, image, platform)
        return ImageOrigin(image=image, mirror=mirror, pin=pin)

    def pinned(version: Version) -> Version:
        origin = version.origin
        if not isinstance(origin, ImageOrigin) or origin.is_file:
            return version
        if origin.build is not None:
            return replace(version, origin=replace(origin, base=known(origin.build.base)))
        return replace(version, origin=known(origin.image))

    return replace(matrix, versions=tuple(pinned(version) for version in matrix.versions))


def parse_matrix_lock(text: str, file: str = "matrix.lock") -> Lock:
    """Read matrix.lock's text; :class:`ConfigError` lists every mistake with its line, and the remedy."""
    try:
        return parse_keys(Lock, text, file)
    except ConfigError as error:
        raise ConfigError([*error.problems, f"{file}: {REMEDY}"]) from error
