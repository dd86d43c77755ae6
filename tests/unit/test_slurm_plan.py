"""What ``run --plan --executor slurm`` shows: imports and arrays as they would be submitted; nothing is."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from builders import H200, make_case, make_cell, make_matrix, make_record, make_repro
from slurmtries import leave_image

from trtmatrix.cluster import Cluster
from trtmatrix.context import Context
from trtmatrix.core.compare import Stored
from trtmatrix.core.expand import Cell, Selection
from trtmatrix.core.model import CellId
from trtmatrix.core.plan import Engine, Host, Isolation, Launch, Plan
from trtmatrix.core.slurm.planned import PlannedJobs, jobs_lines
from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu, SiteLimits
from trtmatrix.effects.gpu import GpuScan
from trtmatrix.effects.paths import Project
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.perform import Options
from trtmatrix.planning import print_plan
from trtmatrix.scene import Scene
from trtmatrix.slurm_plan import plan_jobs

FAR = replace(H200, slug="nvidia-h200", index=None, remote=True, uuid=None, uuid_hash=None)
REPRO = make_repro(make_case("a"), make_case("b"), make_case("c"))


def cells_of(*versions: str) -> list[Cell]:
    return [replace(make_cell(REPRO, case, version), gpu=FAR) for version in versions for case in REPRO.cases]


def site_of(tmp_path: Path) -> Site:
    (tmp_path / "shared").mkdir(exist_ok=True)
    gpu = SiteGpu(name=FAR.name, gres="gpu:h200:1", partition="hopper")
    limits = SiteLimits(minutes=30, running=2, tasks=2)
    return Site(shared=str(tmp_path / "shared"), runtime=NodeRuntime.DOCKER, gpus=(gpu,), limits=limits)


def scene_of(tmp_path: Path, cells: Iterable[Cell], stored: tuple[Stored, ...] = ()) -> Scene:
    every = tuple(cells)
    groups: dict[str, list[Cell]] = {}
    for cell in every:
        groups.setdefault(cell.version.name, []).append(cell)
    launches = tuple(
        Launch(version=g[0].version, gpu=FAR, cells=tuple(g), pull=True) for g in groups.values()
    )
    site, host = site_of(tmp_path), Host(engine=Engine(available=False), gpus=(FAR,))
    cluster = Cluster(
        site=site,
        folder=SharedFolder(Path(site.shared)),
        host=host,
        planned=host,
        repros=tmp_path,
    )
    scan = GpuScan(gpus=(), reason="none")
    plan = Plan(launches=launches, excluded=())
    return Scene(host=host, scan=scan, cells=every, plan=plan, stored=stored, cluster=cluster)


def planned(
    scene: Scene, served: frozenset[CellId] = frozenset(), options: Options | None = None
) -> PlannedJobs:
    assert scene.cluster is not None
    return plan_jobs(scene.cluster, scene, served, options or Options())


def test_each_image_is_imported_once_and_its_array_waits(tmp_path: Path) -> None:
    jobs = planned(scene_of(tmp_path, cells_of("10.7.0", "10.8.0")))
    assert [each.versions for each in jobs.imports] == [("10.7.0",), ("10.8.0",)]
    assert all(not any(word.startswith("--gres") for word in each.job.words) for each in jobs.imports)
    assert ["--dependency=afterok:IMPORT" in array.job.words for array in jobs.arrays] == [True, True]


def test_an_image_that_is_there_is_not_imported(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, cells_of("10.7.0"))
    assert scene.cluster is not None
    key = scene.cluster.key_of(scene.cells[0].version)
    leave_image(scene.cluster.folder.root, key)
    jobs = planned(scene)
    assert jobs.imports == ()
    assert jobs.arrays[0].image
    assert not any(word.startswith("--dependency") for word in jobs.arrays[0].job.words)


def test_what_is_served_is_in_no_task(tmp_path: Path) -> None:
    cells = cells_of("10.7.0", "10.8.0")
    served = frozenset(cell.id for cell in cells[:4])
    jobs = planned(scene_of(tmp_path, cells), served)
    assert {cell for array in jobs.arrays for task in array.tasks for cell in task} == {
        c.id for c in cells[4:]
    }
    assert [(array.launch.version.name, array.served) for array in jobs.arrays] == [("10.8.0", 1)]
    assert len(jobs.imports) == 1


def test_many_tasks_are_several_arrays_and_the_words_are_sbatchs(tmp_path: Path) -> None:
    jobs = planned(scene_of(tmp_path, cells_of("10.7.0")), options=Options(isolation=Isolation.CONTAINER))
    assert [len(array.tasks) for array in jobs.arrays] == [2, 1]
    words = jobs.arrays[0].job.words
    assert {"--array=0-1%2", "--gres=gpu:h200:1", "--partition=hopper", "--time=30", "--no-requeue"} <= set(
        words
    )
    command = shlex.split(jobs.arrays[0].job.command)
    assert command == ["sbatch", *words, f"{tmp_path}/shared/arrays/KEY/task.sh", "1"]
    assert jobs.arrays[0].job.text.startswith("#!/bin/bash\n")


def run_before(cells: Sequence[Cell]) -> tuple[Stored, ...]:
    start, end = "2026-01-01T10:00:00Z", "2026-01-01T10:00:04Z"
    return tuple(
        Stored(record=replace(make_record(cell), started=start, finished=end), local=True) for cell in cells
    )


def test_a_task_whose_cells_were_run_before_asks_for_less_time(tmp_path: Path) -> None:
    cells = cells_of("10.7.0")
    stored = run_before(cells)
    (array,) = planned(scene_of(tmp_path, cells, stored)).arrays
    assert (array.seconds, array.recorded) == (12.0, 3)
    assert array.minutes < 30


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "  how long its cells take is not known: none was run before"),
        (
            1,
            "  its cells take about 12 s (by 1 record; 2 without one are taken as long as the others), after",
        ),
        (3, "  its cells took 12 s (by 3 records), after the queue"),
    ],
)
def test_what_is_only_thought_of_cells_is_told_as_such(tmp_path: Path, count: int, told: str) -> None:
    cells = cells_of("10.7.0")
    stored = run_before(cells[:count])
    jobs = planned(scene_of(tmp_path, cells, stored))
    assert any(line.startswith(told) for line in jobs_lines(jobs)), list(jobs_lines(jobs))


def test_nothing_is_written(tmp_path: Path) -> None:
    planned(scene_of(tmp_path, cells_of("10.7.0")))
    assert [path for path in (tmp_path / "shared").rglob("*") if path.is_file()] == []


def print_of(tmp_path: Path, *, as_json: bool) -> None:
    scene = scene_of(tmp_path, cells_of("10.7.0"))
    project = Project(matrix=tmp_path / "m", repros=tmp_path, results=tmp_path, cache=tmp_path)
    context = Context(project=project, matrix=make_matrix(), repros={}, selection=Selection(), pythons=())
    print_plan(context, scene, frozenset(), Options(), as_json=as_json)


def test_the_plan_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_of(tmp_path, as_json=False)
    text = capsys.readouterr().out
    assert (
        f"10.7.0 on {FAR.name}: 3 cells in an array of 1 task, 1 at once, 30 minutes at most each\n" in text
    )
    assert "  waits for the import of its image\n" in text
    assert "  how long its cells take is not known: none was run before\n" in text
    assert "through Slurm: 3 cells in 1 task of 1 array, after 1 import; what is under way" in text
    assert "docker run" not in text


def test_the_plan_as_data_has_the_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_of(tmp_path, as_json=True)
    data = json.loads(capsys.readouterr().out)
    assert data["launches"] == []
    (array,), (had,) = data["slurm"]["arrays"], data["slurm"]["imports"]
    assert array["tasks"] == [[f"sdpa-scale/{case}@10.7.0#{FAR.slug}" for case in "abc"]]
    assert all(job["text"].startswith("#!/bin/bash\n") for job in (array, had))
    assert array["command"] == shlex.join(["sbatch", *array["sbatch"], array["script"], array["argument"]])
