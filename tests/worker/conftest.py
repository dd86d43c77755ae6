"""Runs of the real command line in the test image, warm and each cell alone, over the same prepared cases."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from projects import command, matrix_text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "docker" / "test" / "build"

IMAGE = "trtmatrix/test:latest"


@dataclass(frozen=True, kw_only=True)
class Table:
    """What a run printed and the records that it left, both by cell id."""

    code: int
    cells: dict[str, dict[str, Any]]
    records: dict[str, list[dict[str, Any]]]

    def said(self) -> dict[str, tuple[Any, ...]]:
        """Return each cell's verdict and what it rests on, but for what differs from run to run."""
        return {
            name: (cell["verdict"], cell["cause"], cell["evidence"], cell["surprise"])
            for name, cell in self.cells.items()
        }

    def processes(self) -> int:
        """Return how many processes the plain cells took."""
        found = [record for records in self.records.values() for record in records]
        return len({(r["cell"]["version"], r["worker"]["number"]) for r in found})


Run = Callable[..., Table]


@pytest.fixture(scope="session", autouse=True)
def _image() -> None:
    """Build the image where it is not there; its errors are shown."""
    subprocess.run([str(BUILD)], check=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return what runs the matrix over a folder of repros: (isolation, repros, words) → table."""
    folder = tmp_path_factory.mktemp("project")
    columns = ("tensorrt-rtx-1.7", IMAGE, "1.7.1.116"), ("onnxruntime-1.31.1", IMAGE, "1.31.1")
    (folder / "matrix.yaml").write_text(matrix_text(*columns))

    def call(isolation: str, repros: Path, *words: str) -> Table:
        results = folder / f"results-{isolation}"
        words = (f"--results={results}", f"--isolation={isolation}", "--json", *words)
        done = subprocess.run(
            command("run", folder, repros, *words), capture_output=True, text=True, check=False
        )
        assert done.stdout, done.stderr[-3000:]
        cells = {cell["id"]: cell for cell in json.loads(done.stdout)["cells"]}
        records: dict[str, list[dict[str, Any]]] = {}
        for file in sorted(results.rglob("*.json")):
            record = json.loads(file.read_text())
            name = "{repro}/{case}@{version}#{gpu}".format(**record["cell"])
            records.setdefault(name, []).append(record)
        return Table(code=done.returncode, cells=cells, records=records)

    return call
