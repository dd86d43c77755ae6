"""However a cell ends: it gets its record, and the next cell finds nothing left of it."""

import re
from typing import Any

import pytest

from tests.calling import Done
from tests.containers.conftest import GOOD, Project, identity
from tests.containers.engines import TELLS_OUT_OF_MEMORY

pytestmark = pytest.mark.engines

MEMORY = ("NO VERDICT", "out of host memory")
PASS, FAIL = ("PASS", None), ("FAIL", None)

MAY_PASS = {"probe failed", "interrupted", "out of host memory"}
EXPECTED = {
    "passes": (PASS, ""),
    "is-wrong": (FAIL, "max_abs 1 > 0"),
    "eats-memory": (MEMORY, "killed by the kernel: the memory limit was reached"),
    "eats-memory-in-a-child": (PASS, ""),
    "fills-its-output": (("NO VERDICT", "crashed"), r"wrote \d+ bytes; the output folder may hold \d+"),
    "fills-the-scratch": (MEMORY, "killed by the kernel: the memory limit was reached"),
    "fills-the-scratch-and-passes": (PASS, ""),
    "forks": (PASS, ""),
    "spoils-its-record": (("NO VERDICT", "probe failed"), ".*verdict.*a valid number.*found 'quite good'.*"),
    "kills-its-supervisor": (("NO VERDICT", "interrupted"), "the probe ended with code 137: .*"),
    "ends-its-supervisor": (("NO VERDICT", "probe failed"), "the probe ended with code 1: .*"),
}

DOUBTED = {"eats-memory", "fills-its-output", "fills-the-scratch", "spoils-its-record", "ends-its-supervisor"}
"""What may have come of the cells before it in its process, and is no control."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("endings"))


@pytest.fixture(scope="module")
def done(project: Project) -> Done:
    """Run every cell once, in one container for as long as that lives."""
    return project.run("--trt", GOOD, "--repro", "endings")


def expected(case: str, cell: dict[str, Any]) -> tuple[tuple[str, str | None], str]:
    """How a case ends; where the kernel took the supervisor too, not every engine says why."""
    taken_too = case == "fills-the-scratch" and cell["cause"] == "interrupted" and not TELLS_OUT_OF_MEMORY
    return EXPECTED["kills-its-supervisor" if taken_too else case]


@pytest.mark.parametrize("case", EXPECTED)
def test_the_end_is_told_as_it_was(done: Done, case: str) -> None:
    cell = done.cell(case)
    (verdict, cause), reason = expected(case, cell)
    assert (cell["verdict"], cell["cause"]) == (verdict, cause), cell["reason"]
    assert re.fullmatch(reason, cell["reason"], re.DOTALL), cell["reason"]


@pytest.mark.parametrize("case", [case for case in EXPECTED if case != "passes"])
def test_the_next_cell_finds_nothing_left(done: Done, case: str) -> None:
    cell = done.cell(f"after-{case}")
    assert (cell["verdict"], cell["reason"]) == ("PASS", "")


def test_every_cell_has_one_record_and_one_more_where_it_is_tried_again(done: Done, project: Project) -> None:
    assert done.code == 3, done.told
    assert project.jobs() == []
    ids = [cell["id"] for cell in done.data["cells"]]
    assert len(ids) == 2 * len(EXPECTED) - 1
    assert {cell["case"].removeprefix("after-") for cell in done.data["cells"]} == set(EXPECTED)
    assert all(cell["executed"] for cell in done.data["cells"])
    records = project.records()
    first = [record for record in records if "confirms" not in record]
    again = [record for record in records if "confirms" in record]
    assert sorted(identity(record) for record in first) == sorted(ids)
    sampled = {cell["case"] for cell in done.data["cells"] if cell["verdict"] == "PASS"}
    again = [record for record in again if record["cell"]["case"] not in sampled]  # a PASS, by lot
    clear = {case for case in DOUBTED if expected(case, done.cell(case)) != EXPECTED[case]}
    assert {record["cell"]["case"] for record in again} == DOUBTED - clear
    assert len(again) == len(DOUBTED - clear)
    of_the_probe = [r["worker"] for r in again if "worker" in r]  # where it died, the host writes
    assert all(worker["alone"] and not worker["position"] for worker in of_the_probe)


def test_a_child_s_death_by_memory_is_counted_and_not_the_cell_s(done: Done, project: Project) -> None:
    record = project.record(done.cell("eats-memory-in-a-child"))
    assert record["oom_kills"] == 1
    assert record["measurements"]["scalars"]["child_code"] == -9
    assert project.record(done.cell("after-eats-memory-in-a-child"))["oom_kills"] == 0


def test_the_number_of_processes_is_limited(done: Done, project: Project) -> None:
    scalars = project.record(done.cell("forks"))["measurements"]["scalars"]
    assert scalars["refused"] == 1
    assert 900 < scalars["forked"] < 1024


def test_the_output_of_a_control_that_fails_is_kept_by_its_digest(done: Done, project: Project) -> None:
    assert "kept" not in project.record(done.cell("passes"))
    kept = project.record(done.cell("is-wrong"))["kept"]["y"]
    assert [path.stem for path in (project.cache / "outputs").iterdir()].count(kept["sha256"]) == 1


def test_a_second_run_executes_only_what_may_come_out_otherwise(done: Done, project: Project) -> None:
    again = project.run("--trt", GOOD, "--repro", "endings")
    lost = {c["case"] for c in done.data["cells"] if c["cause"] in MAY_PASS}
    assert {cell["case"] for cell in again.data["cells"] if cell["executed"]} == lost
    assert again.code == 3
