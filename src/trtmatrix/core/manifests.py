"""Reads what registries hold: indexes, manifests and configurations of images. Pure.

Sources: https://github.com/opencontainers/image-spec (image-index.md, manifest.md, config.md) and
https://distribution.github.io/distribution/spec/manifest-v2-2/.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import new
from typing import Any

from trtmatrix.core.errors import shorten
from trtmatrix.core.image_says import telling_labels, telling_variables
from trtmatrix.core.lock import LockedLayer, LockedPlatform
from trtmatrix.core.registry import is_digest

_DOCKER = "application/vnd.docker.distribution.manifest"
_OCI = "application/vnd.oci.image"
INDEXES = (f"{_OCI}.index.v1+json", f"{_DOCKER}.list.v2+json")
MANIFESTS = (f"{_OCI}.manifest.v1+json", f"{_DOCKER}.v2+json")
CONFIGS = (f"{_OCI}.config.v1+json", "application/vnd.docker.container.image.v1+json")
ACCEPTED = (*INDEXES, *MANIFESTS)
"""What a registry is told that is understood; without it some send formats of old engines."""

ATTESTATION = "vnd.docker.reference.type"
"""Marks what is about an image and is none. Source: https://docs.docker.com/build/metadata/attestations/."""

Json = dict[str, Any]


class ManifestError(ValueError):
    """What a registry holds is not what it should be; the message says what was found."""


@dataclass(frozen=True, kw_only=True)
class Descriptor:
    """What a manifest says of another piece: its digest, its bytes, and its platform where it names one."""

    digest: str
    size: int
    platform: str = ""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """An image for one platform: where its configuration is, and its layers."""

    config: Descriptor
    layers: tuple[LockedLayer, ...]


def digest_of(body: bytes, like: str = "sha256:") -> str:
    """Return a body's digest, of the kind that ``like`` has."""
    kind = like.partition(":")[0]
    return f"{kind}:{new(kind, body).hexdigest()}"


def parse_body(body: bytes) -> Json:
    """Return a JSON object. :class:`ManifestError` where it is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"it is no JSON: {shorten(body[:60])}") from error
    if not isinstance(found, dict):
        raise ManifestError(f"it is no JSON object: {shorten(found)}")
    return found


def media_type(body: Json, header: str) -> str:
    """Return what a body is: by what it says itself, else by the header that came with it, else its keys."""
    own = body.get("mediaType")
    said = own if isinstance(own, str) and own else header.partition(";")[0].strip()
    if said not in ACCEPTED and body.get("schemaVersion") == 2:
        said = INDEXES[0] if "manifests" in body else MANIFESTS[0] if "layers" in body else said
    return said


def parse_index(body: Json) -> tuple[Descriptor, ...]:
    """Return the images of an index, one a platform; what is no image (attestations) is left out.

    :class:`ManifestError` where it is damaged, or has no image.
    """
    entries = [_object(entry, "an entry of the index") for entry in _list(body, "manifests")]
    found: dict[str, Descriptor] = {}
    for entry in entries:
        platform = _platform(_object(entry.get("platform") or {}, "platform"))
        if platform and entry.get("mediaType", MANIFESTS[0]) in MANIFESTS and not _is_attestation(entry):
            found.setdefault(platform, _descriptor(entry, platform))
    if not found:
        raise ManifestError("its index names no image for any platform")
    return tuple(found[platform] for platform in sorted(found))


def parse_manifest(body: Json) -> Manifest:
    """Return an image's parts. :class:`ManifestError` where it is damaged, or no container image."""
    config = _object(body.get("config"), "config")
    kind = config.get("mediaType")
    if kind not in CONFIGS:
        raise ManifestError(f"it is no container image: its config is {shorten(kind)}")
    layers = [_descriptor(_object(layer, "a layer")) for layer in _list(body, "layers")]
    return Manifest(
        config=_descriptor(config),
        layers=tuple(LockedLayer(digest=layer.digest, size=layer.size) for layer in layers),
    )


def locked_platform(digest: str, manifest: Manifest, config: Json, platform: str = "") -> LockedPlatform:
    """Return what is locked of an image for one platform. ``platform``: as its index names it, if one does.

    Engines go by the index where the two differ. :class:`ManifestError` where the configuration is damaged.
    """
    own = _platform(config)
    if not platform and not own:
        raise ManifestError("its configuration names no platform")
    inner = _object(config.get("config") or {}, "config")
    environment = [str(entry) for entry in _list({"Env": inner.get("Env") or []}, "Env")]
    labels = {str(k): str(v) for k, v in _object(inner.get("Labels") or {}, "Labels").items()}
    return LockedPlatform(
        platform=platform or own, manifest=digest, image_id=manifest.config.digest, layers=manifest.layers,
        labels=telling_labels(labels), environment=telling_variables(environment),
    )  # fmt: skip


def _platform(body: Json) -> str:
    """Return ``linux/amd64``, or nothing where it is not named; arm64 has v8 by default, which is not told.

    Source: https://github.com/containerd/platforms (normalisation).
    """
    system, machine, variant = (body.get(key) for key in ("os", "architecture", "variant"))
    parts = [part for part in (system, machine, variant) if isinstance(part, str) and part]
    if not system or not machine or "unknown" in parts:
        return ""
    return "/".join(parts[:2] if parts[1:] == ["arm64", "v8"] else parts)


def _is_attestation(entry: Json) -> bool:
    return ATTESTATION in _object(entry.get("annotations") or {}, "annotations")


def _descriptor(entry: Json, platform: str = "") -> Descriptor:
    digest, size = entry.get("digest"), entry.get("size")
    if not isinstance(digest, str) or not is_digest(digest):
        raise ManifestError(f"it names a digest that is none: {shorten(digest)}")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ManifestError(f"it names a size that is none: {shorten(size)}")
    return Descriptor(digest=digest, size=size, platform=platform)


def _object(value: object, what: str) -> Json:
    if not isinstance(value, dict):
        raise ManifestError(f"{what} is no JSON object: {shorten(value)}")
    return value


def _list(body: Json, key: str) -> list[Any]:
    value = body.get(key)
    if not isinstance(value, list):
        raise ManifestError(f"{key} is no list: {shorten(value)}")
    return value
