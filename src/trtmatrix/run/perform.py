"""From cells to entries: what stored records serve is left out, the rest is run, and all is judged."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.common.errors import UsageError
from trtmatrix.common.options import flag, number, read_size, value
from trtmatrix.common.paths import Project, check_writable, probe_folder
from trtmatrix.common.text import counted
from trtmatrix.judge.compare import count_engines, without_refused
from trtmatrix.judge.entry import Entry, Stored
from trtmatrix.judge.noise import read_calibration
from trtmatrix.judge.record import Record
from trtmatrix.launchers.container import Limits
from trtmatrix.launchers.gpu import clocks
from trtmatrix.launchers.wheels import InterpreterLauncher, environment_folder, find_wheelhouse
from trtmatrix.plan.context import Context
from trtmatrix.plan.order import find_reason
from trtmatrix.plan.survey import Survey, entries_of
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.suite.digest import digest_own_code
from trtmatrix.suite.matrix import WheelsOrigin
from trtmatrix.suite.model import CellId
from trtmatrix.suite.plan import Engine, Excluded, Isolation, Keep, Launch

if TYPE_CHECKING:  # where nothing is to be run, nothing is imported that runs it
    from trtmatrix.common.progress import Progress
    from trtmatrix.images.checks import Finding
    from trtmatrix.launchers.launcher import Launcher
    from trtmatrix.run.tasks import Executor, Run


@dataclass(frozen=True, kw_only=True)
class Options:
    """How cells are run; see ``run --help``. ``quiet``: no progress is shown, as of one step of many.

    ``full``: progress has a line for each cell; ``log``: the file that all lines go to.
    ``interleaved``: engines are built one a visit, and all launches of a board take turns; ``built``: how
    many of a cell's are there already, as after an interrupt.
    ``keep``: which pulled images stay; ``locked``: none is used that matrix.lock does not have.
    ``memory`` of a container and ``output_size`` of a cell: in bytes.
    """

    rerun: bool = flag("--rerun", "also run cells that have a current record", "run")
    rebuilds: int = value("--rebuilds K", "build and run at least K engines of each cell, to see how much "
        "builds vary (1 to 100); a case of several processes runs K processes, which share one engine", "run",
        default=1, type=number(int, 1, "number from 1 to 100", 100))  # fmt: skip
    workers: int = value("--workers N", "tests that run side by side on one GPU, each in a process and "
        "container of its own; latencies measured so are not compared", "run", default=1,
        type=number(int, 1, "number from 1 to 64", 64))  # fmt: skip
    interleaved: bool = False
    built: Mapping[CellId, int] = field(default_factory=dict)
    confirm: bool = flag("--no-confirm", "accept every result at once; by default an unexpected result of a "
        "shared process is run again alone", "run", default=True)  # fmt: skip
    isolation: Isolation = value("--isolation", "what cells share: a warm process (default), a container "
        "with one process per cell, or nothing", "run", default=Isolation.WORKER)  # fmt: skip
    keep: Keep = value("--keep", "which pulled images to keep after their last cell (default: all)", "run",
        default=Keep.ALL)  # fmt: skip
    locked: bool = flag("--locked", "refuse images that are not in matrix.lock", "run")
    memory: int = value("--memory SIZE", "memory limit of a container", "run", type=read_size,
        default=Limits().memory)  # fmt: skip
    output_size: int = value("--output-size SIZE", "how much a cell may write", "run", type=read_size,
        default=Limits().output)  # fmt: skip
    full: bool = False
    quiet: bool = False
    log: Path | None = None

    @property
    def limits(self) -> Limits:
        """A container's limits; its scratch is memory too, and never more than that."""
        scratch = min(Limits().scratch, self.memory)
        return Limits(memory=self.memory, output=self.output_size, scratch=scratch)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run leaves: what each cell shows, what was executed or could not be, what the store served."""

    entries: tuple[Entry, ...]
    served: frozenset[CellId]
    records: tuple[Record, ...] = ()
    not_ready: tuple[Excluded, ...] = ()


def perform(context: Context, survey: Survey, options: Options, executor: Executor | None = None) -> Result:
    """Execute the plan but for what is served, and judge; where all is served, nothing is touched.

    ``executor``: runs the launches on other hosts' GPUs, where the plan has some.
    """
    entries = entries_of(context, survey, survey.stored)
    reasons = find_reasons(entries, options)
    served = frozenset(entry.cell.id for entry in entries if entry.cell.id not in reasons)
    result = Result(entries=entries, served=served)
    survey = replace(survey, plan=survey.plan.without(served))
    if options.interleaved:
        stand = (entry for entry in entries if find_reason(entry, confirm=False) is None)
        options = replace(options, built={entry.cell.id: count_engines(entry.records) for entry in stand})
    if survey.plan.launches:
        survey = make_ready(context, survey, options)
        run = execute(context, survey, options, executor)
        stored = [*survey.stored, *(Stored(record=record, local=True) for record in run.records)]
        executed = frozenset(record.run for record in run.records)
        entries = entries_of(context, survey.seen_since(stored), stored, run.not_ready, executed)
        result = replace(result, entries=entries, records=tuple(run.records), not_ready=tuple(run.not_ready))
    return replace(result, entries=without_refused(result.entries)) if options.rerun else result


def find_reasons(
    entries: Iterable[Entry], options: Options, current: Mapping[CellId, Mapping[str, str]] | None = None
) -> dict[CellId, str]:
    """Return in words why each cell is run; those whose records stand for them have no reason.

    ``current``: the digests that their records must have, where the words are to say what has changed.
    """
    return {
        entry.cell.id: reason for entry in entries
        if (reason := find_reason(
            entry, rerun=options.rerun, rebuilds=options.rebuilds, confirm=options.confirm,
            current=(current or {}).get(entry.cell.id),
        ))
    }  # fmt: skip


def make_ready(context: Context, survey: Survey, options: Options) -> Survey:
    """Check what the launches of a plan need, remove containers that dead runs left; returns what can be run.

    What is known to fail is told and left out before anything is pulled. What nodes of a cluster lack is not
    known here: their own jobs tell. Raises :class:`UsageError` for what another command line can mend.
    """
    todo, engine = survey.plan.launches, survey.host.engine
    in_images = any(launch.image for launch in todo)
    if in_images:
        check_paths(context.project)
    tell_pins(context, todo, options)
    if engine.available and engine.is_daemon and in_images:
        from trtmatrix.launchers.containers import remove_leftovers

        for name in remove_leftovers():
            print(f"trtmatrix: removed the container {name}, whose run had died", file=sys.stderr, flush=True)
    if not any(launch.image or launch.gpu.present for launch in todo):
        return survey  # wheels on the CPU need no look
    from trtmatrix.images.checks import finding_lines

    looked, findings = look_ahead(context, survey, options)
    for line in () if options.quiet else finding_lines(findings):
        print(line, file=sys.stderr)
    launches = (*survey.plan.away, *looked.plan.launches)
    return replace(looked, plan=replace(looked.plan, launches=launches))


def check_paths(project: Project) -> None:
    """Refuse paths that engines take for two: :class:`UsageError` says which, and what to do."""
    named = {"--cache DIR": project.cache, "--repros DIR": project.repros, "--results DIR": project.results}
    for remedy, path in {**named, "install trtmatrix elsewhere": probe_folder()}.items():
        if ":" in str(path.absolute()):
            raise UsageError(f"{path.absolute()}: a container's path may have no colon: {remedy}")


def tell_pins(context: Context, launches: Sequence[Launch], options: Options) -> None:
    """Say on stderr which of the images that will run are not locked; ``--locked`` refuses them.

    Raises :class:`UsageError` then.
    """
    if any(launch.image for launch in launches):
        from trtmatrix.images.lock import check_pins

        lines = check_pins(context, launches, options.locked)
        for line in () if options.quiet else lines:
            print(f"trtmatrix: {line}", file=sys.stderr, flush=True)


def look_ahead(context: Context, survey: Survey, options: Options) -> tuple[Survey, tuple[Finding, ...]]:
    """Return what preflight says of the launches of this host; a cluster's own jobs tell what nodes lack."""
    from trtmatrix.images.preflight import find_wants, preflight

    survey = replace(survey, plan=replace(survey.plan, launches=survey.plan.here))
    wants = find_wants(context, survey, keep=options.keep, memory=options.memory)
    return preflight(context, survey, wants)


