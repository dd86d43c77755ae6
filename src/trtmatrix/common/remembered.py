"""What takes long to find out and does not change: what is in an image or a large file, kept as JSON."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TypeVar, cast

from trtmatrix.common.paths import whole_file

T = TypeVar("T", str, list[str], dict[str, str])

KEPT = 30
"""Files that are kept; the oldest go."""


class Remembered:
    """Values by content in ``<cache>/known``."""

    def __init__(self, cache: Path) -> None:
        """Name the folder."""
        self.folder = cache / "known"

    def recall(self, kind: str, content: str, compute: Callable[[], T]) -> T:
        """Return what ``compute`` gives for a content, computed only where it is not remembered.

        What ``compute`` raises is raised each time. A folder that cannot be written is no error.
        """
        path = self.folder / f"{kind}-{sha256(content.encode()).hexdigest()[:40]}.json"
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(path.read_bytes())
            if known["content"] == content:
                return cast("T", known["value"])
        value = compute()
        with contextlib.suppress(OSError):
            with whole_file(path) as out:
                out.write(json.dumps({"content": content, "value": value}).encode())
            files = sorted(self.folder.iterdir(), key=lambda file: file.stat().st_mtime_ns, reverse=True)
            for file in files[KEPT:]:
                file.unlink(missing_ok=True)
        return value
