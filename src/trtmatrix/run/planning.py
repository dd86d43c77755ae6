"""What ``run --plan`` prints: what would be pulled, built and started and what not; nothing is done."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from trtmatrix.images.downloads import find_downloads, image_of, need_here, without_counted
from trtmatrix.images.preflight import preflight
from trtmatrix.launchers.container import Limits, docker_command, make_container_spec
from trtmatrix.launchers.pulled import pull_speed
from trtmatrix.plan.context import Context
from trtmatrix.plan.order import Seconds, count_recorded, equal_boards, estimate_seconds, order_launches
from trtmatrix.plan.scene import Scene
from trtmatrix.run.perform import Options, here, tell_pins, terms_of
from trtmatrix.run.planned import (
    Planned,
    PlannedArray,
    PlannedDownload,
    PlannedLaunch,
    plan_json,
    plan_text,
)
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import CellId
from trtmatrix.suite.plan import Launch
from trtmatrix.tables.render_list import origin_text


def print_plan(
    context: Context, scene: Scene, served: frozenset[CellId], options: Options, *, as_json: bool = False
) -> None:
    """Print what a run would do, and what of it cannot be done here."""
    planned = plan_all(context, scene, served, options)
    print(json.dumps(plan_json(planned), indent=1) if as_json else plan_text(planned))


def plan_all(context: Context, scene: Scene, served: frozenset[CellId], options: Options) -> Planned:
    """Return each launch with its cells and its container's command, and what all of them cost.

    They come in the order in which they start.
    """
    tell_pins(context, scene, options, served)
    looked = preflight(context, scene.here_alone, terms_of(context, options), served)
    plan, wants, facts = looked.scene.plan, looked.wants, looked.facts
    todo = [launch.of(c for c in launch.cells if c.id not in served) for launch in plan.launches]
    whole = {(x.version.name, x.gpu.slug): len(x.cells) for x in plan.launches}
    cells = [cell for launch in todo for cell in launch.cells]
    seconds = estimate_seconds(cells, scene.stored)
    ordered = order_launches(todo, seconds, here(context.project))
    downloads = find_downloads(wants.launches, wants.lock, facts.engine, wants.registry)
    return Planned(
        launches=tuple(
            _planned(
                context, looked.scene, launch, whole[launch.version.name, launch.gpu.slug], seconds, options
            )
            for launch in ordered
        ),
        excluded=plan.excluded, isolation=options.isolation,
        downloads=tuple(
            PlannedDownload(download=download, added=added)
            for download, added in zip(downloads, without_counted(downloads), strict=True)
        ),
        need=need_here(downloads, wants.keep, wants.lock, facts.engine), room=facts.images,
        findings=looked.findings,
        recorded=count_recorded(cells, scene.stored), speed=pull_speed(context.project.cache),
        arrays=_arrays(scene, served),
    )  # fmt: skip


def _arrays(scene: Scene, served: frozenset[CellId]) -> tuple[PlannedArray, ...] | None:
    """Return what would be submitted to Slurm first; RUN stands for the run's folder."""
    if scene.cluster is None:
        return None
    from trtmatrix.plan.order import known_cells
    from trtmatrix.slurm.tasks import cut_tasks, sbatch_words

    site, arrays = scene.cluster.site, []
    for launch in scene.plan.away:
        todo = launch.of(cell for cell in launch.cells if cell.id not in served)
        if not todo.cells:
            continue
        known = known_cells(todo.cells, scene.stored)
        took = {cell: s for cell, s in estimate_seconds(todo.cells, scene.stored).items() if cell in known}
        tasks = cut_tasks(todo, took, site)
        folder = f"{site.shared}/runs/RUN/0"
        words = sbatch_words(
            site, site.gpu(launch.gpu.slug), name="trtmatrix-RUN.0", folder=folder, tasks=len(tasks),
        )  # fmt: skip
        arrays.append(PlannedArray(
            version=launch.version.name, gpu=launch.gpu.slug, minutes=site.limits.minutes,
            tasks=tuple(tuple(str(cell.id) for cell in task) for task in tasks),
            command=shlex.join(["sbatch", *words, f"{folder}/task.sh"]),
        ))  # fmt: skip
    return tuple(arrays)


def _planned(
    context: Context, scene: Scene, launch: Launch, planned: int, seconds: Seconds, options: Options
) -> PlannedLaunch:
    in_image = image_of(launch) is not None and launch.cells
    return PlannedLaunch(
        launch=launch, where=launch.python or origin_text(launch.version), served=planned - len(launch.cells),
        boards=len(equal_boards(launch.gpu, scene.plan.boards)),
        seconds=sum(seconds[cell.id] for cell in launch.cells),
        command=container_command(context, scene, launch, options.limits) if in_image else "",
    )  # fmt: skip


def container_command(context: Context, scene: Scene, launch: Launch, limits: Limits) -> str:
    """Return the line that a launch amounts to, such as ``docker run``; JOB stands for its own folder."""
    origin = launch.version.origin
    held = scene.host.engine.held(origin) if isinstance(origin, ImageOrigin) and origin.pin else None
    image = held or (origin.reference if isinstance(origin, ImageOrigin) else "")
    engine, project = scene.host.engine, context.project
    spec = make_container_spec(
        launch, image, engine, cache=project.cache, repros=project.repros, folder=Path("JOB"), limits=limits
    )
    if engine.is_daemon:
        return docker_command(spec)
    from trtmatrix.launchers.child_containers import child_command, find_runtime

    return shlex.join(child_command(find_runtime(engine.command), spec, launch.gpu))
