"""Asks registries what an image's name stands for: manifests and configurations, never a layer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trtmatrix.core.lock import LockedImage


class Registry:
    """Registries, asked over their HTTP API; may be used by several threads.

    ``insecure``: hosts and networks that are spoken to in plain HTTP, as the engine has them
    (``Engine.insecure``), beside loopback; ``note``: told of waits; ``attempts``: how often is asked where an
    answer is cut off or put off; ``seconds``: to connect, and between two pieces of an answer;
    ``certificates``: folders in the manner of ``/etc/docker/certs.d``, else those of Docker and Podman.
    """

    def __init__(
        self,
        *,
        insecure: Sequence[str] = (),
        sleep: Callable[[float], None] = time.sleep,
        note: Callable[[str], None] | None = None,
        attempts: int = 4,
        seconds: tuple[float, float] = (10.0, 30.0),
        certificates: Sequence[Path] | None = None,
    ) -> None:
        """Keep how to ask; nothing is asked yet."""

    def resolve(self, image: str, ask: str | None = None) -> LockedImage:
        """Return what an image's name stands for now. ``ask``: the reference really asked, a mirror's.

        Raises :class:`RegistryError`, and :class:`UsageError` where it is no image's name.
        """
        raise NotImplementedError

    def check(self, reference: str) -> str:
        """Return the digest that a reference stands for now, without reading its manifest.

        Raises :class:`RegistryError`, and :class:`UsageError` where it is no image's name.
        """
        raise NotImplementedError
