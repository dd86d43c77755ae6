"""What the engine knows of an image: digests, operating system, how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trtmatrix.core.errors import MachineryError
from trtmatrix.effects.engine import open_client
from trtmatrix.effects.remembered import Remembered

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


def read_os(image_id: str, remembered: Remembered) -> str:
    """Return the name of an image's operating system, ``"Debian GNU/Linux 12 (bookworm)"``, or nothing."""
    release = remembered.recall("os-release", image_id, lambda: _read_release(image_id))
    facts = dict(line.split("=", 1) for line in release.splitlines() if "=" in line)
    return facts.get("PRETTY_NAME", "").strip('"')


def _read_release(image_id: str) -> str:
    """Return /etc/os-release of an image (https://www.freedesktop.org/software/systemd/man/os-release.html)."""
    import docker.errors

    try:
        said = open_client(60).containers.run(
            image_id, ["/etc/os-release"], entrypoint="cat", remove=True, network_mode="none",
            read_only=True, cap_drop=["ALL"], user="65534:65534",
            environment={"NVIDIA_VISIBLE_DEVICES": "void"},
        )  # fmt: skip
    except docker.errors.ContainerError:  # an image without that file, or without cat
        return ""
    except docker.errors.DockerException as error:
        raise MachineryError(f"the image {image_id} cannot be looked into: {str(error)[:300]}") from error
    return bytes(said).decode("utf-8", "replace")


def read_history(image_id: str) -> str:
    """Return the steps that an image was made by, the oldest first, each with the size that it added."""
    steps = reversed(open_client(60).images.get(image_id).history())
    return "".join(f"{step.get('Size', 0):>13,}  {step.get('CreatedBy', '')}\n" for step in steps)
