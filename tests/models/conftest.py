"""The exported models, the images, the real command line over them; without torch or an engine all fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from projects import Column, files_of, matrix_text

from tests.models import images

REPOSITORY = Path(__file__).resolve().parents[2]
OLDER, CURRENT = f"onnxruntime-{images.OLDER_VERSION}", f"onnxruntime-{images.CURRENT_VERSION}"
RTX = "tensorrt-rtx-1.7"


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended: its code, what it printed, and what it told beside that."""

    code: int
    printed: str
    told: str

    @property
    def data(self) -> dict[str, Any]:
        """What was printed, as JSON."""
        data: dict[str, Any] = json.loads(self.printed)
        return data

    def verdicts(self) -> dict[str, str]:
        """Return each version's verdict of the one case."""
        return {cell["version"]: cell["verdict"] for cell in self.data["cells"]}


class Project:
    """matrix.yaml, results and cache in a folder; ``current``: the image of the newer ONNX Runtime."""

    def __init__(
        self, folder: Path, current: str = images.CURRENT, columns: Sequence[Column] | None = None,
        repros: Path = REPOSITORY / "repros",
    ) -> None:  # fmt: skip
        self.folder, self.results, self.repros = folder, folder / "results", repros
        columns = columns or [
            (RTX, images.CURRENT, "1.7.1.116"),
            (OLDER, images.OLDER, images.OLDER_VERSION),
            (CURRENT, current, images.CURRENT_VERSION),
        ]
        (folder / "matrix.yaml").write_text(matrix_text(*columns))

    @property
    def files(self) -> list[str]:
        """The options that name the project's files."""
        return files_of(self.folder, self.repros)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command."""
        return {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}

    def call(self, command: str, *words: str) -> Done:
        """Call ``trtmatrix`` as a user does."""
        return self.call_bare(command, *self.files, *words)

    def call_bare(self, *words: str, variables: Mapping[str, str] = MappingProxyType({})) -> Done:
        """The same without the project's files, with further environment variables."""
        done = subprocess.run(
            [sys.executable, "-m", "trtmatrix", *words], capture_output=True, text=True, check=False,
            timeout=240, cwd=self.folder, stdin=subprocess.DEVNULL,
            env={**self.environment, **variables},
        )  # fmt: skip
        return Done(code=done.returncode, printed=done.stdout, told=done.stderr)

    def run(self, model: Path, *words: str) -> Done:
        """Run a model with the samples beside it, and print JSON."""
        inputs = model.parent / "inputs"
        return self.run_with(model, inputs if inputs.is_dir() else None, *words)

    def run_with(self, model: Path, inputs: Path | None, *words: str) -> Done:
        """The same with these inputs."""
        given = [f"--inputs={inputs}"] if inputs else []
        return self.call("run", f"--model={model}", *given, "--json", *words)

    def record(self, place: str) -> dict[str, Any]:
        """Return the newest record of a version, or of ``version/repro``."""
        newest = max(self.results.rglob(f"{place}/**/*.json"))
        record: dict[str, Any] = json.loads(newest.read_text())
        return record


@pytest.fixture(scope="session", autouse=True)
def _images() -> None:
    """Make the two images beside the test image's."""
    images.make_older()
    images.make_defective()


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that exports a model, once, and returns its file."""
    from tests.models.export import write

    folder = tmp_path_factory.mktemp("exported")
    return lru_cache(maxsize=None)(lambda name: write(name, folder / name))
