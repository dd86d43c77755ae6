"""Whether an image ships what a version is pinned for: looked into once, before the first cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.remembered import Remembered
from trtmatrix.judge.judge import wrong_library
from trtmatrix.launchers.image_contents import read_contents
from trtmatrix.launchers.image_facts import find_image
from trtmatrix.launchers.image_says import image_says
from trtmatrix.suite.matrix import ImageOrigin, Version
from trtmatrix.suite.model import Product


def read_environment(image_id: str) -> Mapping[str, str]:
    """Return an image's own variables, which are those that matrix.lock has where it is a locked one."""
    held = find_image(image_id)
    return held.environment if held is not None else {}


class ImageCheck:
    """Looks into images; what each has is remembered in the cache by its ID."""

    def __init__(
        self, cache: Path, read: Callable[[str], dict[str, str]] = read_contents, *,
        variables: Callable[[str], Mapping[str, str]] = read_environment,
        note: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        """Name the cache; ``read`` returns product → version of an image, ``variables`` its environment.

        ``note``: told where nothing could be compared.
        """
        self._remembered, self._read = Remembered(cache), read
        self._variables, self._note = variables, note

    def find_wrong(self, version: Version, image_id: str) -> str | None:
        """Return how what an image ships differs from what a version is pinned for, or None.

        Where its Python cannot say, as without a driver, its own TRT_VERSION does; where nothing does, that
        is told, and the probe compares again, where it runs.
        """
        try:
            found = self._remembered.recall("contents", image_id, lambda: self._read(image_id))
            seen, why = found.get(version.product.value), f"its python3 finds no {version.product.value}"
        except MachineryError as error:
            seen, why = None, str(error)
        if seen is None:
            seen = self._says(version, image_id)
        if seen is None:
            self._tell(f"{version.name}: not checked what its image ships before the first cell: {why}")
            return None
        return wrong_library(seen, version)

    def _says(self, version: Version, image_id: str) -> str | None:
        """Return the TensorRT that an image's variables name; those of one of ours are its base's."""
        origin = version.origin
        ours = isinstance(origin, ImageOrigin) and origin.build is not None
        if ours or version.product is not Product.TENSORRT:
            return None
        return image_says(self._variables(image_id)).tensorrt or None

    def _tell(self, line: str) -> None:
        if self._note is not None:
            self._note(line)
