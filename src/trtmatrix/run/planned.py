"""What ``run --plan`` prints: each launch, why its cells are run, what is fetched first, and what that takes.

``--json`` prints these very classes.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trtmatrix.common.text import counted, duration
from trtmatrix.images.checks import Download, Finding, find_downloads, finding_lines, gigabytes, image_words
from trtmatrix.launchers.container import docker_command, make_container_spec
from trtmatrix.plan.context import Context
from trtmatrix.plan.order import equal_boards, estimate_seconds, known_seconds, order_launches
from trtmatrix.plan.survey import Survey
from trtmatrix.run.perform import Options, is_here, look_ahead, tell_pins
from trtmatrix.run.tasks import Executor, PlannedJob
from trtmatrix.suite.model import CellId
from trtmatrix.suite.plan import Engine, Launch, count_excluded
from trtmatrix.tables.render_list import origin_text


@dataclass(frozen=True, kw_only=True)
class PlannedLaunch:
    """A launch with the cells that are to be run, each with the reason; ``where``: what it runs in.

    ``served``: how many of it have a current record; ``beside``: how many go along as controls; ``boards``:
    equal GPUs that can take it; ``fetched``: what is had first; ``command``: the container's, by hand.
    """

    version: str
    gpu: str
    action: str
    where: str
    cells: Mapping[str, str]
    served: int
    beside: int
    boards: int
    fetched: tuple[str, ...]
    command: str


@dataclass(frozen=True, kw_only=True)
class Planned:
    """All that is printed. ``fetch``: what all launches fetch, in words; ``slurm``: what a cluster is given.

    ``seconds``: what the cells take by the records of ``recorded`` of them, the others as long as those.
    """

    launches: tuple[PlannedLaunch, ...]
    fetch: str
    seconds: float
    recorded: int
    isolation: str
    findings: tuple[Finding, ...]
    not_run: tuple[str, ...]
    slurm: tuple[PlannedJob, ...] = ()


def plan_all(
    context: Context, survey: Survey, reasons: Mapping[CellId, str], options: Options,
    executor: Executor | None = None,
) -> Planned:  # fmt: skip
    """Return what would be started, in that order, for the cells that have a reason to be run."""
    served = frozenset(c.id for x in survey.plan.launches for c in x.cells if c.id not in reasons)
    tell_pins(context, survey.plan.without(served), options)
    looked, findings = look_ahead(context, survey, options, served)
    plan, engine = looked.plan, survey.host.engine
    todo = [launch.of(cell for cell in launch.cells if cell.id in reasons) for launch in plan.launches]
    cells = [cell for launch in todo for cell in launch.cells]
    seconds, by_gpu = estimate_seconds(cells, survey.stored), defaultdict[str, float](float)
    wanted = [launch for launch in todo if launch.cells]
    downloads = find_downloads(wanted, context.lock, engine, context.matrix.registry)
    launches = []
    for launch in order_launches(todo, seconds, partial(is_here, context.project)):
        boards = len(equal_boards(launch.gpu, plan.boards))
        by_gpu[launch.gpu.slug] += sum(seconds[cell.id] for cell in launch.cells) / boards
        whole = (x for x in plan.launches if (x.version, x.gpu) == (launch.version, launch.gpu))
        launches.append(PlannedLaunch(
            version=launch.version.name, gpu=launch.gpu.name, boards=boards,
            action="pull, then run" if launch.pull else "build, then run" if launch.build else "run",
            where=launch.python or origin_text(launch.version),
            cells={str(cell.id): reasons[cell.id] for cell in launch.cells},
            served=sum(cell.id in served for each in whole for cell in each.cells),
            beside=sum(cell.companion for cell in launch.cells),
            fetched=tuple(_fetched(launch, downloads)),
            command=_container_command(context, engine, launch, options),
        ))  # fmt: skip
    away = [launch for launch in survey.plan.without(served) if launch.gpu.remote]
    return Planned(
        launches=tuple(launches), fetch=image_words(wanted, context.lock, engine, context.matrix.registry),
        seconds=max(by_gpu.values(), default=0.0),  # GPUs work side by side
        recorded=len(known_seconds(cells, survey.stored)), isolation=options.isolation.value,
        findings=findings, not_run=tuple(
            f"{words}: {counted(count, 'cell')}: {why.value}" + (f" ({detail})" if detail else "")
            for words, beside in (("not run", False), ("controls not run", True))
            for why, count, detail in count_excluded([x for x in plan.excluded if x.cell.companion is beside])
        ),
        slurm=tuple(executor.jobs(away, survey.stored)) if executor else (),
    )  # fmt: skip


def _fetched(launch: Launch, downloads: Sequence[Download]) -> Iterator[str]:
    """Yield what is pulled and built for a launch; of an image that several want, for the first."""
    name = launch.version.name
    for download in downloads if launch.lacks_image and launch.cells else ():
        if name not in download.versions:
            continue
        if (first := download.versions[0]) != name:
            yield f"shares the image of {first}"
            continue
        if download.reference:
            size = "its size is not known: it is not locked (nox -s lock -- --update)"
            if download.layers is not None and download.added is not None:
                size = f"{gigabytes(download.added)} in {counted(len(download.layers), 'layer')}"
            yield f"pulls {download.reference}: {size}"
        if download.built:
            yield f"builds {download.image} from wheels"


def _container_command(context: Context, engine: Engine, launch: Launch, options: Options) -> str:
    """Return the line that a launch amounts to, such as ``docker run``; JOB stands for its own folder."""
    origin, project = launch.image, context.project
    if origin is None or not launch.cells:
        return ""
    image = (origin.pin and engine.held(origin)) or origin.reference
    spec = make_container_spec(
        launch, image, engine, cache=project.cache, repros=project.repros, folder=Path("JOB"),
        limits=options.limits,
    )  # fmt: skip
    if engine.is_daemon:
        return docker_command(spec)
    from trtmatrix.launchers.child_containers import child_command, find_runtime

    return shlex.join(child_command(find_runtime(engine.command), spec, launch.gpu))


def plan_text(planned: Planned) -> str:
    """Return the plan for a terminal: launches in their order, then what they cost, then what is left out."""
    lines, total = [], 0
    for job in planned.slurm:
        cells, tasks = counted(sum(map(len, job.tasks)), "cell"), counted(len(job.tasks), "task")
        array = f"{cells} in an array of {tasks}, at most {job.minutes} min each"
        lines += [f"{job.version} on {job.gpu}: {array}", f"  {job.command}"]
    for launch in planned.launches:
        total += len(launch.cells)
        cells = f"{counted(len(launch.cells), 'cell')} in {launch.where}"
        lines.append(f"{launch.version} on {launch.gpu}: {launch.action} {cells}")
        lines.append(f"  not run again: {counted(launch.served, 'cell')} with a current record")
        if launch.beside:
            beside = "of those to run were not selected: they control the others (--no-controls)"
            lines.append(f"  {launch.beside} {beside}")
        repros = Counter(cell.partition("/")[0] for cell in launch.cells)
        lines += [f"  {repro}: {count}" for repro, count in repros.items()]
        why = Counter(launch.cells.values()).most_common()
        lines += [f"  {counted(count, 'cell')} because: {words}" for words, count in why]
        lines += [f"  {words}" for words in launch.fetched]
        lines += [f"  isolation: {planned.isolation} (--isolation)"] if launch.cells else []
        if launch.boards > 1:
            lines.append(f"  on any of {launch.boards} equal boards; the command names the first")
        lines += [f"  {launch.command}"] if launch.command else []
    lines += [f"to fetch: {planned.fetch}"] if planned.fetch else []
    if total:
        known = f"about {duration(planned.seconds)}" if planned.recorded else "not known"
        source = f"by {counted(planned.recorded, 'record')}" if planned.recorded else "none was run before"
        lines.append(f"time: {known} for {counted(total, 'cell')} ({source})")
    return "\n".join([*lines, *finding_lines(planned.findings), *planned.not_run])
