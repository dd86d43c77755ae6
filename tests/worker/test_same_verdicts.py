"""Over repros that are quick: one warm process gives what fresh processes give, from fewer builds."""

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from projects import ROOT, records_below

from tests.calling import Done, Project

IMAGE = "trtmatrix/test:latest"
COLUMNS = (("tensorrt-rtx-1.7", IMAGE, "1.7.1.116"), ("onnxruntime-1.31.1", IMAGE, "1.31.1"))
QUICK = "controls/*,deformable-plugin/*,norm-fp16/*,streams/producer-event,streams/undelayed-event"


Run = tuple[Done, list[dict[str, Any]]]


def run(folder: Path, isolation: str) -> Run:
    """Run the repros over the cases that the other run has prepared; returns the cells' records, too."""
    words = (f"--results={folder / isolation}", f"--isolation={isolation}", f"--case={QUICK}", "--json")
    done = Project(folder, COLUMNS).call("run", *words)
    assert done.code == 0, done.told[-3000:]
    return done, [record for record in records_below(folder / isolation) if "confirms" not in record]


def processes(records: list[dict[str, Any]]) -> int:
    return len({(record["cell"]["version"], record["worker"]["number"]) for record in records})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    subprocess.run([str(ROOT / "docker" / "test" / "build")], check=True)
    folder = tmp_path_factory.mktemp("project")
    return run(folder, "worker"), run(folder, "process")


def test_all_cells_have_the_same_verdict_and_the_same_number(runs: tuple[Run, Run]) -> None:
    """ONNX Runtime computes the same bits each time, with one thread or with several."""
    keys = ("id", "verdict", "cause", "evidence", "surprise", "figure")
    shared, alone = ([[cell[key] for key in keys] for cell in done.data["cells"]] for done, _ in runs)
    assert shared == alone
    assert len(shared) > 80


def test_one_process_served_nearly_all(runs: tuple[Run, Run]) -> None:
    (done, shared), (_, alone) = runs
    assert processes(shared) < len(done.data["cells"]) / 10
    assert processes(alone) == len(done.data["cells"])


def test_no_engine_is_built_twice(runs: tuple[Run, Run]) -> None:
    """Each engine of TensorRT-RTX's real builder is a graph with its options and the number of its build."""
    records = [record for record in runs[0][1] if "engines" in record["engine"]]
    asked = [engine for record in records for engine in record["engine"]["engines"]]
    built = Counter(engine["name"] for engine in asked if "shared_with" not in engine)
    assert set(built.values()) == {1}
    assert set(built) == {engine["name"] for engine in asked}
    assert len(built) < len(asked), "cases of streams have one graph"
    assert {record["ended"] for record in records} == {"built"}
