"""What ``run --plan`` prints, and what a run says before it starts: what is fetched, run and kept."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trtmatrix.common.words import counted, duration
from trtmatrix.images.downloads import Download, Need, Room, find_downloads, gigabytes, image_of, need_here
from trtmatrix.images.preflight import find_room, preflight
from trtmatrix.images.rules import Finding, finding_lines
from trtmatrix.launchers.container import Limits, docker_command, make_container_spec
from trtmatrix.plan.context import Context
from trtmatrix.plan.order import equal_boards, estimate_seconds, known_cells, order_launches
from trtmatrix.plan.survey import Survey
from trtmatrix.run.perform import Options, here, tell_pins, terms_of
from trtmatrix.run.tasks import Executor, PlannedJob
from trtmatrix.suite.matrix import ImageOrigin, WheelsOrigin
from trtmatrix.suite.model import CellId
from trtmatrix.suite.plan import Engine, Excluded, Isolation, Launch, count_excluded
from trtmatrix.tables.render_list import origin_text


@dataclass(frozen=True, kw_only=True)
class PlannedLaunch:
    """A launch with the cells that are to be run; ``served``: how many of it have a current record.

    ``where``: what it runs in, in words; ``boards``: equal GPUs that can take it; ``seconds``: what its cells
    took when they were last run, those that never were taken as long as the others; ``command``: the
    container's, by hand, nothing where there is none.
    """

    launch: Launch
    where: str
    served: int
    boards: int
    seconds: float
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """All that ``run --plan`` prints.

    ``downloads``: images that are had first. ``recorded``: of how many cells it is known how long they took;
    ``room``: free at the engine, None where that is not known. ``jobs``: what another executor would submit,
    None where this host runs all.
    """

    launches: tuple[PlannedLaunch, ...]
    excluded: tuple[Excluded, ...]
    isolation: Isolation
    downloads: tuple[Download, ...] = ()
    need: Need = field(default_factory=Need)
    room: Room | None = None
    findings: tuple[Finding, ...] = ()
    recorded: int = 0
    jobs: tuple[PlannedJob, ...] | None = None

    @property
    def bytes(self) -> int | None:
        """Bytes to be pulled, layers counted once; None where an image's size is not known."""
        known = [download.added for download in self.downloads]
        return None if None in known else sum(each for each in known if each is not None)

    @property
    def cell_seconds(self) -> float:
        """What the cells take: GPUs work side by side, equal boards share."""
        by_gpu: defaultdict[str, float] = defaultdict(float)
        for each in self.launches:
            by_gpu[each.launch.gpu.slug] += each.seconds / each.boards
        return max(by_gpu.values(), default=0.0)


def plan_all(
    context: Context, survey: Survey, served: frozenset[CellId], options: Options,
    executor: Executor | None = None,
) -> Planned:  # fmt: skip
    """Return each launch with its cells and its container's command, and what all of them cost.

    They come in the order in which they start.
    """
    tell_pins(context, survey, options, served)
    looked = preflight(context, survey.here_alone, terms_of(context, options), served)
    plan, wants, facts = looked.survey.plan, looked.wants, looked.facts
    todo = [launch.of(c for c in launch.cells if c.id not in served) for launch in plan.launches]
    whole = {(x.version.name, x.gpu.slug): len(x.cells) for x in plan.launches}
    cells = [cell for launch in todo for cell in launch.cells]
    seconds = estimate_seconds(cells, survey.stored)
    launches = []
    for launch in order_launches(todo, seconds, here(context.project)):
        in_image = image_of(launch) is not None and launch.cells
        launches.append(PlannedLaunch(
            launch=launch, where=launch.python or origin_text(launch.version),
            served=whole[launch.version.name, launch.gpu.slug] - len(launch.cells),
            boards=len(equal_boards(launch.gpu, plan.boards)),
            seconds=sum(seconds[cell.id] for cell in launch.cells),
            command=container_command(context, looked.survey, launch, options.limits) if in_image else "",
        ))  # fmt: skip
    downloads = find_downloads(wants.launches, wants.lock, facts.engine, wants.registry)
    away = [launch.of(c for c in launch.cells if c.id not in served) for launch in survey.plan.away]
    return Planned(
        launches=tuple(launches), excluded=plan.excluded, isolation=options.isolation,
        downloads=downloads, need=need_here(downloads, wants.keep), room=facts.images,
        findings=looked.findings, recorded=len(known_cells(cells, survey.stored)),
        jobs=None if executor is None else tuple(executor.jobs([x for x in away if x.cells], survey.stored)),
    )  # fmt: skip


