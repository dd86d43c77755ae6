"""slurm.yaml and its page; how cells are cut into tasks; GPUs of nodes in plans and in what is run again."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from builders import make_case, make_cell, make_record, make_repro, make_version
from goldenfile import check_golden
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.common.errors import ConfigError
from trtmatrix.common.paths import Project
from trtmatrix.judge.entry import Stored
from trtmatrix.plan.order import find_changes
from trtmatrix.records.store import record_path, write_record
from trtmatrix.slurm import sitefile
from trtmatrix.slurm.cluster import Cluster
from trtmatrix.slurm.commands import SlurmAway, submit
from trtmatrix.slurm.sitefile import EXAMPLE, Site
from trtmatrix.slurm.tasks import cut_tasks, run_line, sbatch_words, task_script
from trtmatrix.suite.cells import Cell, Selection
from trtmatrix.suite.keys import keys_schema, parse_keys
from trtmatrix.suite.model import Exclusion, Gpu
from trtmatrix.suite.plan import Engine, GpuAccess, Host, Launch, Plan, Pull, make_plan


def site_with(text: str) -> Site:
    return parse_keys(Site, f"{EXAMPLE}{text}\n", "slurm.yaml")


def make_launch(count: int) -> Launch:
    cases = [make_case(f"case-{number}") for number in range(count)]
    repro = make_repro(*cases)
    cells = tuple(make_cell(repro, case) for case in cases)
    return Launch(version=cells[0].version, gpu=cells[0].gpu, cells=cells)


def cut(launch: Launch, seconds: float, limits: str) -> list[list[Cell]]:
    """Cut a launch whose cells take so long each."""
    times = {cell.id: seconds for cell in launch.cells}
    return [list(task) for task in cut_tasks(launch, times, site_with(f"limits: {limits}"))]


@pytest.mark.parametrize(
    ("cells", "seconds", "limits", "tasks"),
    [
        (4, 1.0, "{}", 1), (4, 20.0, "{}", 2), (40, 60.0, "{running: 8}", 8), (1, 9000.0, "{}", 1),
        (40, 60.0, "{running: 2, minutes: 10}", 8), (2000, 60.0, "{}", 64),
    ],
)  # fmt: skip
def test_tasks_are_as_many_as_are_worth_it(cells: int, seconds: float, limits: str, tasks: int) -> None:
    assert len(cut(make_launch(cells), seconds, limits)) == tasks


@given(st.integers(1, 60), st.floats(0.01, 5000), st.integers(1, 100), st.integers(1, 9))
def test_each_cell_is_in_one_task_and_no_task_is_empty(
    cells: int, seconds: float, minutes: int, running: int
) -> None:
    launch = make_launch(cells)
    tasks = cut(launch, seconds, f"{{minutes: {minutes}, running: {running}}}")
    assert sorted(str(cell.id) for task in tasks for cell in task) == sorted(str(c.id) for c in launch.cells)
    assert all(tasks)


def test_each_task_gets_the_options_and_images_of_the_site() -> None:
    text = EXAMPLE.replace("    partition: gpu\n", "    partition: gpu\n    options: ['--licenses=trt']\n")
    text += "options: ['--exclude=bad', '--partition=slow']\n"
    text += "images: {'10.7.0': 'a/b:c', '10.8.0': /images/a.sqsh}\n"
    site = parse_keys(Site, text, "slurm.yaml")
    words = sbatch_words(site, site.gpus[0], name="n", folder="/f", tasks=3, avoid=["worse"])
    assert [word for word in words if "partition" in word] == ["--partition=slow", "--partition=gpu"]
    assert words[-2:] == ["--licenses=trt", "--exclude=bad,worse"], "of doubled words sbatch takes the last"
    assert {"--array=0-2%8", "--time=60", "--no-requeue", "--export=NONE", "--gres=gpu:h200:1"} <= {*words}
    cells = make_launch(2).cells
    told = shlex.split(run_line(cells, site, site.gpus[0], suite="/s", options=[]))
    images = ["--image=10.7.0=a/b:c", "--image=10.8.0=/images/a.sqsh"]
    cases = [f"--case={cell.repro.id}/{cell.case.id}" for cell in cells]
    assert sorted(word for word in told if word.startswith(("--image", "--case"))) == sorted(images + cases)


@pytest.mark.parametrize("setup", ["[]", "[module load 'a b', 'export X=\"$HOME\"']"])
def test_the_script_of_a_task_is_bash_that_shellcheck_accepts(setup: str, tmp_path: Path) -> None:
    file = tmp_path / "task.sh"
    file.write_text(task_script(site_with(f"setup: {setup}"), suite="/s", folder="/f", python="/p"))
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, "-s", "bash", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "slurm.md").read_text(encoding="utf-8")


def mistakes(text: str) -> str:
    """What is said of a file."""
    try:
        parse_keys(Site, text, "slurm.yaml")
    except ConfigError as error:
        return str(error)
    return "right"


def test_each_example_is_right_and_one_is_that_of_the_page() -> None:
    assert parse_keys(Site, EXAMPLE, "slurm.yaml").gpu("nvidia-h200").partition == "gpu"
    assert f"```yaml\n{EXAMPLE}```\n" in PAGE
    for file in (DOCS / "examples" / "slurm").glob("*.yaml"):
        assert parse_keys(Site, file.read_text(encoding="utf-8"), str(file)).runtime == file.stem


SEVERAL = """\
schema: 1
shared: shared
runtime: docker
gpus:
  - {name: NVIDIA L4, gres: 'gpu:2', parttion: a}
