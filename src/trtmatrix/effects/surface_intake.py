"""Surfaces from inside images: asks the probe for those that nobody has, and keeps what it leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path

from trtmatrix.core.api import Origin
from trtmatrix.core.config import Version
from trtmatrix.core.errors import ConfigError
from trtmatrix.core.jsontext import to_json
from trtmatrix.core.model import Product
from trtmatrix.core.surfacefile import format_surface, parse_surface
from trtmatrix.effects.launcher import Ready
from trtmatrix.effects.surfaces import Surfaces, local_folder, read_surfaces

MODULE = "tensorrt"
LEFT = "surface.json"
"""What the probe leaves beside its records."""


class NoIntake:
    """Asks for nothing."""

    def wanted(self, version: Version) -> dict[str, str]:
        """Return what is added to a job: nothing."""
        del version
        return {}

    def take(self, ready: Ready, out: Path) -> None:
        """Keep nothing."""


class SurfaceIntake(NoIntake):
    """Asks for the surface of a TensorRT version that has none, once a run; never troubles a cell."""

    def __init__(self, results: Path, note: Callable[[str], None]) -> None:
        """Name the folder of results; ``note`` is told of what was read, and of what went wrong."""
        self.results, self.note = results, note
        self._had: set[str] = set()

    @cached_property
    def _known(self) -> Surfaces:
        return read_surfaces(self.results)

    def wanted(self, version: Version) -> dict[str, str]:
        """Return what is added to a version's job: nothing where its surface is known."""
        if version.product is not Product.TENSORRT or version.name in self._had:
            return {}
        try:
            return {} if self._known.of(version.name) is not None else {"surface": MODULE}
        except (ConfigError, OSError):  # the packaged store is broken: that is for the commands that need it
            return {}

    def take(self, ready: Ready, out: Path) -> None:
        """Keep the surface that a job left, if it was asked for one and left it."""
        file, name = out / LEFT, ready.launch.version.name
        if not file.is_file() or name in self._had:
            return
        try:
            surface = parse_surface(json.loads(file.read_text(encoding="utf-8")), f"{name}: {LEFT}")
            day = datetime.now(timezone.utc).date().isoformat()
            image = ready.digests.get("image", "")
            origin = Origin(image=image, python=surface.origin.python, extracted=day)
            target = local_folder(self.results) / f"{name}.json"
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
            partial.write_text(to_json(format_surface(replace(surface, origin=origin))), encoding="utf-8")
            partial.replace(target)
        except (ConfigError, OSError, ValueError) as error:
            self.note(f"{name}: the API surface that was read inside could not be kept: {error}")
            return
        self._had.add(name)
        self.note(f"{name}: its API surface was read inside and is kept in {target}")
