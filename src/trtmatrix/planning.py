"""What ``run --plan`` prints: what would be started and what not, without starting anything."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from trtmatrix.context import Context
from trtmatrix.core.config import ImageOrigin
from trtmatrix.core.container import Folders, Limits, docker_command, make_container_spec
from trtmatrix.core.model import CellId
from trtmatrix.core.order import equal_boards, estimate_seconds, order_launches
from trtmatrix.core.plan import Launch, count_excluded
from trtmatrix.core.render_list import origin_text
from trtmatrix.effects.paths import probe_folder
from trtmatrix.perform import Options, here, tell_pins
from trtmatrix.scene import Scene


def print_plan(context: Context, scene: Scene, served: frozenset[CellId], options: Options) -> None:
    """Print each launch with its cells, the command of each container, and what is left out.

    They come in the order in which they start.
    """
    tell_pins(context, scene, options, served)
    plan, isolation = scene.plan, options.isolation
    launches = [launch.of(cell for cell in launch.cells if cell.id not in served) for launch in plan.launches]
    planned = {id(launch): len(whole.cells) for launch, whole in zip(launches, plan.launches, strict=True)}
    seconds = estimate_seconds([cell for launch in launches for cell in launch.cells], scene.stored)
    for launch in order_launches(launches, seconds, here(context.project)):
        todo = launch.cells
        where = launch.python or origin_text(launch.version)
        action = "pull, then run" if launch.pull else "build, then run" if launch.build else "run"
        print(f"{launch.version.name} on {launch.gpu.name}: {action} {len(todo)} cells in {where}")
        print(f"  {planned[id(launch)] - len(todo)} cells have a current record and are not run again")
        if beside := sum(cell.companion for cell in todo):
            print(f"  {beside} of those to run were not selected: they control the others (--no-controls)")
        for repro, count in Counter(cell.repro.id for cell in todo).items():
            print(f"  {repro}: {count}")
        if not todo:
            continue
        print(f"  isolation {isolation.value}: {isolation.words}")
        if len(boards := equal_boards(launch.gpu, plan.boards)) > 1:
            print(f"  on any of {len(boards)} equal boards; the command names the first")
        if launch.python is None and isinstance(launch.version.origin, ImageOrigin):
            print("  " + container_command(context, scene, launch, options.limits))
    for words, beside in (("not run", False), ("controls not run", True)):
        for why, count, detail in count_excluded(
            e for e in scene.plan.excluded if e.cell.companion is beside
        ):
            print(f"{words}: {count} cells: {why.value}" + (f" ({detail})" if detail else ""))


def container_command(context: Context, scene: Scene, launch: Launch, limits: Limits) -> str:
    """Return the ``docker run`` line that a launch amounts to; JOB stands for its own folder."""
    origin = launch.version.origin
    held = scene.host.engine.held(origin) if isinstance(origin, ImageOrigin) and origin.pin else None
    image = held or (origin.reference if isinstance(origin, ImageOrigin) else "")
    project = context.project
    folders = Folders(
        probe=str(probe_folder()), repros=str(project.repros.resolve()),
        cases=str(project.cache / "cases"), job=str(Path("JOB") / "job"), out=str(Path("JOB") / "out"),
    )  # fmt: skip
    spec = make_container_spec(
        version=launch.version, image=image, gpu=launch.gpu, engine=scene.host.engine,
        folders=folders, limits=limits, name="trtmatrix-JOB", owner="OWNER",
        user=f"{os.getuid()}:{os.getgid()}",
    )  # fmt: skip
    return docker_command(spec)
