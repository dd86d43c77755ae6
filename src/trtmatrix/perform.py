"""From cells to entries: what stored records serve is left out, the rest is run, and all is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trtmatrix.context import Context, Scene, entries_of
from trtmatrix.core.compare import Entry, Stored
from trtmatrix.core.config import WheelsOrigin
from trtmatrix.core.confirm import has_engines
from trtmatrix.core.container import Limits
from trtmatrix.core.model import CellId, Evidence
from trtmatrix.core.plan import Isolation, Launch
from trtmatrix.effects.calibration import read_calibration
from trtmatrix.effects.case_pool import CasePool
from trtmatrix.effects.cases import CaseCache
from trtmatrix.effects.gpu import clocks
from trtmatrix.effects.paths import Project
from trtmatrix.effects.progress import Progress, open_progress
from trtmatrix.effects.repro_files import digest_package
from trtmatrix.run import Performed, run_plan
from trtmatrix.workshop import Workshop, new_run_id


@dataclass(frozen=True, kw_only=True)
class Options:
    """How cells are run; see ``run --help``."""

    limits: Limits = field(default_factory=Limits)
    rerun: bool = False
    rebuilds: int = 1
    confirm: bool = True
    isolation: Isolation = Isolation.WORKER


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run leaves: what each cell shows, what was executed, what the store served."""

    entries: tuple[Entry, ...]
    performed: Performed
    served: frozenset[CellId]


def perform(context: Context, scene: Scene, options: Options) -> Result:
    """Remove leftovers of dead runs, execute the plan but for what is served, judge."""
    from trtmatrix.effects.containers import remove_leftovers

    served = served_cells(context, scene, options)
    progress = open_progress()
    try:
        if scene.host.engine.available:
            for name in remove_leftovers():
                progress.note(f"removed the container {name}, whose run had died")
        shop = make_workshop(context, scene, options, progress)
        performed = run_plan(scene.plan, served, new_run_id(shop.clock), shop)
    finally:
        progress.close()
    stored = [*scene.stored, *(Stored(record=record, local=True) for record in performed.records)]
    executed = frozenset(record.run for record in performed.records)
    entries = entries_of(context, scene, stored, performed.not_ready, executed)
    return Result(entries=entries, performed=performed, served=served)


def make_workshop(context: Context, scene: Scene, options: Options, progress: Progress) -> Workshop:
    """Wire the launchers and the folders."""
    from trtmatrix.effects.containers import ContainerLauncher
    from trtmatrix.effects.images import Images, builder_command
    from trtmatrix.effects.interpreters import InterpreterLauncher

    project = context.project
    interpreters = InterpreterLauncher(project.cache, project.repros.resolve(), progress.note)
    images = Images(
        pull_note=progress.pull, note=progress.note,
        builder=builder_command(project.image_builder, project.matrix),
    )  # fmt: skip
    containers = ContainerLauncher(
        engine=scene.host.engine, cache=project.cache, repros=project.repros,
        limits=options.limits, images=images,
    )  # fmt: skip
    return Workshop(
        launchers={"container": containers, "wheels": interpreters, "host": interpreters},
        repros=context.repros, cases=CaseCache(project.cache), cache=project.cache,
        local=project.local, probe_digest=digest_package("trtprobe"), progress=progress,
        gpu_clocks=clocks, output_bytes=options.limits.output, calibration=read_calibration(),
        stored=scene.stored, rebuilds=options.rebuilds, confirm=options.confirm,
        isolation=options.isolation, preparer=CasePool(project.cache), is_here=here(project),
    )  # fmt: skip


def here(project: Project) -> Callable[[Launch], bool]:
    """Return what tells whether a launch can start without a pull, a build or an installation."""
    from trtmatrix.effects.interpreters import is_installed

    def is_here(launch: Launch) -> bool:
        origin = launch.version.origin
        if launch.python is None and isinstance(origin, WheelsOrigin):
            return is_installed(project.cache, launch.version.name, origin.wheels)
        return not launch.lacks_image

    return is_here


def served_cells(context: Context, scene: Scene, options: Options) -> frozenset[CellId]:
    """Return the cells that stored records stand for, so that they are not run again."""
    if options.rerun:
        return frozenset()
    entries = entries_of(context, scene, scene.stored)
    return frozenset(entry.cell.id for entry in entries if is_served(entry, options))


def is_served(entry: Entry, options: Options) -> bool:
    """Whether a cell is shown from its records instead of running it again.

    That is so where it is current, as many engines were measured as are asked for, and its verdict is
    confirmed where it must be.
    """
    if not is_current_fact(entry) or entry.outcome is None:
        return False
    if entry.excluded is not None:
        return True
    if options.rebuilds > 1 and not has_engines(entry.records, options.rebuilds):
        return False
    return not (options.confirm and entry.wanted)


def is_current_fact(entry: Entry) -> bool:
    """Whether a cell was measured here, with what is here now, and what came out is a fact.

    Trouble with the machinery, and what hangs on memory or set-up, is tried again; a crash, a
    time-out or a failed build of the cell itself is a fact.
    """
    cause = entry.outcome.cause if entry.outcome else None
    return entry.evidence is Evidence.MEASURED and not (cause and cause.may_pass)
