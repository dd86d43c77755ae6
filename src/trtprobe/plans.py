"""Engine plans that the cells of a job share, so that no engine is built twice.

A job is one version on one GPU in one container, so a plan is known by its graph, its options and its number.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

FOLDER = "plans"
"""Where a job's plans lie in its output folder: each cell's in a folder of the cell's number."""

LARGEST = 256 << 20
"""Bytes of a plan that is kept; a larger one is built again."""

ALL = 1 << 30
"""Bytes of all plans of a job; what does not fit beside those that are kept is built again."""


class Plans:
    """A job's plans as one cell sees them: it reads every cell's, and adds its own."""

    def __init__(self, folder: Optional[Path] = None, cell: str = "") -> None:
        """Name the folder of the cell's own plans, beside those of others; without one none is kept."""
        self.folder, self.cell = folder, cell
        self._counted: Dict[str, int] = {}

    def name_next(self, graph: str, options: object) -> str:
        """Return the name of the cell's next build of a graph (by its digest) with these options.

        The n-th build of one cell is the n-th of another: engines that are built to be compared stay several.
        """
        key = hashlib.sha256((graph + repr(options)).encode()).hexdigest()[:32]
        self._counted[key] = number = self._counted.get(key, -1) + 1
        return "%s-%d" % (key, number)

    def find(self, name: str) -> Optional[Tuple[bytes, Dict[str, Any]]]:
        """Return a plan with its facts, None where it is not kept."""
        for path in self.folder.parent.glob("*/%s.plan" % name) if self.folder else ():
            with contextlib.suppress(OSError, ValueError):
                facts: Dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
                return path.read_bytes(), facts
        return None

    def keep(self, name: str, plan: memoryview, facts: Dict[str, Any]) -> None:
        """Keep a plan that was built here, whole or not at all; a full disk costs no cell."""
        if self.folder is None or plan.nbytes > LARGEST:
            return
        path, partial = self.folder / (name + ".plan"), self.folder / (name + ".partial")
        try:
            if sum(kept.stat().st_size for kept in self.folder.parent.glob("*/*.plan")) + plan.nbytes > ALL:
                return
            self.folder.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".json").write_text(json.dumps({**facts, "shared_with": self.cell}))
            partial.write_bytes(plan)
            partial.replace(path)
        except OSError as error:
            print("an engine is not kept for other cells: %s" % error, flush=True)
            with contextlib.suppress(OSError):
                partial.unlink()
