"""Two projects of one repro: records are measured in one, packed, and merged into the other."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import make_record
from projects import files_of, matrix_text
from reprosource import SOURCE

from trtmatrix.cli import entry as cli
from trtmatrix.common.errors import ExitCode
from trtmatrix.judge.record import Record, record_from
from trtmatrix.records.store import keep_outputs, write_record
from trtmatrix.suite.model import CellId

MATRIX = matrix_text(
    ("10.7.0", "example.org/tensorrt:10.7.0", "10.7.0"),
    ("onnxruntime-1.31.1", {"wheels": ["onnxruntime==1.31.1"]}, "1.31.1"),
)
CELL = CellId(repro="plain", case="plain", version="10.7.0", gpu="nvidia-h200")
GPU = {"name": "NVIDIA H200", "driver": "580.159", "variant": "140 GiB"}


@dataclass(frozen=True, kw_only=True)
class Place:
    """A project, and what its commands print."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def words(self, *words: str) -> list[str]:
        return [*words, *files_of(self.folder, self.folder / "repros")]

    def merge(self, *files: Path | str) -> tuple[ExitCode, str]:
        """Merge; returns the exit code and what was printed."""
        self.capsys.readouterr()
        code = cli.run(self.words("merge", *map(str, files)))
        printed = self.capsys.readouterr()
        return code, printed.out + printed.err

    def table(self) -> list[dict[str, Any]]:
        """Return the cells of the table, as printed."""
        self.capsys.readouterr()
        cli.run(self.words("table", "--json", "--offline"))
        cells: list[dict[str, Any]] = json.loads(self.capsys.readouterr().out)["cells"]
        return cells

    def measure(self, run: str = "r1", value: float = 1.0, cell: CellId = CELL, **fields: Any) -> Record:
        """Leave a record of a run in the local part."""
        return write_record(self.results / "local", record_from(record_data(run, value, cell, **fields)))

    def pack(self, *words: str, to: str = "packs") -> tuple[ExitCode, Path, str]:
        """Pack records; returns the exit code, the newest pack (or its folder), what was told."""
        self.capsys.readouterr()
        target = self.folder / to
        code = cli.run(self.words("pack", "--records", f"--to={target}", *words))
        printed = self.capsys.readouterr()
        return code, next(iter(sorted(target.glob("*"))), target), printed.out + printed.err

    def keep(self, *values: float) -> Mapping[str, Any]:
        """Keep an output in the cache; returns what a record says of it."""
        np.save(self.folder / "y.npy", np.array(values, np.float32))
        return keep_outputs(self.cache, self.folder, {"y": {"dtype": "float32"}})

    def files(self) -> dict[str, bytes]:
        """Everything that lies in the results, by path."""
        files = sorted(path for path in self.results.rglob("*") if path.is_file())
        return {str(path.relative_to(self.results)): path.read_bytes() for path in files}


def record_data(run: str = "r1", value: float = 1.0, cell: CellId = CELL, **fields: Any) -> dict[str, Any]:
    return dict(make_record(cell, value, run=run, **{"gpu": GPU, "detail": "√ ü", **fields}).data)


def make_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    (folder / "repros").mkdir(parents=True)
    (folder / "matrix.yaml").write_text(MATRIX)
    (folder / "repros" / "plain.py").write_text(SOURCE)
    return Place(folder=folder, capsys=capsys)


NAN = math.nan
