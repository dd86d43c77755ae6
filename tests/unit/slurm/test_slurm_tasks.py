"""How cells are cut into tasks, what sbatch and a task are told, and how long a look at 2,000 cells takes."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import make_case, make_cell, make_repro
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.slurm.commands import JobState
from trtmatrix.slurm.shared import Shared
from trtmatrix.slurm.sitefile import EXAMPLE, Site, parse_site
from trtmatrix.slurm.tasks import cut_tasks, run_line, sbatch_words, task_script
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


def test_a_task_is_what_a_person_would_type_on_the_node() -> None:
    launch = make_launch(2)
    site = site_with("images: {'10.7.0': /images/a.sqsh}")
    line = run_line(launch.cells, site, site.gpus[0], suite="/s", options=["--memory=1"])
    words = shlex.split(line)
    assert words[:2] == ["trtmatrix", "run"]
    assert {"--engine=pyxis", "--image=10.7.0=/images/a.sqsh", "--gpu=NVIDIA H200", "--memory=1"} <= {*words}
    assert sum(word.startswith("--case=") for word in words) == 2


@pytest.mark.parametrize("setup", ["[]", "[module load 'a b', 'export X=\"$HOME\"']"])
def test_the_script_of_a_task_is_bash_that_shellcheck_accepts(setup: str, tmp_path: Path) -> None:
    file = tmp_path / "task.sh"
    file.write_text(task_script(site_with(f"setup: {setup}"), suite="/s", folder="/f", python="/p"))
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, "-s", "bash", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("state", "reason", "over", "stuck"),
    [
        ("RUNNING", "None", False, False), ("COMPLETING", "None", False, False),
        ("NODE_FAIL", "", True, False),
        ("PENDING", "Resources", False, False), ("PENDING", "launch failed requeued held", False, True),
        ("PENDING", "(user_env_retrieval_failed)", False, True), ("PENDING", "JobHeldUser", False, False),
    ],
)  # fmt: skip
def test_what_a_state_means(state: str, reason: str, over: bool, stuck: bool) -> None:
    job = JobState(state=state, reason=reason)
    assert (job.is_over, job.is_stuck) == (over, stuck)


def test_two_clients_decide_one_after_the_other(tmp_path: Path) -> None:
    told: list[str] = []
    shared = Shared(tmp_path, told.append)
    shared.check()
    code = "import sys, time; from pathlib import Path; from trtmatrix.slurm.shared import Shared\n"
    code += "with Shared(Path(sys.argv[1]), print).lock(): print('held', flush=True); time.sleep(1)"

    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        began = time.monotonic()
        with shared.lock():
            assert time.monotonic() - began > 0.5
