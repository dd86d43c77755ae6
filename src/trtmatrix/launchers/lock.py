"""What matrix.lock holds: matrix.yaml's images as a registry had them, and what ours are made of. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trtmatrix.suite.matrix import ImageOrigin, Matrix, Pin, Version

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""What engines call a machine, and what registries do."""

NGC = "nvcr.io/nvidia"
"""Where NVIDIA's images are: what a mirror stands for."""

_TELLING = re.compile(
    r"(?<![a-z0-9])(trt|tensorrt|trtoss|nvinfer|cuda|cudnn|cublas|torch|pytorch|nvidia|driver)(?![a-z0-9])"
    r"|^org\.opencontainers\.image\.(base\.(digest|name)|created|ref\.name|revision|source|title|version)$"
)
_SECRET = re.compile(r"(?<![a-z0-9])(key|token|secret|password|passwd|credentials?)(?![a-z0-9])")


@dataclass(frozen=True, kw_only=True)
class LockedLayer:
    """A layer as it lies in the registry: the digest of its (compressed) bytes, and how many they are."""

    digest: str
    size: int


@dataclass(frozen=True, kw_only=True)
class LockedPlatform:
    """An image for one platform such as ``linux/amd64``.

    ``manifest``: the digest that pulls exactly this; ``image_id``: the digest of its configuration, which
    survives ``docker save`` and ``load``. ``labels`` and ``environment``: of the image's own, those that name
    TensorRT, CUDA or the driver.
    """

    platform: str
    manifest: str
    image_id: str
    layers: tuple[LockedLayer, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes to be pulled where none of its layers is here; a layer that stands twice counts once."""
        return sum({layer.digest: layer.size for layer in self.layers}.values())


@dataclass(frozen=True, kw_only=True)
class LockedImage:
    """An image by the name that matrix.yaml has for it.

    ``digest``: what the name pointed at, an index or a manifest; ``registry``: the host that said so, a
    mirror's where one was asked; ``resolved``: when, in UTC (ISO 8601).
    """

    image: str
    digest: str
    registry: str
    resolved: str
    platforms: tuple[LockedPlatform, ...]

    def of(self, platform: str) -> LockedPlatform | None:
        """Return the image for a platform, or None."""
        return next((each for each in self.platforms if each.platform == platform), None)


@dataclass(frozen=True, kw_only=True)
class LockedBuild:
    """What an image of ours is made of.

    ``base``: the base's name, locked itself under that name where a registry has it; ``wheels``: requirement
    → SHA-256 (hexadecimal); ``files``: the Dockerfile and what it copies, by path from matrix.yaml → SHA-256.
    """

    image: str
    base: str
    wheels: Mapping[str, str]
    files: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The whole of matrix.lock: images by name, builds by version."""

    images: Mapping[str, LockedImage] = field(default_factory=dict)
    builds: Mapping[str, LockedBuild] = field(default_factory=dict)


def mirrored(image: str, registry: str) -> str | None:
    """Return an image's name at the mirror that stands for ``nvcr.io/nvidia``, or None where none does."""
    if registry and image.startswith(f"{NGC}/"):
        return registry.rstrip("/") + image.removeprefix(NGC)
    return None


def pin_matrix(matrix: Matrix, lock: Lock, platform: str) -> Matrix:
    """Return a matrix whose images are known by the lock, and pulled from the mirror where one is set."""

    def pinned(version: Version) -> Version:
        origin = version.origin
        if not isinstance(origin, ImageOrigin) or origin.build is not None or origin.is_file:
            return version
        known = base_origin(origin.image, lock, platform, matrix.registry)
        return replace(version, origin=replace(origin, mirror=known.mirror, pin=known.pin))

    return replace(matrix, versions=tuple(pinned(version) for version in matrix.versions))


def base_origin(base: str, lock: Lock, platform: str, registry: str) -> ImageOrigin:
    """Return how an image, such as the base of one of ours, is known and asked for."""
    return ImageOrigin(image=base, mirror=mirrored(base, registry), pin=pin_of(lock, base, platform))


def pin_of(lock: Lock, image: str, platform: str) -> Pin | None:
    """Return what the lock has of an image for a platform, or None."""
    locked = lock.images.get(image)
    found = locked.of(platform) if locked is not None else None
    if locked is None or found is None:
        return None
    ids = tuple(dict.fromkeys((found.image_id, found.manifest, locked.digest)))
    return Pin(manifest=found.manifest, ids=ids)


def telling_facts(facts: Mapping[str, str]) -> dict[str, str]:
    """Return of an image's labels or variables those that name TensorRT, CUDA, torch, the driver, or itself.

    NGC's images have TRT_VERSION, CUDA_VERSION, CUDA_DRIVER_VERSION, NVIDIA_REQUIRE_CUDA and the like; what
    looks like a secret is left out.
    Source: https://github.com/opencontainers/image-spec/blob/main/annotations.md.
    """
    low = {name: name.lower() for name in sorted(facts)}
    return {n: facts[n] for n in low if _TELLING.search(low[n]) and not _SECRET.search(low[n])}


@dataclass(frozen=True, kw_only=True)
class NamedVersions:
    """The versions that an image names, as it writes them; empty where it names none."""

    tensorrt: str = ""
    cuda: str = ""
    driver: str = ""
    torch: str = ""


def named_versions(environment: Mapping[str, str]) -> NamedVersions:
    """Return what an image's variables say of its versions.

    ``TRT_VERSION`` may have CUDA's behind a plus sign (``10.7.0.23+cuda12.6``), which is left out;
    ``NVIDIA_TENSORRT_VERSION`` is the container's release, not TensorRT's, and not read.
    """
    tensorrt = environment.get("TRT_VERSION") or environment.get("TENSORRT_VERSION") or ""
    return NamedVersions(
        tensorrt=tensorrt.partition("+cuda")[0],
        cuda=environment.get("CUDA_VERSION", ""),
        driver=environment.get("CUDA_DRIVER_VERSION", ""),
        torch=environment.get("PYTORCH_BUILD_VERSION") or environment.get("PYTORCH_VERSION") or "",
    )