def is_here(project: Project, launch: Launch) -> bool:
    """Whether a launch can start without a pull, a build or an installation."""
    origin = launch.version.origin
    if launch.python is None and isinstance(origin, WheelsOrigin):
        return environment_folder(project.cache, launch.version.name, origin.wheels).is_dir()
    return not launch.lacks_image


def announce(context: Context, launches: Sequence[Launch], engine: Engine) -> str:
    """Return the sentence with which a run begins."""
    from trtmatrix.images.checks import image_words

    new = {x.version.name for x in launches if x.image is None and not is_here(context.project, x)}
    fetched = image_words(launches, context.lock, engine)
    environments = counted(len(new), "Python environment") if new else ""
    words = " and ".join(filter(None, [fetched, environments])) or "nothing"
    return f"{counted(sum(len(launch.cells) for launch in launches), 'test')} to run; to fetch: {words}"


def execute(context: Context, survey: Survey, options: Options, executor: Executor | None = None) -> Run:
    """Run the cells of the plan; returns the run with its records."""
    from trtmatrix.common.progress import open_progress
    from trtmatrix.run.execute import execute_plan

    check_writable({"--results": context.project.local, "--cache": context.project.cache})
    progress = open_progress(log=options.log, full=options.full, quiet=options.quiet)
    if not options.quiet:
        progress.note(f"trtmatrix: {announce(context, survey.plan.launches, survey.host.engine)}")
    try:
        return execute_plan(survey.plan, make_run(context, survey, options, progress), executor)
    except BaseException:
        if progress.log is not None:
            progress.note(f"trtmatrix: all lines up to here are in {progress.log}")
        raise
    finally:
        progress.close()


