"""Images on a site: by which key each is shared, and which of matrix.yaml's a site's own stand for. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256

from trtmatrix.core.config import ImageOrigin, Matrix, Version
from trtmatrix.core.pulls import SIGNS
from trtmatrix.core.slurm.site import NodeRuntime, Site
from trtmatrix.core.slurm.words import Trouble

FILES: Mapping[NodeRuntime, str] = {
    NodeRuntime.PYXIS: ".sqsh", NodeRuntime.APPTAINER: ".sif", NodeRuntime.DOCKER: ".tar",
}  # fmt: skip
"""What the file of an image ends with that a runtime starts, or loads, as it is."""
NOT_THE_LOCKS = re.compile(r"not the image of matrix\.lock")


def is_lasting(trouble: str, said: str) -> bool:
    """Whether an import that failed so would fail again: a refused login, no such image, a full disk.

    ``trouble``: the script's word for it; ``said``: in whose words. What is not known may mend itself, as
    may a registry that nobody answers at: the next node may reach it.
    """
    if trouble not in {Trouble.IMAGE, Trouble.FILES}:
        return False
    sign = next((sign for sign in SIGNS if re.search(sign.words, said, re.IGNORECASE)), None)
    return bool(NOT_THE_LOCKS.search(said)) or (sign is not None and not (sign.again or sign.cut))


def is_image_file(reference: str) -> bool:
    """Whether a site's image is a file that every node sees, not a name in a registry."""
    return reference.startswith("/") and reference.endswith(tuple(FILES.values()))


def image_key(runtime: NodeRuntime, reference: str, stamp: str = "") -> str:
    """Return the key of an image on the shared folder; ``stamp``: what changes with a file's content."""
    return sha256(f"{runtime.value}\n{reference}\n{stamp}".encode()).hexdigest()[:16]


def with_site_images(matrix: Matrix, site: Site) -> Matrix:
    """Return the matrix with the site's own images in place of those that they stand for.

    What is locked or built of the image that is replaced says nothing of the one that replaces it.
    """
    return replace(matrix, versions=tuple(_with_site_image(version, site) for version in matrix.versions))


def _with_site_image(version: Version, site: Site) -> Version:
    image = site.images.get(version.name)
    if image is None or not isinstance(version.origin, ImageOrigin):
        return version
    return replace(version, origin=ImageOrigin(image=image))


def image_digest(version: Version, image_id: str, runtime: NodeRuntime) -> str:
    """Return what records name an image by: Docker's own ID, else the lock's, else ``image_id``.

    enroot and Apptainer make files of their own of an image: their digests are of these files. The lock's
    is that of the configuration that they were made of, by which every host knows the image.
    """
    origin = version.origin
    locked = isinstance(origin, ImageOrigin) and origin.pin is not None
    if runtime is NodeRuntime.DOCKER or not locked:
        return image_id
    assert isinstance(origin, ImageOrigin) and origin.pin is not None  # noqa: PT018, S101 - for mypy
    return origin.pin.ids[0]
