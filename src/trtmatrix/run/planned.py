"""A plan with its sizes and times, and how that is printed. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from trtmatrix.common.counting import counted, duration
from trtmatrix.images.downloads import Download, Need, Room, gigabytes
from trtmatrix.images.rules import Finding, finding_lines
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.plan import Excluded, Isolation, Launch, count_excluded


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

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells that are to be run."""
        return self.launch.cells


@dataclass(frozen=True, kw_only=True)
class PlannedArray:
    """An array that would be submitted to Slurm: the cells of each task, ``--time``, and sbatch's line."""

    version: str
    gpu: str
    tasks: tuple[tuple[str, ...], ...]
    minutes: int
    command: str

    @property
    def line(self) -> str:
        """What it is, in words."""
        cells = sum(map(len, self.tasks))
        count = f"{counted(cells, 'cell')} in an array of {counted(len(self.tasks), 'task')}"
        return f"{self.version} on {self.gpu}: {count}, at most {self.minutes} minutes each"


@dataclass(frozen=True, kw_only=True)
class PlannedDownload:
    """An image that is had first; ``added``: bytes that it adds to those before it, None where not known."""

    download: Download
    added: int | None


@dataclass(frozen=True, kw_only=True)
class Planned:
    """All that ``run --plan`` prints.

    ``recorded``: of how many cells it is known how long they took; ``speed``: bytes a second of earlier
    pulls, None where none is known; ``room``: free at the engine, None where that is not known. ``arrays``:
    what goes through Slurm, None where nothing is to.
    """

    launches: tuple[PlannedLaunch, ...]
    excluded: tuple[Excluded, ...]
    isolation: Isolation
    downloads: tuple[PlannedDownload, ...] = ()
    need: Need = field(default_factory=Need)
    room: Room | None = None
    findings: tuple[Finding, ...] = ()
    recorded: int = 0
    speed: float | None = None
    arrays: tuple[PlannedArray, ...] | None = None

    @property
    def bytes(self) -> int | None:
        """Bytes to be pulled, layers counted once; None where an image's size is not known."""
        known = [each.added for each in self.downloads]
        return None if None in known else sum(each for each in known if each is not None)

    @property
    def pull_seconds(self) -> float | None:
        """What the pulls take at the speed of earlier ones, or None."""
        size = self.bytes
        return None if size is None or not self.speed else size / self.speed

    @property
    def cell_seconds(self) -> float:
        """What the cells take: GPUs work side by side, equal boards share."""
        by_gpu: defaultdict[str, float] = defaultdict(float)
        for each in self.launches:
            by_gpu[each.launch.gpu.slug] += each.seconds / each.boards
        return max(by_gpu.values(), default=0.0)


def plan_text(planned: Planned) -> str:
    """Return the plan for a terminal: launches in their order, then what they cost, then what is left out."""
    lines = [line for array in planned.arrays or () for line in (array.line, f"  {array.command}")]
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


def _launch_lines(planned: PlannedLaunch, plan: Planned) -> Iterator[str]:
    launch, cells = planned.launch, planned.cells
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
    yield f"  isolation {plan.isolation.value}: {plan.isolation.words}"
    if planned.boards > 1:
        yield f"  on any of {planned.boards} equal boards; the command names the first"
    if planned.command:
        yield f"  {planned.command}"


def _download_lines(launch: Launch, downloads: Sequence[PlannedDownload]) -> Iterator[str]:
    """Yield what is pulled and built for a launch; of an image that several want, for the first."""
    name = launch.version.name
    mine = [each for each in downloads if name in each.download.versions and launch.lacks_image]
    for each in mine:
        download = each.download
        if (first := download.versions[0]) != name:
            yield f"  its image is had for {first}"
            continue
        if download.reference:
            yield f"  pulls {download.reference}: {_size_words(each)}"
        if download.built:
            yield f"  builds {download.image} from wheels"


