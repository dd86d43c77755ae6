"""Over repros that are quick: one warm process gives what fresh processes give, from fewer builds."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from projects import ROOT, command, matrix_text, records_below

IMAGE = "trtmatrix/test:latest"
MATRIX = matrix_text(("tensorrt-rtx-1.7", IMAGE, "1.7.1.116"), ("onnxruntime-1.31.1", IMAGE, "1.31.1"))
QUICK = "controls/*,deformable-plugin/*,norm-fp16/*,streams/producer-event,streams/undelayed-event"


@dataclass(frozen=True, kw_only=True)
class Table:
    """What a run printed, by cell, and the records that it left."""

    code: int
    cells: dict[str, dict[str, Any]]
    records: list[dict[str, Any]]

    def said(self, *keys: str) -> dict[str, list[Any]]:
        """Return what the cells say, but for what differs from run to run."""
        return {name: [cell[key] for key in keys] for name, cell in self.cells.items()}

    def processes(self) -> int:
        """Return how many processes the cells took."""
        return len({(r["cell"]["version"], r["worker"]["number"]) for r in self.records})


def run(folder: Path, isolation: str) -> Table:
    """Run the repros over the cases that the other run has prepared."""
    (folder / "matrix.yaml").write_text(MATRIX)
    words = (f"--results={folder / isolation}", f"--isolation={isolation}", f"--case={QUICK}", "--json")
    done = subprocess.run(
        command("run", folder, ROOT / "repros", *words), capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr[-3000:]
    cells = {cell["id"]: cell for cell in json.loads(done.stdout)["cells"]}
    return Table(code=done.returncode, cells=cells, records=records_below(folder / isolation))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Table, Table]:
    """Return the tables of the shared process, and of a process for each cell."""
    subprocess.run([str(ROOT / "docker" / "test" / "build")], check=True)
    folder = tmp_path_factory.mktemp("project")
    return run(folder, "worker"), run(folder, "process")


def test_all_cells_have_the_same_verdict_and_the_same_number(tables: tuple[Table, Table]) -> None:
    """ONNX Runtime computes the same bits each time, with one thread or with several."""
    shared, alone = (table.said("verdict", "cause", "evidence", "surprise", "figure") for table in tables)
    assert shared == alone
    assert len(shared) > 80
    assert [table.code for table in tables] == [0, 0]


def test_one_process_served_nearly_all(tables: tuple[Table, Table]) -> None:
    shared, alone = tables
    assert shared.processes() < len(shared.cells) / 10
    assert alone.processes() == len(alone.cells)


def test_no_engine_is_built_twice(tables: tuple[Table, Table]) -> None:
    """Each engine of TensorRT-RTX's real builder is a graph with its options and the number of its build."""
    records = [record for record in tables[0].records if "engines" in record["engine"]]
    asked = [engine for record in records for engine in record["engine"]["engines"]]
    built = Counter(engine["name"] for engine in asked if "shared_with" not in engine)
    assert set(built.values()) == {1}
    assert set(built) == {engine["name"] for engine in asked}
    assert len(built) < len(asked), "cases of streams have one graph"
    assert {record["ended"] for record in records} == {"built"}
