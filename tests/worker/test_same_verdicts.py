"""Over the repros that are quick: one warm process gives the verdicts that fresh processes give."""

from __future__ import annotations

import pytest

from tests.worker.conftest import ROOT, Run, Table

QUICK = (
    "controls", "deformable-plugin", "gemm-mha-v2", "norm-fp16", "parser-drops", "streams",
    "transpose-constant",
)  # fmt: skip


@pytest.fixture(scope="module")
def shared(run: Run) -> Table:
    return run("worker", ROOT / "repros", "--repro", ",".join(QUICK))


@pytest.fixture(scope="module")
def alone(run: Run) -> Table:
    return run("process", ROOT / "repros", "--repro", ",".join(QUICK))


def test_all_cells_have_the_same_verdict(shared: Table, alone: Table) -> None:
    assert shared.said() == alone.said()
    assert shared.code == alone.code == 0
    assert len(shared.said()) > 200


def test_all_numbers_are_the_same(shared: Table, alone: Table) -> None:
    """ONNX Runtime computes the same bits each time, with one thread or with several."""
    figures = {name: cell["figure"] for name, cell in shared.cells.items()}
    assert figures == {name: cell["figure"] for name, cell in alone.cells.items()}


def test_one_process_served_nearly_all(shared: Table, alone: Table) -> None:
    assert shared.processes() < len(shared.cells) / 10
    assert alone.processes() == len(alone.cells)
