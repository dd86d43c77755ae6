"""How work is cut into tasks and arrays, and how long a task may take."""

from __future__ import annotations

import pytest
from builders import make_case, make_cell, make_repro
from hypothesis import given
from hypothesis import strategies as st
from slurmtries import make_task

from trtmatrix.core.model import CellId
from trtmatrix.core.plan import Launch
from trtmatrix.core.slurm.cut import GUESSED_SECONDS, cut_arrays, cut_tasks, task_minutes
from trtmatrix.core.slurm.site import SiteLimits


def make_launch(count: int) -> Launch:
    cases = [make_case(f"case-{number}") for number in range(count)]
    repro = make_repro(*cases)
    cells = tuple(make_cell(repro, case) for case in cases)
    return Launch(version=cells[0].version, gpu=cells[0].gpu, cells=cells)


def all_of(launch: Launch, seconds: float) -> dict[CellId, float]:
    return {cell.id: seconds for cell in launch.cells}


@pytest.mark.parametrize(
    ("cells", "seconds", "limits", "tasks"),
    [
        (4, 1.0, SiteLimits(), 1),
        (4, 40.0, SiteLimits(), 2),
        (40, 60.0, SiteLimits(running=8), 8),
        (40, 60.0, SiteLimits(running=2, minutes=10), 8),
        (1, 9000.0, SiteLimits(), 1),
    ],
    ids=["not worth a second", "worth two", "as many as may run", "more, since none is to be cut off", "one"],
)
def test_tasks_are_as_many_as_are_worth_it(
    cells: int, seconds: float, limits: SiteLimits, tasks: int
) -> None:
    launch = make_launch(cells)
    assert len(cut_tasks(launch, all_of(launch, seconds), limits)) == tasks


def test_cells_that_were_never_run_are_guessed() -> None:
    launch = make_launch(12)
    assert len(cut_tasks(launch, {}, SiteLimits())) == 12 * GUESSED_SECONDS // 60


def test_a_container_for_each_cell_is_a_task_for_each() -> None:
    launch = make_launch(5)
    assert cut_tasks(launch, {}, SiteLimits(), single=True) == [(cell.id,) for cell in launch.cells]


@given(
    st.lists(st.floats(0.0, 5000.0), min_size=1, max_size=30), st.integers(1, 9), st.integers(1, 120),
    st.integers(1, 9),
)  # fmt: skip
def test_every_cell_is_in_one_task_of_one_array(
    seconds: list[float], running: int, minutes: int, tasks: int
) -> None:
    launch = make_launch(len(seconds))
    limits = SiteLimits(running=running, minutes=minutes, tasks=tasks)
    known = {cell.id: time for cell, time in zip(launch.cells, seconds, strict=True)}
    cut = cut_tasks(launch, known, limits)
    assert sorted(cell for task in cut for cell in task) == sorted(known)
    asked = [make_task(len(task)) for task in cut]
    arrays = cut_arrays(asked, limits)
    assert [task for array in arrays for task in array] == asked
    assert max(map(len, arrays)) <= tasks


def test_a_short_task_asks_for_a_short_time_once_it_is_known() -> None:
    task, limits = make_task(2, seconds=60.0), SiteLimits(minutes=60)
    seconds = {asked.cell: 20.0 for asked in task}
    assert task_minutes([task], seconds, frozenset(seconds), limits) == 8  # 300 + 3 * 40 + 60 s
    assert task_minutes([task], seconds, frozenset({task[0].cell}), limits) == 60
    assert task_minutes([task], seconds, frozenset(seconds), SiteLimits(minutes=5)) == 5
