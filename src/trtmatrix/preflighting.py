"""Preflight: everything that can be known to fail is known, and left out, before anything is pulled."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trtmatrix.context import Context
from trtmatrix.core.model import CellId
from trtmatrix.core.order import estimate_seconds, order_launches
from trtmatrix.core.plan import GpuAccess, Launch
from trtmatrix.core.preflight.checks import check, restrict
from trtmatrix.core.preflight.downloads import asked_references
from trtmatrix.core.preflight.facts import Facts, Wants, image_of
from trtmatrix.core.preflight.finding import Finding, Level, finding_lines
from trtmatrix.core.preflight.host import disk_findings
from trtmatrix.scene import Scene

if TYPE_CHECKING:
    from trtmatrix.perform import Options


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """What was gathered, what was wanted, and what came of both: the scene's plan holds only what can run."""

    facts: Facts
    wants: Wants
    scene: Scene
    findings: tuple[Finding, ...]


def preflight(
    context: Context, scene: Scene, options: Options, served: frozenset[CellId] = frozenset()
) -> tuple[Scene, tuple[Finding, ...]]:
    """Return the scene whose plan has only launches that can run, and what is told of the others.

    Cells that are ``served`` from the store need nothing. With ``--offline`` nobody is asked.
    """
    looked = look(context, scene, options, served)
    return looked.scene, looked.findings


def look(
    context: Context, scene: Scene, options: Options, served: frozenset[CellId] = frozenset()
) -> Preflight:
    """Gather the facts that the wanted launches hang on, and hold them against every rule."""
    wants = find_wants(context, scene, options, served)
    facts = gather(context, scene, wants.launches)
    checked = check(facts, wants)
    troubled = tuple(item for item in disk_findings(facts) if item.level is Level.TROUBLE)
    plan = restrict(scene.plan, checked.excluded)
    able = replace(wants, launches=checked.launches)
    findings = (*checked.findings, *(troubled if wants.launches else ()))
    return Preflight(facts=facts, wants=able, scene=replace(scene, plan=plan), findings=findings)


def find_wants(context: Context, scene: Scene, options: Options, served: frozenset[CellId]) -> Wants:
    """Return the launches with the cells that are to be run, in the order in which they start."""
    from trtmatrix.perform import here

    todo = [
        launch.of(cell for cell in launch.cells if cell.id not in served) for launch in scene.plan.launches
    ]
    todo = [launch for launch in todo if launch.cells]
    seconds = estimate_seconds([cell for launch in todo for cell in launch.cells], scene.stored)
    launches = tuple(order_launches(todo, seconds, here(context.project)))
    return Wants(
        launches=launches,
        lock=context.lock,
        keep=options.keep,
        memory=options.limits.memory,
        registry=context.matrix.registry,
    )


def gather(context: Context, scene: Scene, launches: Sequence[Launch]) -> Facts:
    """Look at what the launches hang on; registries and indexes are asked for what is to be pulled alone."""
    from trtmatrix.effects import preflight as effects

    engine, project, registry = scene.host.engine, context.project, context.matrix.registry
    images = effects.images_room(engine.root)
    builds = [launch for launch in launches if launch.build]
    indexes = {origin.build.index for x in builds if (origin := image_of(x)) and origin.build}
    silent = context.offline or not engine.is_daemon  # whose logins for registries are its own
    asks = () if silent else asked_references(launches, context.lock, engine, registry)
    total, available = effects.find_memory()
    by_nodes = engine.gpu_access is GpuAccess.NODES and images is not None
    return Facts(
        engine=engine, gpus=scene.scan.gpus, scan_reason=scene.scan.reason,
        images=images, cache=effects.find_room(project.cache), results=effects.find_room(project.results),
        memory=total, available=available, nodes=effects.find_nodes() if by_nodes else None,
        mig=effects.count_mig_instances(scene.scan.gpus),
        answers=effects.ask_registries(asks, engine.insecure),
        indexes={} if context.offline else effects.ask_indexes(sorted(indexes)),
        unhashed=effects.unhashed_wheels(builds, project.image_builder),
    )  # fmt: skip


def tell(findings: Sequence[Finding]) -> None:
    """Tell on stderr what keeps cells from running, or may end the run in its middle."""
    for line in finding_lines(findings):
        print(line, file=sys.stderr)
