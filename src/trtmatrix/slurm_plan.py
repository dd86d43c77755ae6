"""What ``run --plan --executor slurm`` shows: each import and array, as it would be submitted; nothing is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trtmatrix.cluster import Cluster
from trtmatrix.core.expand import Cell
from trtmatrix.core.model import CellId
from trtmatrix.core.order import Seconds, count_recorded, estimate_seconds, known_cells
from trtmatrix.core.plan import Isolation, Launch
from trtmatrix.core.slurm.cut import cut_arrays, cut_tasks, task_minutes
from trtmatrix.core.slurm.fate import FIRST
from trtmatrix.core.slurm.layout import SCRIPT, array_folder, import_folder
from trtmatrix.core.slurm.manifest import Asked
from trtmatrix.core.slurm.planned import PlannedArray, PlannedImport, PlannedJob, PlannedJobs
from trtmatrix.core.slurm.scripts import import_script, task_script
from trtmatrix.core.slurm.submission import array_words, import_words
from trtmatrix.perform import Options
from trtmatrix.scene import Scene
from trtmatrix.slurm_images import script_of
from trtmatrix.slurm_pace import read_pace
from trtmatrix.slurm_submitting import known_seconds, site_gpu, task_spec
from trtmatrix.worklist import Task, count_runs
from trtmatrix.workshop import Order

KEY, IMPORT, SUITE = "KEY", "IMPORT", "SUITE"
"""Stand for what is known once it is submitted: an array's key, the import's job, the suite's digest."""


@dataclass(frozen=True, kw_only=True)
class _Planning:
    """What a plan is made of; ``seconds``: how long each cell is thought to take."""

    cluster: Cluster
    scene: Scene
    options: Options
    seconds: Seconds
    known: frozenset[CellId]


def plan_jobs(cluster: Cluster, scene: Scene, served: frozenset[CellId], options: Options) -> PlannedJobs:
    """Return the imports and the arrays that a run would submit first; nothing is written or asked."""
    launches = [
        (launch, launch.of(cell for cell in launch.cells if cell.id not in served))
        for launch in scene.plan.away
    ]  # fmt: skip
    cells = [cell for _, todo in launches for cell in todo.cells]
    planning = _Planning(
        cluster=cluster, scene=scene, options=options, seconds=estimate_seconds(cells, scene.stored),
        known=known_cells(cells, scene.stored),
    )  # fmt: skip
    wanted = [(launch, todo) for launch, todo in launches if todo.cells]
    return PlannedJobs(
        imports=tuple(_imports(cluster, [todo for _, todo in wanted])),
        arrays=tuple(
            array for launch, todo in wanted
            for array in _arrays(planning, todo, len(launch.cells) - len(todo.cells))
        ),
    )  # fmt: skip


def _imports(cluster: Cluster, launches: Sequence[Launch]) -> Iterator[PlannedImport]:
    """Yield the import of each image that is not on the shared folder, once."""
    lacking: dict[str, list[Launch]] = {}
    for launch in launches:
        key = cluster.key_of(launch.version)
        if cluster.folder.image(key) is None:
            lacking.setdefault(key, []).append(launch)
    for key, wanting in lacking.items():
        version, attempt = wanting[0].version, str(FIRST)
        spec = script_of(cluster, version)
        facts = {"version": version.name}
        yield PlannedImport(
            versions=tuple(dict.fromkeys(launch.version.name for launch in wanting)),
            reference=spec.reference,
            job=PlannedJob(
                words=import_words(cluster.site, key=key, attempt=FIRST, facts=facts), argument=attempt,
                script=f"{import_folder(cluster.site.shared, key, FIRST)}.sh", text=import_script(spec),
            ),
        )  # fmt: skip


def _arrays(planning: _Planning, launch: Launch, served: int) -> Iterator[PlannedArray]:
    """Yield the arrays of a launch, cut as a run cuts them."""
    site, seconds, options = planning.cluster.site, planning.seconds, planning.options
    single = options.isolation is Isolation.CONTAINER
    cut = cut_tasks(
        launch, known_seconds(seconds, planning.known), site.limits, single=single, worth=read_pace().worth
    )
    by_id = {cell.id: cell for cell in launch.cells}
    tasks = [tuple(_asked(by_id[cell], options.rebuilds) for cell in task) for task in cut]
    has_image = planning.cluster.folder.image(planning.cluster.key_of(launch.version)) is not None
    for part in cut_arrays(tasks, site.limits):
        cells = [by_id[asked.cell] for task in part for asked in task]
        minutes = task_minutes(part, seconds, planning.known, site.limits)
        yield PlannedArray(
            launch=launch.of(cells), tasks=tuple(tuple(asked.cell for asked in task) for task in part),
            minutes=minutes, running=min(site.limits.running, len(part)), served=served, image=has_image,
            seconds=sum(seconds[cell.id] for cell in cells),
            recorded=count_recorded(cells, planning.scene.stored),
            job=_array_job(planning, launch, len(part), minutes, has_image=has_image),
        )  # fmt: skip


def _asked(cell: Cell, rebuilds: int) -> Asked:
    """Return a cell with its time limit: all that an array's time hangs on."""
    builds, processes = count_runs(cell, rebuilds)
    task = Task(cell=cell, order=Order(run="", rebuilds=rebuilds))
    return Asked(cell=cell.id, digests={}, run="", builds=builds, processes=processes, seconds=task.seconds)


def _array_job(
    planning: _Planning, launch: Launch, tasks: int, minutes: int, *, has_image: bool
) -> PlannedJob:
    cluster = planning.cluster
    facts = {"sent": "1", "version": launch.version.name, "gpu": launch.gpu.slug}
    words = array_words(
        cluster.site, site_gpu(cluster, launch.gpu), key=KEY, tasks=range(tasks), attempt=FIRST,
        minutes=minutes, after="" if has_image else IMPORT, facts=facts,
    )  # fmt: skip
    script = task_script(
        task_spec(cluster, launch, key=KEY, suite=SUITE, minutes=minutes, limits=planning.options.limits)
    )
    folder = array_folder(cluster.site.shared, KEY)
    return PlannedJob(words=words, script=f"{folder}/{SCRIPT}", argument=str(FIRST), text=script)
