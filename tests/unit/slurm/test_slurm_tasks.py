"""How cells are cut into tasks, what sbatch and a task are told, and how long a look at 2,000 cells takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from builders import make_case, make_cell, make_repro
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.slurm.sitefile import EXAMPLE, Site, parse_site
from trtmatrix.slurm.tasks import cut_tasks, sbatch_words, task_script
from trtmatrix.suite.model import CellId
from trtmatrix.suite.plan import Launch


def site_with(text: str) -> Site:
    return parse_site(f"{EXAMPLE}{text}\n")


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
        (4, 1.0, "{}", 1), (4, 20.0, "{}", 2), (40, 60.0, "{running: 8}", 8), (1, 9000.0, "{}", 1),
        (40, 60.0, "{running: 2, minutes: 10}", 8), (2000, 60.0, "{}", 64),
    ],
)  # fmt: skip
def test_tasks_are_as_many_as_are_worth_it(cells: int, seconds: float, limits: str, tasks: int) -> None:
    launch = make_launch(cells)
    assert len(cut_tasks(launch, all_of(launch, seconds), site_with(f"limits: {limits}"))) == tasks


@given(
    cells=st.integers(1, 60),
    seconds=st.floats(0.01, 5000),
    minutes=st.integers(1, 100),
    running=st.integers(1, 9),
)
def test_each_cell_is_in_one_task_and_no_task_is_empty(
    cells: int, seconds: float, minutes: int, running: int
) -> None:
    launch = make_launch(cells)
    site = site_with(f"limits: {{minutes: {minutes}, running: {running}}}")
    tasks = cut_tasks(launch, all_of(launch, seconds), site)
    assert sorted(str(cell.id) for task in tasks for cell in task) == sorted(str(c.id) for c in launch.cells)
    assert all(tasks)


def test_a_gpus_own_options_follow_the_sites_and_nodes_with_trouble_join_those_that_are_excluded() -> None:
    site = site_with("options: ['--exclude=bad', '--nice=1']")
    words = sbatch_words(site, site.gpus[0], name="n", folder="/f", tasks=3, avoid=["worse"])
    assert words.index("--nice=1") < words.index("--partition=gpu")
    assert words[-1] == "--exclude=bad,worse"
    assert {"--array=0-2%8", "--time=60", "--no-requeue", "--export=NONE", "--gres=gpu:h200:1"} <= {*words}


@pytest.mark.parametrize("setup", ["[]", "[module load 'a b', 'export X=\"$HOME\"']"])
def test_the_script_of_a_task_is_bash_that_shellcheck_accepts(setup: str, tmp_path: Path) -> None:
    file = tmp_path / "task.sh"
    file.write_text(task_script(site_with(f"setup: {setup}"), suite="/s", folder="/f", python="/p"))
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, "-s", "bash", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
