"""Engine plans that the processes of one cell share: the first builds, the others load."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Dict, Tuple


class Plans:
    """A folder of plans, by the graph's content, the build's options, and which build of these it is."""

    def __init__(self, folder: Path) -> None:
        """Count from the first build of this process."""
        self.folder = folder
        self._builds: Dict[str, int] = {}

    def place(self, model: str, options: Tuple[Any, ...]) -> Path:
        """Return where the plan of this process's next build of a graph with these options lies.

        ``model``: what stands for the graph's content (:meth:`trtprobe.models.Model.key`).

        The n-th build of one process is the n-th of another: engines that were built to be compared
        stay several.
        """
        key = hashlib.sha256((model + repr(tuple(options))).encode()).hexdigest()
        number = self._builds.get(key, 0)
        self._builds[key] = number + 1
        return self.folder / ("%s-%d.plan" % (key, number))


def write_plan(path: Path, plan: Any) -> None:
    """Write a plan (anything with the buffer interface) whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as stream:
        stream.write(memoryview(plan))
    partial.replace(path)