def _size_words(planned: PlannedDownload) -> str:
    layers, added = planned.download.layers, planned.added
    if layers is None or added is None:
        return "its size is not known: it is not locked (nox -s lock -- --update)"
    shared = (planned.download.size or 0) - added
    once = f", {gigabytes(shared)} less than alone: shared with those before" if shared else ""
    count = len({layer.digest for layer in layers})
    return f"{gigabytes(added)} in {counted(count, 'layer')}{once}"


def _cost_lines(planned: Planned) -> Iterator[str]:
    """Yield what the whole plan pulls, what disk that takes, and how long it may take."""
    count = sum(len(each.cells) for each in planned.launches)
    if planned.downloads:
        yield f"to pull: {_pull_words(planned)}"
        yield f"disk: {_disk_words(planned)}"
    if count:
        yield f"time: {_time_words(planned, count)}"


def _pull_words(planned: Planned) -> str:
    pulls = [each for each in planned.downloads if each.download.reference]
    builds = sum(each.download.built for each in planned.downloads)
    unknown = sum(each.added is None for each in pulls)
    size = gigabytes(sum(each.added or 0 for each in pulls))
    words = f"{counted(len(pulls), 'image')}, {size} (layers counted once)"
    if unknown:
        words += f" and {counted(unknown, 'image')} of unknown size"
    return words + (f"; to build: {counted(builds, 'image')}" if builds else "")


def _disk_words(planned: Planned) -> str:
    need = planned.need
    words = f"about {gigabytes(need.usual)} while it is unpacked, at least {gigabytes(need.least)}"
    if planned.room is None:
        return f"{words}; how much the engine has is not known here"
    return f"{words}; {gigabytes(planned.room.free)} free at {planned.room.path}"


def _time_words(planned: Planned, count: int) -> str:
    if not planned.recorded:
        words = f"not known for {count} cells: none was run before"
    else:
        others = count - planned.recorded
        rest = f"; {others} without one are taken as long as the others" if others else ""
        words = (
            f"about {duration(planned.cell_seconds)} for {count} cells (by {planned.recorded} records{rest})"
        )
    if not planned.downloads:
        return words
    if planned.pull_seconds is None:
        return f"{words}; pulls not known"
    return f"{words}; about {duration(planned.pull_seconds)} of pulls, as fast as earlier ones"


def plan_json(planned: Planned) -> dict[str, Any]:
    """Return the plan as plain data."""
    return {
        "launches": [_launch_data(each) for each in planned.launches],
        "downloads": [_download_data(each) for each in planned.downloads],
        "bytes": planned.bytes,
        "disk": {
            "least": planned.need.least, "usual": planned.need.usual,
            "path": planned.room.path if planned.room else None,
            "free": planned.room.free if planned.room else None,
        },
        "seconds": {
            "cells": planned.cell_seconds if planned.recorded else None, "recorded": planned.recorded,
            "pulls": planned.pull_seconds,
        },
        "findings": [asdict(finding) for finding in planned.findings],
        "not_run": [
            {"cell": str(item.cell.id), "why": item.why.value, "detail": item.detail,
             "companion": item.cell.companion}
            for item in planned.excluded
        ],
        **({} if planned.arrays is None else {"slurm": [asdict(array) for array in planned.arrays]}),
    }  # fmt: skip


def _launch_data(planned: PlannedLaunch) -> dict[str, Any]:
    launch = planned.launch
    return {
        "version": launch.version.name, "gpu": launch.gpu.slug, "action": action_of(launch),
        "where": planned.where, "cells": [str(cell.id) for cell in planned.cells], "served": planned.served,
        "boards": planned.boards, "seconds": planned.seconds, "command": planned.command or None,
    }  # fmt: skip


def _download_data(planned: PlannedDownload) -> dict[str, Any]:
    download = planned.download
    return {
        "image": download.image, "reference": download.reference or None, "built": download.built,
        "versions": list(download.versions), "bytes": planned.added, "alone": download.size,
        "layers": None if download.layers is None else [asdict(layer) for layer in download.layers],
    }  # fmt: skip