def container_command(context: Context, survey: Survey, launch: Launch, limits: Limits) -> str:
    """Return the line that a launch amounts to, such as ``docker run``; JOB stands for its own folder."""
    origin, engine, project = launch.version.origin, survey.host.engine, context.project
    held = engine.held(origin) if isinstance(origin, ImageOrigin) and origin.pin else None
    image = held or (origin.reference if isinstance(origin, ImageOrigin) else "")
    spec = make_container_spec(
        launch, image, engine, cache=project.cache, repros=project.repros, folder=Path("JOB"), limits=limits
    )
    if engine.is_daemon:
        return docker_command(spec)
    from trtmatrix.launchers.child_containers import child_command
    from trtmatrix.launchers.child_runtimes import find_runtime

    return shlex.join(child_command(find_runtime(engine.command), spec, launch.gpu))


def plan_text(planned: Planned) -> str:
    """Return the plan for a terminal: launches in their order, then what they cost, then what is left out."""
    lines = [line for job in planned.jobs or () for line in _job_lines(job)]
    lines += [line for launch in planned.launches for line in _launch_lines(launch, planned)]
    lines += _cost_lines(planned)
    lines += finding_lines(planned.findings)
    for words, beside in (("not run", False), ("controls not run", True)):
        left_out = [item for item in planned.excluded if item.cell.companion is beside]
        for why, count, detail in count_excluded(left_out):
            lines.append(f"{words}: {count} cells: {why.value}" + (f" ({detail})" if detail else ""))
    return "\n".join(lines)


def action_of(launch: Launch) -> str:
    """Return what is done for a launch."""
    return "pull, then run" if launch.pull else "build, then run" if launch.build else "run"


def _job_lines(job: PlannedJob) -> Iterator[str]:
    tasks = f"{counted(sum(map(len, job.tasks)), 'cell')} in an array of {counted(len(job.tasks), 'task')}"
    yield f"{job.version} on {job.gpu}: {tasks}, at most {job.minutes} minutes each"
    yield f"  {job.command}"


def _launch_lines(planned: PlannedLaunch, plan: Planned) -> Iterator[str]:
    launch, cells = planned.launch, planned.launch.cells
    action = f"{action_of(launch)} {len(cells)} cells in {planned.where}"
    yield f"{launch.version.name} on {launch.gpu.name}: {action}"
    yield f"  {planned.served} cells have a current record and are not run again"
    if beside := sum(cell.companion for cell in cells):
        yield f"  {beside} of those to run were not selected: they control the others (--no-controls)"
    for repro, count in Counter(cell.repro.id for cell in cells).items():
        yield f"  {repro}: {count}"
    if not cells:
        return
    yield from _download_lines(launch, plan.downloads)
    yield f"  isolation: {plan.isolation.value} (--isolation)"
    if planned.boards > 1:
        yield f"  on any of {planned.boards} equal boards; the command names the first"
    if planned.command:
        yield f"  {planned.command}"


def _download_lines(launch: Launch, downloads: Sequence[Download]) -> Iterator[str]:
    """Yield what is pulled and built for a launch; of an image that several want, for the first."""
    name = launch.version.name
    for download in downloads if launch.lacks_image else ():
        if name not in download.versions:
            continue
        if (first := download.versions[0]) != name:
            yield f"  its image is had for {first}"
            continue
        if download.reference:
            yield f"  pulls {download.reference}: {_size_words(download)}"
        if download.built:
            yield f"  builds {download.image} from wheels"


def _size_words(download: Download) -> str:
    if download.layers is None or download.added is None:
        return "its size is not known: it is not locked (nox -s lock -- --update)"
    return f"{gigabytes(download.added)} in {counted(len(download.layers), 'layer')}"


def _cost_lines(planned: Planned) -> Iterator[str]:
    """Yield what the whole plan pulls, what disk that takes, and how long it may take."""
    count = sum(len(each.launch.cells) for each in planned.launches)
    if planned.downloads:
        pulls = [download.added for download in planned.downloads if download.reference]
        builds, unknown = sum(download.built for download in planned.downloads), pulls.count(None)
        yield (
            f"to pull: {counted(len(pulls), 'image')}, {gigabytes(sum(added or 0 for added in pulls))} "
            "(layers counted once)" + (f" and {counted(unknown, 'image')} of unknown size" if unknown else "")
            + (f"; to build: {counted(builds, 'image')}" if builds else "")
        )  # fmt: skip
        room, need = planned.room, planned.need
        free = (
            f"{gigabytes(room.free)} free at {room.path}"
            if room
            else "how much the engine has is not known here"
        )
        usual, least = gigabytes(need.usual), gigabytes(need.least)
        yield f"disk: about {usual} while it is unpacked, at least {least}; {free}"
    if count:
        yield f"time: {_time_words(planned, count)}"


