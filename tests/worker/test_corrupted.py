"""A cell that harms its process on purpose changes no verdict but its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worker.conftest import Run, Table

REPROS = Path(__file__).resolve().parent / "repros"
PRODUCT = ("--trt", "onnxruntime")


@pytest.fixture(scope="module")
def shared(run: Run) -> Table:
    return run("worker", REPROS, *PRODUCT)


@pytest.fixture(scope="module")
def alone(run: Run) -> Table:
    return run("process", REPROS, *PRODUCT)


def test_verdicts_are_those_of_cells_that_had_a_process_to_themselves(shared: Table, alone: Table) -> None:
    assert shared.said() == alone.said()
    assert len(alone.said()) == 56


def test_what_follows_a_harm_is_judged_by_what_it_is(shared: Table) -> None:
    verdicts = {cell["case"]: cell["verdict"] for cell in shared.cells.values()}
    for start, right in (("right-after", "PASS"), ("wrong-after", "FAIL")):
        assert {verdict for name, verdict in verdicts.items() if name.startswith(start)} == {right}


def test_what_kills_a_process_is_the_cell_s_own_that_did_it(shared: Table) -> None:
    ended = {r["cell"]["case"]: r for records in shared.records.values() for r in records}
    assert "SIGSEGV" in ended["faults"]["detail"]
    assert "SIGKILL" in ended["kills-itself"]["detail"]
    for record in ended.values():
        if "after" in record["cell"]["case"]:
            assert record["ended"] == "ran", record["detail"]


def test_a_harmed_process_serves_no_other_cell(shared: Table) -> None:
    harms = (
        "results-become-zeros", "a-session-remembers", "the-probe-measures-nothing", "numpy-is-rebound",
        "numpy-raises", "rounding", "environment", "folder", "a-thread", "a-child", "an-alarm", "no-output",
    )  # fmt: skip
    seen = {case: first(shared, case)["worker"]["ended"] for case in harms}
    assert all("changed or left" in ended for ended in seen.values()), seen


def test_a_dangerous_cell_costs_its_process(shared: Table) -> None:
    assert "dangerous" in first(shared, "dangerous")["worker"]["ended"]
    assert first(shared, "right-after-dangerous")["worker"]["position"] == 0


def first(table: Table, case: str) -> dict[str, Any]:
    """Return the first record of a case."""
    records = [r for found in table.records.values() for r in found if r["cell"]["case"] == case]
    return min(records, key=lambda record: str(record["started"]))
