"""What the engine knows of an image: digests, operating system, how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trtmatrix.launchers.engine import open_client

LABELS = "io.trtmatrix.image."
"""The start of the labels that docker/wheels/build gives an image."""


@dataclass(frozen=True, kw_only=True)
class HeldImage:
    """An image of this host.

    ``references``: ``name@sha256:…`` of each registry that it came from or went to. ``labels``: what the
    project says of an image that it made, without their common start (none: it made none); ``environment``:
    the image's own variables.
    """

    id: str
    references: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def find_image(name: str) -> HeldImage | None:
    """Return the image of a name or an id; None where it is not here or no engine answers."""
    import docker.errors
    import requests.exceptions

    try:
        image = open_client(60).images.get(name)
    except (docker.errors.DockerException, requests.exceptions.RequestException):
        return None
    digests = image.attrs.get("RepoDigests") or []
    variables = (entry.partition("=") for entry in (image.attrs.get("Config") or {}).get("Env") or [])
    return HeldImage(
        id=str(image.id), references=tuple(sorted(digests)),
        labels={n.removeprefix(LABELS): text for n, text in image.labels.items() if n.startswith(LABELS)},
        environment={name: value for name, _, value in variables},
    )  # fmt: skip
