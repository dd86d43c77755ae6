"""What is private on this host: names, paths, serial numbers, values of the environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from trtmatrix.core.redact import Secrets


def known_secrets(
    workspaces: Iterable[Path] = (),
    *,
    keep: Iterable[str] = (),
    versions: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Secrets:
    """Collect what must not leave this host.

    ``workspaces``: folders beside the working directory and those that the environment names (the project,
    the cache, a model's folder). ``keep``: texts that are wanted in an archive whatever the host is called
    (the cell's id, the image's name); ``versions``: those of the records. ``environment``: default: this
    process's.
    """
    raise NotImplementedError


def warnings(secrets: Secrets) -> tuple[str, ...]:
    """Return what the user should know of names that cannot be told from ordinary words."""
    raise NotImplementedError
