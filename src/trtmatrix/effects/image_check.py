"""Whether an image ships what a version is pinned for: looked into once, before the first cell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trtmatrix.core.config import Version
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.judge import wrong_library
from trtmatrix.effects.image_contents import read_contents
from trtmatrix.effects.remembered import CONTENTS, Remembered


class ImageCheck:
    """Looks into images; what each has is remembered in the cache by its ID."""

    def __init__(self, cache: Path, read: Callable[[str], dict[str, str]] = read_contents) -> None:
        """Name the cache; ``read`` returns product → version of an image."""
        self._remembered, self._read = Remembered(cache, CONTENTS), read

    def find_wrong(self, version: Version, image_id: str) -> str | None:
        """Return how what an image ships differs from what a version is pinned for, or None.

        An image that cannot say, as without a driver, is no trouble: the probe compares again, where it runs.
        """
        try:
            found = self._remembered.recall("contents", image_id, lambda: self._read(image_id))
        except MachineryError:
            return None
        seen = found.get(version.product.value)
        return None if seen is None else wrong_library(seen, version)
