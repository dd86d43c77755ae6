"""What ``run --plan`` prints: each launch, why its cells are run, what is fetched first, what that takes."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from trtmatrix.common.text import counted, duration, write_size
from trtmatrix.images.checks import Download, find_downloads, finding_lines, image_words
from trtmatrix.launchers.container import Containers, docker_command
from trtmatrix.plan.context import Context
from trtmatrix.plan.order import estimate_seconds, known_seconds, order_launches
from trtmatrix.plan.survey import Survey
from trtmatrix.run.perform import Options, is_here, look_ahead, tell_pins
from trtmatrix.run.tasks import Executor, PlannedJob
from trtmatrix.suite.model import CellId
from trtmatrix.suite.plan import Engine, Launch, count_excluded
from trtmatrix.tables.render_list import origin_text


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What a cluster is given, why each cell is run, and all that is printed."""

    slurm: tuple[PlannedJob, ...]
    cells: Mapping[str, str]
    lines: tuple[str, ...]


def plan_all(
    context: Context, survey: Survey, reasons: Mapping[CellId, str], options: Options,
    executor: Executor | None = None,
) -> Planned:  # fmt: skip
    """Return what would be started, in that order, for the cells that have a reason to be run."""
    served = frozenset(c.id for x in survey.plan.launches for c in x.cells if c.id not in reasons)
    todo = replace(survey, plan=survey.plan.without(served))
    tell_pins(context, todo.plan.launches, options)
    looked, findings = look_ahead(context, todo, options)
    here, wanted, left_out = survey.plan.here, looked.plan.launches, looked.plan.excluded
    engine, stored = survey.host.engine, survey.stored
    jobs, lines = tuple(executor.jobs(todo.plan.away)) if executor else (), list[str]()
    for job in jobs:
        array = f"{counted(sum(map(len, job.tasks)), 'cell')} in an array of "
        array += f"{counted(len(job.tasks), 'task')}, at most {job.minutes} min each"
        lines += [f"{job.version} on {job.gpu}: {array}", f"  {job.command}"]
    cells = [cell for launch in wanted for cell in launch.cells]
    seconds = estimate_seconds(cells, stored)
    downloads = find_downloads(wanted, context.lock, engine)
    current = Counter((x.version.name, x.gpu.slug) for x in here for c in x.cells if c.id in served)
    launches = [launch.of(cell for cell in launch.cells if cell.id in seconds) for launch in here]
    for launch in order_launches(launches, seconds, partial(is_here, context.project)):
        count = current[launch.version.name, launch.gpu.slug]
        if not (launch.cells or count):
            continue  # preflight has left it out
        action = "pull, then run" if launch.pull else "build, then run" if launch.build else "run"
        where = f"{counted(len(launch.cells), 'cell')} in {launch.python or origin_text(launch.version)}"
        lines += [
            f"{launch.version.name} on {launch.gpu.name}: {action} {where}",
            f"  not run again: {counted(count, 'cell')} with a current record",
            *_cell_lines(launch, reasons), *_fetched(launch, downloads),
        ]  # fmt: skip
        lines += [f"  isolation: {options.isolation.value} (--isolation)"] if launch.cells else []
        command = _container_command(context, engine, launch, options)
        lines += [f"  {command}"] if command else []
    if fetch := image_words(wanted, context.lock, engine):
        lines.append(f"to fetch: {fetch}")
    if cells:
        recorded = len(known_seconds(cells, stored))
        known = f"about {duration(sum(seconds.values()))}" if recorded else "not known"
        source = f"by {counted(recorded, 'record')}" if recorded else "none was run before"
        lines.append(f"time: {known} for {counted(len(cells), 'cell')}, one after another ({source})")
    lines += finding_lines(findings)
    for words, beside in (("not run", False), ("controls not run", True)):
        for kind, count, detail in count_excluded([x for x in left_out if x.cell.companion is beside]):
            told = f" ({detail})" if detail else ""
            lines.append(f"{words}: {counted(count, 'cell')}: {kind.value}{told}")
    return Planned(slurm=jobs, cells={str(c.id): reasons[c.id] for c in cells}, lines=tuple(lines))


def _cell_lines(launch: Launch, reasons: Mapping[CellId, str]) -> Iterator[str]:
    """Yield which cells go along as controls, how many are of each repro, and how many have each reason."""
    if beside := sum(cell.companion for cell in launch.cells):
        yield f"  {beside} of those to run were not selected: they control the others (--no-controls)"
    for repro, count in Counter(cell.repro.id for cell in launch.cells).items():
        yield f"  {repro}: {count}"
    for words, count in Counter(reasons[cell.id] for cell in launch.cells).most_common():
        yield f"  {counted(count, 'cell')} because: {words}"


def _fetched(launch: Launch, downloads: Sequence[Download]) -> Iterator[str]:
    """Yield what is pulled and built for a launch; of an image that several want, for the first."""
    name = launch.version.name
    for download in downloads if launch.lacks_image and launch.cells else ():
        if name not in download.versions:
            continue
        if (first := download.versions[0]) != name:
            yield f"  shares the image of {first}"
            continue
        if download.reference:
            size = "its size is not known: it is not locked (nox -s lock -- --update)"
            if download.layers is not None and download.added is not None:
                size = f"{write_size(download.added)} in {counted(len(download.layers), 'layer')}"
            yield f"  pulls {download.reference}: {size}"
        if download.built:
            yield f"  builds {download.image} from wheels"


def _container_command(context: Context, engine: Engine, launch: Launch, options: Options) -> str:
    """Return the line that a launch amounts to, such as ``docker run``; JOB stands for its own folder."""
    origin, project = launch.image, context.project
    if origin is None or not launch.cells:
        return ""
    image = (origin.pin and engine.held(origin)) or origin.reference
    inputs = Containers(
        engine=engine, cache=project.cache, repros=project.repros, limits=options.limits,
        workers=options.workers,
    )  # fmt: skip
    spec = inputs.spec(launch, image)
    if engine.is_daemon:
        return docker_command(spec)
    from trtmatrix.launchers.child_containers import child_command, find_runtime

    return shlex.join(child_command(find_runtime(engine.command), spec, launch.gpu))
