"""Pulls an image through the engine: cuts are waited out, what cannot get better is told at once."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import docker
import docker.errors

from trtmatrix.launchers.engine_errors import ENGINE_ERRORS
from trtmatrix.launchers.pulls import WAITS, explain_pull

PullNote = Callable[[str, str, int, int], None]
"""Told of each layer: image, layer, bytes so far, bytes in all (0 where not known)."""

RETRYING = re.compile(r"Retrying in (\d+) second")


@dataclass(kw_only=True)
class Came:
    """What has come of an image, over all tries: bytes by layer, as far as the engine told of them."""

    layers: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    waits: dict[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes that came."""
        return sum(self.layers.values())


class Puller:
    """Pulls by the engine. ``platform``: for which, such as ``linux/amd64``; empty: as the engine likes."""

    def __init__(
        self, *, pull_note: PullNote, note: Callable[[str], None], platform: str = "",
        command: str = "docker", waits: Sequence[float] = WAITS, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        """Keep whom to tell, and how long to wait before each further try."""
        self.pull_note, self.note, self.platform = pull_note, note, platform
        self.command = command
        self.waits, self.sleep = tuple(waits), sleep

    def pull(self, reference: str, client: docker.DockerClient) -> int:
        """Pull an image; returns the bytes that came. :class:`MachineryError` says why it cannot be had."""
        came = Came()
        for wait in (*self.waits, None):
            try:
                self._pull_once(reference, client, came)
            except ENGINE_ERRORS as error:
                setback = explain_pull(
                    reference, _said(error), got_some=bool(came.layers), command=self.command
                )
                if wait is None or not setback.again:
                    raise setback.error from error
                self.note(f"{reference}: {setback.cause}; tried again in {wait:g} s")
                self.sleep(wait)
            else:
                break
        return came.size

    def _pull_once(self, reference: str, client: docker.DockerClient, came: Came) -> None:
        """Pull once, telling of each layer."""
        events = client.api.pull(reference, stream=True, decode=True, platform=self.platform or None)
        for event in events:
            if "error" in event:
                raise docker.errors.APIError(str(event["error"]))
            self._tell(reference, event, came)

    def _tell(self, reference: str, event: dict[str, Any], came: Came) -> None:
        progress, layer = event.get("progressDetail") or {}, str(event.get("id", ""))
        status = str(event.get("status", ""))
        current, total = int(progress.get("current", 0)), int(progress.get("total", 0))
        if status in {"Pulling fs layer", "Downloading"}:
            came.layers[layer] = max(current, came.layers.get(layer, 0))
            came.totals[layer] = max(total, came.totals.get(layer, 0))
        elif status == "Download complete" and layer in came.layers:
            came.layers[layer] = max(came.layers[layer], came.totals.get(layer, 0))
        if (retrying := RETRYING.match(status)) is not None:
            left = int(retrying[1])
            if left > came.waits.get(layer, 0):  # it counts down: told once for each try
                self.note(f"{reference}: layer {layer} was cut off; the engine goes on with it in {left} s")
            came.waits[layer] = left
        self.pull_note(reference, f"{layer} {status}".strip(), current, total)


def _said(error: Exception) -> str:
    """Return the engine's own words: what Docker's SDK adds tells of the engine, not of the registry."""
    return str(getattr(error, "explanation", None) or error)
