"""Images by the names that people give them, among those that an engine has. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_LONG = ("docker.io/library/", "docker.io/", "localhost/")
_LEAST_ID = 12

ENGINE = "TRTMATRIX_ENGINE"
"""Which engine is meant, where ``--engine`` does not say."""

SUFFIXES = {"auto": ".tar", "docker": ".tar", "podman": ".tar", "apptainer": ".sif", "pyxis": ".sqsh"}
"""The engines by the names that users give them, and what the file of an image ends with for each."""

CHILDREN = frozenset({"apptainer", "pyxis"})
"""Those that are no daemons: what they start is a child of ours."""

OWN = "trtmatrix/"
"""What the names of images begin with that are made on this host: no registry has them, and none is asked."""


def is_own(image: str) -> bool:
    """Whether an image has a name of this project's own, so that it is made here and never pulled."""
    return short_name(image).startswith(OWN)


@dataclass(frozen=True, kw_only=True)
class HeldImage:
    """An image that is here. ``name``: a tag or digest that the engine knows it by; ``id``: ``sha256:…``.

    ``registry``: ``name@sha256:…`` where a registry has it, else empty.
    """

    name: str
    id: str
    registry: str = ""


def short_name(reference: str) -> str:
    """Return what Docker calls an image that Podman calls ``docker.io/…`` or, made here, ``localhost/…``."""
    return next((reference.removeprefix(p) for p in _LONG if reference.startswith(p)), reference)


def find_image(images: Mapping[str, str], wanted: str) -> HeldImage | None:
    """Return the image of a name, digest or ID; None where it is not here. ``images``: reference → ID."""
    plain = short_name(wanted)
    names = [wanted, plain, f"{plain}:latest"]
    name = next((name for name in names if name in images), None)
    if name is None:
        digits = wanted.removeprefix("sha256:")
        by_id = [n for n, i in images.items() if i.removeprefix("sha256:").startswith(digits)]
        name = min(by_id, default=None) if len(digits) >= _LEAST_ID else None
    if name is None:
        return None
    return HeldImage(name=name, id=images[name], registry=registry_name(images, images[name]))


def registry_name(images: Mapping[str, str], image_id: str) -> str:
    """Return ``name@sha256:…`` of an image that a registry has, else nothing."""
    return min((name for name, i in images.items() if i == image_id and "@sha256:" in name), default="")
