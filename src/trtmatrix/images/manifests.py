"""Reads what registries hold: indexes, manifests and configurations of images. Pure.

Sources: https://github.com/opencontainers/image-spec (image-index.md, manifest.md, config.md) and
https://distribution.github.io/distribution/spec/manifest-v2-2/.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import new
from typing import Any, TypeVar

from trtmatrix.common.errors import shorten
from trtmatrix.launchers.lock import LockedLayer, LockedPlatform, telling_facts
from trtmatrix.launchers.references import is_digest

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
T = TypeVar("T")


class ManifestError(ValueError):
    """What a registry holds is not what it should be; the message says what was found."""


@dataclass(frozen=True, kw_only=True)
class Descriptor:
    """What an index or manifest says of another piece: its digest, and its platform where it names one."""

    digest: str
    size: int
    platform: str = ""


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
    return _as(dict, found, "it")


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
    found: dict[str, Descriptor] = {}
    for each in _as(list, body.get("manifests"), "manifests"):
        entry = _as(dict, each, "an entry of the index")
        platform = _platform(_as(dict, entry.get("platform") or {}, "platform"))
        about = ATTESTATION in _as(dict, entry.get("annotations") or {}, "annotations")
        if platform and not about and entry.get("mediaType", MANIFESTS[0]) in MANIFESTS:
            found.setdefault(platform, _descriptor(entry, platform))
    if not found:
        raise ManifestError("its index names no image for any platform")
    return tuple(found[platform] for platform in sorted(found))


def parse_manifest(body: Json) -> tuple[Descriptor, tuple[LockedLayer, ...]]:
    """Return where an image's configuration is, and its layers.

    :class:`ManifestError` where it is damaged, or no container image.
    """
    config = _as(dict, body.get("config"), "config")
    if config.get("mediaType") not in CONFIGS:
        raise ManifestError(f"it is no container image: its config is {shorten(config.get('mediaType'))}")
    layers = [_descriptor(_as(dict, layer, "a layer")) for layer in _as(list, body.get("layers"), "layers")]
    return _descriptor(config), tuple(LockedLayer(digest=each.digest, size=each.size) for each in layers)


def locked_platform(
    digest: str, config: Descriptor, layers: tuple[LockedLayer, ...], body: Json, platform: str = ""
) -> LockedPlatform:
    """Return what is locked of an image for one platform. ``platform``: as its index names it, if one does.

    Engines go by the index where the two differ. :class:`ManifestError` where the configuration is damaged.
    """
    own = platform or _platform(body)
    if not own:
        raise ManifestError("its configuration names no platform")
    inner = _as(dict, body.get("config") or {}, "config")
    pairs = (str(entry).partition("=") for entry in _as(list, inner.get("Env") or [], "Env"))
    environment = {name: value for name, _, value in pairs}
    labels = {str(k): str(v) for k, v in _as(dict, inner.get("Labels") or {}, "Labels").items()}
    return LockedPlatform(
        platform=own, manifest=digest, image_id=config.digest, layers=layers,
        labels=telling_facts(labels), environment=telling_facts(environment),
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


def _descriptor(entry: Json, platform: str = "") -> Descriptor:
    digest, size = entry.get("digest"), entry.get("size")
    if not isinstance(digest, str) or not is_digest(digest):
        raise ManifestError(f"it names a digest that is none: {shorten(digest)}")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ManifestError(f"it names a size that is none: {shorten(size)}")
    return Descriptor(digest=digest, size=size, platform=platform)


def _as(kind: type[T], value: object, what: str) -> T:
    if not isinstance(value, kind):
        raise ManifestError(f"{what} is no {'list' if kind is list else 'JSON object'}: {shorten(value)}")
    return value