limits: {memory: 36}
import_minutes: 3
"""
GRES = ["gpu", "gpu:3090:1", "gpu:l4:1,license:2", "gpu:2080ti", "gpu:h200:2", "gpu:a100_1g.5gb:1"]
LINES = [
    "options: [job.sh]", "options: ['--qos long']",
    "images: {'10.7.0': /images/a.tar}", "setup: ['']", "scratch: local", "runtime: podman",
    "options: ['--export=NIL', '--nice=100']", "scratch: /local/$SLURM_JOB_ID", "setup: [module load x]",
    "images: {'10.7.0': 'a/b:c', '10.8.0': /images/a.sqsh}",
]  # fmt: skip


def test_all_mistakes_are_told_at_once_with_their_lines() -> None:
    """A GPU is one whole GPU, and no key undoes what is set for each job or lacks something."""
    told = [f"{SEVERAL}{mistakes(SEVERAL)}"]
    told += [f"gres: {gres}\n{mistakes(EXAMPLE.replace('gpu:h200:1', gres))}" for gres in GRES]
    for line in LINES:
        rest = re.sub(rf"^{line.partition(':')[0]}:.*\n", "", EXAMPLE, flags=re.MULTILINE)
        told.append(f"{line}\n{mistakes(f'{rest}{line}')}")
    check_golden("slurm-mistakes.txt", "\n\n".join(told) + "\n")


def test_the_page_has_every_key_and_the_schema_is_the_one_that_is_shipped() -> None:
    models = (sitefile.Site, sitefile.SiteGpu, sitefile.Limits)
    names = {field.name for model in models for field in fields(model)} - {"schema"}
    assert [name for name in sorted(names) if f"`{name}`" not in PAGE] == []
    shipped = json.loads((DOCS / "slurm.schema.json").read_text())
    assert shipped == {"$schema": shipped["$schema"], **keys_schema(sitefile.Site)}


NEW, OLD = "580.159.04", "570.86.15"
IMAGE = "example.org/tensorrt:10.7.0"
BARE = Gpu(slug="nvidia-h200", name="NVIDIA H200")


def test_a_damaged_record_that_another_client_set_aside_is_passed_over(tmp_path: Path) -> None:
    cluster, right = (
        Cluster(replace(parse_keys(Site, EXAMPLE, "slurm.yaml"), shared=str(tmp_path))),
        make_record(make_cell()),
    )
    project = Project(matrix=tmp_path, repros=tmp_path, results=tmp_path / "results", cache=tmp_path)
    write_record(cluster.local, right)
    (damaged := record_path(cluster.local, right).with_name("damaged.json")).write_text("{")
    names = ["damaged.json", f"{right.run}.json"]  # as both clients see them
    for _ in range(2):
        (taken,) = cluster.take(right.cell, names, project)
        assert taken.cell == right.cell
    assert not damaged.exists()


def seen_on(node: str, driver: str, run: str = "1") -> Stored:
    """The record that a job left on a node."""
    facts = {"name": "NVIDIA H200", "variant": "140 GiB", "driver": driver, "host": node, "compute": "9.0"}
    started = f"2026-01-01T00:00:0{run}.000Z"
    record = make_record(make_cell(gpu=BARE), gpu=facts, run=run, started=started)
    return Stored(record=record, local=True)


def h200(*seen: Stored) -> Gpu:
    """The site's H200 after jobs have left these records."""
    cluster = Cluster(parse_keys(Site, EXAMPLE, "slurm.yaml"))
    return cluster.host(seen).gpus[0]