def make_run(context: Context, survey: Survey, options: Options, progress: Progress) -> Run:
    """Return a run with the launchers that its plan needs: a new kind of launcher is added here."""
    from trtmatrix.prepare.case_pool import CasePool
    from trtmatrix.run.tasks import Run, new_run_id, utc_now

    project, engine, launches = context.project, survey.host.engine, survey.plan.here
    wheelhouse = find_wheelhouse(project.folder) if context.offline else None
    interpreters = InterpreterLauncher(project.cache, project.repros.resolve(), progress.note, wheelhouse)
    launchers: dict[str, Launcher] = {"wheels": interpreters, "host": interpreters}
    images = None
    if any(launch.image for launch in launches) and engine.is_daemon:
        from trtmatrix.launchers.containers import ContainerLauncher, Images

        builder = (str(project.image_builder), f"--matrix={project.matrix}")
        images = Images(engine, progress, builder=builder, keep=options.keep)
        launchers["container"] = ContainerLauncher(
            engine=engine, cache=project.cache, repros=project.repros, limits=options.limits, images=images,
            workers=options.workers,
        )  # fmt: skip
    elif any(launch.image for launch in launches):
        from trtmatrix.launchers.child_containers import ChildLauncher, find_runtime

        launchers["container"] = ChildLauncher(
            runtime=find_runtime(engine.command), engine=engine, cache=project.cache, repros=project.repros,
            limits=options.limits, note=progress.note,
        )  # fmt: skip
    return Run(
        id=new_run_id(utc_now()), options=options, launchers=launchers, repros=context.repros, images=images,
        cases=CaseCache(project.cache), preparer=CasePool(project.cache), cache=project.cache,
        local=project.local, probe_digest=digest_own_code().probe, progress=progress, gpu_clocks=clocks,
        calibration=read_calibration(), stored=survey.stored, is_here=partial(is_here, project),
    )  # fmt: skip
