"""The keys that matrix.lock may have, with the type and the rule of each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict

from trtmatrix.core import lock
from trtmatrix.core.matrixkeys import Image, Keys, schema_number
from trtmatrix.core.model import PART

DIGEST = r"^sha256:[0-9a-f]{64}$"
MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:Z|\+00:00)$"
PLATFORM = r"^[a-z0-9]+/[a-z0-9_]+(/[a-z0-9.]+)?$"


def _matching(pattern: str, words: str) -> AfterValidator:
    """Return the rule that a text has a shape; ``words`` say which."""
    import re

    def check(value: str) -> str:
        if not re.fullmatch(pattern.strip("^$"), value):
            raise ValueError(words)
        return value

    return AfterValidator(check)


def _inside(value: str) -> str:
    """Refuse a path that leaves the project's folder."""
    if not value or value.startswith("/") or {"", ".", ".."} & set(value.split("/")):
        raise ValueError("must be a path below matrix.yaml's folder")
    return value


Digest = Annotated[str, _matching(DIGEST, "must be sha256: and 64 hexadecimal digits")]
Sha256 = Annotated[str, _matching(r"[0-9a-f]{64}", "must be 64 hexadecimal digits")]
Moment = Annotated[str, _matching(MOMENT, "must be a moment in UTC such as 2026-11-22T03:36:28Z")]
Platform = Annotated[str, _matching(PLATFORM, "must be a platform such as linux/amd64")]
Name = Annotated[str, _matching(PART.pattern, "is no name of a version such as 10.7.0")]
Filled = Annotated[str, Field(min_length=1)]
Inside = Annotated[str, AfterValidator(_inside)]


class LockedLayer(Keys):
    """A layer: the digest of its compressed bytes, and how many they are."""

    digest: Digest
    size: Annotated[int, Strict(), Field(ge=0)]


class LockedPlatform(Keys):
    """An image for one platform; its name is the key that it stands under."""

    manifest: Digest
    image_id: Digest
    layers: tuple[LockedLayer, ...]
    labels: dict[str, str]
    environment: dict[str, str]


class LockedImage(Keys):
    """An image; its name is the key that it stands under."""

    digest: Digest
    registry: Filled
    resolved: Moment
    platforms: Annotated[dict[Platform, LockedPlatform], Field(min_length=1)]


class LockedBuild(Keys):
    """What an image of ours is made of."""

    image: Image
    base: Image
    wheels: dict[Filled, Sha256]
    files: dict[Inside, Sha256]


class Lock(Keys):
    """The whole of matrix.lock."""

    schema_: Annotated[Literal[1], BeforeValidator(schema_number)] = Field(alias="schema")
    images: dict[Image, LockedImage]
    builds: dict[Name, LockedBuild]


def to_lock(raw: Lock) -> lock.Lock:
    """Return matrix.lock as the program works with it."""
    images = {name: _image(name, image) for name, image in raw.images.items()}
    builds = {name: lock.LockedBuild(**_fields(build)) for name, build in raw.builds.items()}
    return lock.Lock(images=images, builds=builds)


def _image(name: str, raw: LockedImage) -> lock.LockedImage:
    platforms = tuple(_platform(platform, found) for platform, found in raw.platforms.items())
    return lock.LockedImage(**{**_fields(raw), "image": name, "platforms": platforms})


def _platform(name: str, raw: LockedPlatform) -> lock.LockedPlatform:
    layers = tuple(lock.LockedLayer(**_fields(layer)) for layer in raw.layers)
    return lock.LockedPlatform(**{**_fields(raw), "platform": name, "layers": layers})


def _fields(raw: Keys) -> dict[str, Any]:
    return {name: getattr(raw, name) for name in type(raw).model_fields}
