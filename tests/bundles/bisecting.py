"""A project of six images, and the real command line of bisect over it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.models.conftest import Done

REPOSITORY = Path(__file__).resolve().parents[2]
REPROS = Path(__file__).parent / "repros"

COLUMN = """\
  - version: "onnxruntime-1.{number}"
    product: onnxruntime
    origin: {{image: "{image}"}}
    library: {{value: "{library}", known: measured, source: here}}
"""


def answers(done: Done) -> list[str | None]:
    """Return what each of the row answered."""
    return [line["answer"] for line in done.data["row"]]


class Project:
    """matrix.yaml whose six versions are six images, results and cache in a folder."""

    def __init__(self, folder: Path, row: tuple[str, ...], libraries: tuple[str, ...]) -> None:
        self.folder, self.row = folder, row
        text = 'schema: 1\nsources:\n  here: {title: "This test"}\nversions:\n'
        for number, (image, library) in enumerate(zip(row, libraries, strict=True), 1):
            text += COLUMN.format(number=number, image=image, library=library)
        (folder / "matrix.yaml").write_text(text)

    @property
    def images(self) -> list[str]:
        """The options that name all images."""
        return [word for image in self.row for word in ("--image", image)]

    def command(self, command: str, *words: str) -> list[str]:
        """Return the words of a command over this project."""
        files = [f"--matrix={self.folder / 'matrix.yaml'}", f"--repros={REPROS}"]
        files += [f"--results={self.folder / 'results'}", f"--cache={self.folder / 'cache'}"]
        return [sys.executable, "-m", "trtmatrix", command, *files, *words]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command."""
        return {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}

    def call(self, command: str, *words: str) -> Done:
        """Call ``trtmatrix`` as a user does."""
        done = subprocess.run(
            self.command(command, *words), capture_output=True, text=True, check=False, timeout=240,
            cwd=self.folder, env=self.environment,
        )  # fmt: skip
        return Done(code=done.returncode, printed=done.stdout, told=done.stderr)

    def bisect(self, *words: str) -> Done:
        """Bisect, and print JSON."""
        return self.call("bisect", "--json", "--product", "onnxruntime", *words)