def test_a_node_has_the_boards_of_its_newest_record_and_the_newest_driver_comes_first() -> None:
    gpu = h200(seen_on("a", OLD, run="1"), seen_on("a", NEW, run="2"), seen_on("b", OLD), seen_on("c", OLD))
    assert [board.driver for board in gpu.seen] == [NEW, OLD]
    assert (gpu.driver, gpu.variant, gpu.compute) == (NEW, "140 GiB", "9.0")
    assert h200().seen == ()


def plan_with(gpu: Gpu, cell: Cell) -> Plan:
    """What is planned on a client that has the site's GPU and an image that the nodes can have."""
    engine = Engine(available=True, images={IMAGE: "sha256:1"}, gpu_access=GpuAccess.TOOLKIT)
    host = Host(engine=engine, gpus=(gpu,), interpreters={"10.7.0": "/usr/bin/python3"})
    return make_plan([cell], host, Selection(), Pull.NEVER)


def test_a_gpu_that_the_site_has_not_is_said_to_be_missing_in_its_file() -> None:
    plan = plan_with(h200(), make_cell(gpu=Gpu(slug="nvidia-l4", name="NVIDIA L4")))
    assert [(x.why, x.detail) for x in plan.excluded] == [(Exclusion.OTHER_GPU, "slurm.yaml has NVIDIA H200")]


@pytest.mark.parametrize(("least", "runs"), [("575.0", True), ("590.1", False)])
def test_a_driver_is_too_old_only_where_the_newest_that_was_seen_is(least: str, runs: bool) -> None:
    driver = {"least": least, "datacenter": [], "known": "read", "source": "notes"}
    gpu = replace(h200(seen_on("a", NEW), seen_on("b", OLD)), datacenter=False)
    plan = plan_with(gpu, make_cell(version=make_version(driver=driver), gpu=gpu))
    told = [excluded.detail.partition("needs ")[2] for excluded in plan.excluded]
    assert (bool(plan.launches), told) == (runs, [] if runs else ["590.1, the newest seen is 580.159.04"])


def test_what_has_changed_since_a_record_is_what_no_board_that_was_seen_has() -> None:
    cell = make_cell(gpu=h200(seen_on("a", NEW), seen_on("b", OLD)))
    facts = {"name": "NVIDIA H200", "variant": "140 GiB", "driver": "560.1"}
    changes = find_changes(make_record(cell, gpu=facts), {}, cell)
    assert changes == ["driver 560.1 → 580.159.04 or 570.86.15"]
    for driver in ("580.159.04", "570.86.15"):
        assert find_changes(make_record(cell, gpu={**facts, "driver": driver}), {}, cell) == []


def test_a_site_s_own_sbatch_that_tells_no_number_may_have_taken_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho Thank you\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SlurmAway, match="told no job's id: 'Thank you'") as told:
        submit([], "script")
    assert told.value.unknown
