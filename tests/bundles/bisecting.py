"""A project of six images, and the real command line of bisect over it."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.models import conftest
from tests.models.conftest import Done

REPROS = Path(__file__).parent / "repros"


def answers(done: Done) -> list[str | None]:
    """Return what each of the row answered."""
    return [line["answer"] for line in done.data["row"]]


class Project(conftest.Project):
    """matrix.yaml whose six versions are six images, results and cache in a folder."""

    def __init__(self, folder: Path, row: tuple[str, ...], libraries: tuple[str, ...]) -> None:
        columns = [
            (f"onnxruntime-1.{number}", image, library)
            for number, (image, library) in enumerate(zip(row, libraries, strict=True), 1)
        ]
        super().__init__(folder, columns=columns, repros=REPROS)
        self.images = [word for image in row for word in ("--image", image)]
        """The options that name all images."""

    def command(self, command: str, *words: str) -> list[str]:
        """Return the words of a command over this project."""
        return [sys.executable, "-m", "trtmatrix", command, *self.files, *words]

    def bisect(self, *words: str) -> Done:
        """Bisect, and print JSON."""
        return self.call("bisect", "--json", "--product", "onnxruntime", *words)
