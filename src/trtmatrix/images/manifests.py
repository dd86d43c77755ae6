"""Reads what registries hold: indexes, manifests and configurations of images. Pure.

Sources: https://github.com/opencontainers/image-spec (image-index.md, manifest.md, config.md) and
https://distribution.github.io/distribution/spec/manifest-v2-2/.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trtmatrix.common.errors import shorten
from trtmatrix.launchers.references import DIGEST
from trtmatrix.plan.lockfile import LockedLayer, LockedPlatform

_DOCKER = "application/vnd.docker.distribution.manifest"
_OCI = "application/vnd.oci.image"
MANIFESTS = (f"{_OCI}.manifest.v1+json", f"{_DOCKER}.v2+json")
CONFIGS = (f"{_OCI}.config.v1+json", "application/vnd.docker.container.image.v1+json")
ACCEPTED = (f"{_OCI}.index.v1+json", f"{_DOCKER}.list.v2+json", *MANIFESTS)
"""What a registry is told that is understood; without it some send formats of old engines."""
ATTESTATION = "vnd.docker.reference.type"
"""Marks what is about an image and is none. Source: https://docs.docker.com/build/metadata/attestations/."""
_TELLING = re.compile(
    r"(?<![a-z0-9])(trt|tensorrt|trtoss|nvinfer|cuda|cudnn|cublas|torch|pytorch|nvidia|driver)(?![a-z0-9])"
    r"|^org\.opencontainers\.image\.(base\.(digest|name)|created|ref\.name|revision|source|title|version)$"
)
_SECRET = re.compile(r"(?<![a-z0-9])(key|token|secret|password|passwd|credentials?)(?![a-z0-9])")


class ManifestError(ValueError):
    """What a registry holds is not what it should be; the message says what was found."""


class Read(BaseModel):
    """What is read of an answer; further keys are its own affair."""

    model_config = ConfigDict(strict=True, frozen=True)


T = TypeVar("T", bound=Read)


class Platform(Read):
    """A platform as registries write it."""

    os: str | None = None
    architecture: str | None = None
    variant: str | None = None

    @property
    def name(self) -> str:
        """``linux/amd64``, or nothing where it is not named; arm64 has v8 by default, which is not told.

        Source: https://github.com/containerd/platforms (normalisation).
        """
        parts = [part for part in (self.os, self.architecture, self.variant) if part]
        if not self.os or not self.architecture or "unknown" in parts:
            return ""
        return "/".join(parts[:2] if parts[1:] == ["arm64", "v8"] else parts)


class Descriptor(Read):
    """What an index or manifest says of another piece."""

    kind: str = Field(default=MANIFESTS[0], alias="mediaType")
    digest: Annotated[str, Field(pattern=f"^({DIGEST})$")]
    size: Annotated[int, Field(ge=0)]
    platform: Platform | None = None
    annotations: dict[str, Any] | None = None


class Index(Read):
    """Images by platform, under one name."""

    manifests: list[Descriptor]

    @property
    def images(self) -> dict[str, str]:
        """Platform → digest; what is no image (attestations) is left out."""
        found: dict[str, str] = {}
        for entry in self.manifests:
            name = entry.platform.name if entry.platform else ""
            if name and ATTESTATION not in (entry.annotations or {}) and entry.kind in MANIFESTS:
                found.setdefault(name, entry.digest)
        return found


class Manifest(Read):
    """An image's manifest: where its configuration is, and its layers."""

    config: Descriptor
    layers: list[Descriptor]


class _Settings(Read):
    variables: list[str] | None = Field(default=None, alias="Env")
    labels: dict[str, str] | None = Field(default=None, alias="Labels")


class _Configuration(Platform):
    config: _Settings | None = None


class _Head(Read):
    manifests: Any = None


def read_as(kind: type[T], body: bytes) -> T:
    """Return a body as what it should be. :class:`ManifestError` where it is not, with the first mistake."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise ManifestError(f"{where}: {first['msg']}, found {shorten(first['input'])}") from error


def parse_manifest(body: bytes) -> Index | Manifest:
    """Return what a name stands for. :class:`ManifestError` where it is damaged, or no container image."""
    if read_as(_Head, body).manifests is not None:
        index = read_as(Index, body)
        if not index.images:
            raise ManifestError("its index names no image for any platform")
        return index
    manifest = read_as(Manifest, body)
    if manifest.config.kind not in CONFIGS:
        raise ManifestError(f"it is no container image: its config is {shorten(manifest.config.kind)}")
    return manifest


def locked_platform(digest: str, manifest: Manifest, configuration: bytes) -> tuple[str, LockedPlatform]:
    """Return an image's own word on its platform, and what is locked of it.

    :class:`ManifestError` where the configuration is damaged.
    """
    own = read_as(_Configuration, configuration)
    inner = own.config or _Settings()
    variables = (entry.partition("=") for entry in inner.variables or ())
    return own.name, LockedPlatform(
        manifest=digest, image_id=manifest.config.digest,
        layers=tuple(LockedLayer(digest=each.digest, size=each.size) for each in manifest.layers),
        labels=telling_facts(inner.labels or {}),
        environment=telling_facts({name: value for name, _, value in variables}),
    )  # fmt: skip


def telling_facts(facts: Mapping[str, str]) -> dict[str, str]:
    """Return of an image's labels or variables those that name TensorRT, CUDA, torch, the driver, or itself.

    NGC's images have TRT_VERSION, CUDA_VERSION, CUDA_DRIVER_VERSION, NVIDIA_REQUIRE_CUDA and the like; what
    looks like a secret is left out.
    Source: https://github.com/opencontainers/image-spec/blob/main/annotations.md.
    """
    low = {name: name.lower() for name in sorted(facts)}
    return {n: facts[n] for n in low if _TELLING.search(low[n]) and not _SECRET.search(low[n])}