def _time_words(planned: Planned, count: int) -> str:
    others = count - planned.recorded
    rest = f"; {others} without one are taken as long as the others" if others else ""
    words = f"about {duration(planned.cell_seconds)} for {count} cells (by {planned.recorded} records{rest})"
    if not planned.recorded:
        words = f"not known for {count} cells: none was run before"
    return f"{words}; and the pulls" if planned.downloads else words


def plan_json(planned: Planned) -> dict[str, Any]:
    """Return the plan as plain data."""
    return {
        "launches": [_launch_data(each) for each in planned.launches],
        "downloads": [_download_data(download) for download in planned.downloads],
        "bytes": planned.bytes,
        "disk": {
            "least": planned.need.least, "usual": planned.need.usual,
            "path": planned.room.path if planned.room else None,
            "free": planned.room.free if planned.room else None,
        },
        "seconds": {
            "cells": planned.cell_seconds if planned.recorded else None, "recorded": planned.recorded,
        },
        "findings": [asdict(finding) for finding in planned.findings],
        "not_run": [
            {"cell": str(item.cell.id), "why": item.why.value, "detail": item.detail,
             "companion": item.cell.companion}
            for item in planned.excluded
        ],
        **({} if planned.jobs is None else {"slurm": [asdict(job) for job in planned.jobs]}),
    }  # fmt: skip


def _launch_data(planned: PlannedLaunch) -> dict[str, Any]:
    launch = planned.launch
    return {
        "version": launch.version.name, "gpu": launch.gpu.slug, "action": action_of(launch),
        "where": planned.where, "cells": [str(cell.id) for cell in launch.cells], "served": planned.served,
        "boards": planned.boards, "seconds": planned.seconds, "command": planned.command or None,
    }  # fmt: skip


def _download_data(download: Download) -> dict[str, Any]:
    return {
        "image": download.image, "reference": download.reference or None, "built": download.built,
        "versions": list(download.versions), "bytes": download.added,
        "layers": None if download.layers is None else [asdict(layer) for layer in download.layers],
    }  # fmt: skip


ENVIRONMENT_BYTES = 210_000_000
"""What an environment of wheels takes: 123 MB of ONNX Runtime 1.31.1, 208 to 267 MB of TensorRT-RTX."""
CASE_BYTES = 5_500_000
"""What a prepared case and its kept outputs take: 1.6 GB of all 298 cases."""


def announce(
    context: Context, survey: Survey, served: frozenset[CellId], is_here: Callable[[Launch], bool]
) -> str:
    """Return the sentence with which a run begins; sizes of wheels and cases are as earlier ones had them."""
    every = [launch.of(c for c in launch.cells if c.id not in served) for launch in survey.plan.launches]
    launches = [launch for launch in every if launch.cells]
    cells = [cell for launch in launches for cell in launch.cells]
    new = {
        launch.version.name for launch in launches
        if launch.python is None and isinstance(launch.version.origin, WheelsOrigin) and not is_here(launch)
    }  # fmt: skip
    known = (context.project.cache / "cases").is_dir()
    cases = set() if known else {(cell.repro.id, cell.case.id) for cell in cells}
    size = len(new) * ENVIRONMENT_BYTES + len(cases) * CASE_BYTES
    fetched = [image_words(launches, context, survey.host.engine)]
    if new:
        wheels = gigabytes(len(new) * ENVIRONMENT_BYTES)
        fetched.append(f"{counted(len(new), 'Python environment')}, about {wheels}")
    fetched = [words for words in fetched if words]
    parts = [f"{counted(len(cells), 'test')} to run"]
    parts.append(f"to fetch: {' and '.join(fetched)}" if fetched else "nothing to fetch")
    if size:
        room = find_room(context.project.cache)
        parts.append(f"about {gigabytes(size)} will be kept in {room.path} ({gigabytes(room.free)} free)")
    return "; ".join(parts)


def image_words(launches: Iterable[Launch], context: Context, engine: Engine) -> str:
    """Return how many images launches lack, and their GB; nothing where none."""
    downloads = find_downloads(launches, context.lock, engine, context.matrix.registry)
    sizes = [each.added for each in downloads]
    if not sizes:
        return ""
    if None in sizes:
        return f"{counted(len(sizes), 'image')}, 10 to 34 GB{' each' * (len(sizes) > 1)}"
    size = sum(each for each in sizes if each is not None)
    if not size:  # made of wheels on a base that is here, or is made here too
        return f"{counted(len(sizes), 'image')} to build"
    return f"{counted(len(sizes), 'image')}, {gigabytes(size)}"
