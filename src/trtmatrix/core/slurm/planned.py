"""What a run would submit to Slurm, and how that is printed. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trtmatrix.core.counting import counted, duration
from trtmatrix.core.model import CellId
from trtmatrix.core.plan import Launch


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """What sbatch would be told: words, the script's place on the shared folder, its argument and text."""

    words: tuple[str, ...]
    script: str
    argument: str
    text: str

    @property
    def command(self) -> str:
        """The command line, as a shell reads it."""
        return shlex.join(["sbatch", *self.words, self.script, self.argument])


@dataclass(frozen=True, kw_only=True)
class PlannedImport:
    """The job that has an image for versions, once."""

    versions: tuple[str, ...]
    reference: str
    job: PlannedJob


@dataclass(frozen=True, kw_only=True)
class PlannedArray:
    """One array: the cells of one version on one GPU, by task. ``minutes``: its ``--time``.

    ``served``: how many cells of the version on this GPU have a current record; ``running``: tasks at once;
    ``recorded``: of how many cells it is known how long they took when they were last run; ``seconds``: that
    of all tasks, those of which it is not known taken as long as the others; ``image``: whether it is on the
    shared folder, else the array waits for its import.
    """

    launch: Launch
    tasks: tuple[tuple[CellId, ...], ...]
    minutes: int
    running: int
    served: int
    seconds: float
    recorded: int
    image: bool
    job: PlannedJob

    @property
    def cells(self) -> int:
        """How many cells it runs."""
        return sum(len(task) for task in self.tasks)


@dataclass(frozen=True, kw_only=True)
class PlannedJobs:
    """All that a run would submit; what is under way already is followed instead, and not looked for here."""

    imports: tuple[PlannedImport, ...]
    arrays: tuple[PlannedArray, ...]


def jobs_lines(jobs: PlannedJobs) -> Iterator[str]:
    """Yield imports and arrays for a terminal; KEY and IMPORT are known once they are submitted."""
    for each in jobs.imports:
        yield f"import of {each.reference}, for {', '.join(each.versions)}: one job, no GPU"
        yield f"  {each.job.command}"
    for array in jobs.arrays:
        yield from _array_lines(array)
    if jobs.arrays:
        cells, tasks = sum(a.cells for a in jobs.arrays), sum(len(a.tasks) for a in jobs.arrays)
        number = (
            f"{counted(cells, 'cell')} in {counted(tasks, 'task')} of {counted(len(jobs.arrays), 'array')}"
        )
        after = f", after {counted(len(jobs.imports), 'import')}" if jobs.imports else ""
        yield f"through Slurm: {number}{after}; what is under way already is followed instead"


def _array_lines(array: PlannedArray) -> Iterator[str]:
    launch = array.launch
    yield (
        f"{launch.version.name} on {launch.gpu.name}: {counted(array.cells, 'cell')} in an array of "
        f"{counted(len(array.tasks), 'task')}, {array.running} at once, {array.minutes} minutes at most each"
    )
    yield f"  {array.served} cells have a current record and are not run again"
    for repro, count in Counter(cell.repro for task in array.tasks for cell in task).items():
        yield f"  {repro}: {count}"
    if array.recorded:
        others = array.cells - array.recorded
        took = f"take about {duration(array.seconds)}" if others else f"took {duration(array.seconds)}"
        rest = f"; {others} without one are taken as long as the others" if others else ""
        yield f"  its cells {took} (by {counted(array.recorded, 'record')}{rest}), after the queue"
    else:
        yield "  how long its cells take is not known: none was run before"
    if not array.image:
        yield "  waits for the import of its image"
    yield f"  {array.job.command}"


def jobs_json(jobs: PlannedJobs) -> dict[str, Any]:
    """Return imports and arrays as plain data, with the scripts' text."""
    return {
        "imports": [
            {"versions": list(each.versions), "reference": each.reference, **_job_data(each.job)}
            for each in jobs.imports
        ],
        "arrays": [
            {
                "version": array.launch.version.name, "gpu": array.launch.gpu.slug,
                "tasks": [[str(cell) for cell in task] for task in array.tasks], "minutes": array.minutes,
                "running": array.running, "served": array.served,
                "seconds": array.seconds if array.recorded else None, "recorded": array.recorded,
                "image": array.image, **_job_data(array.job),
            }
            for array in jobs.arrays
        ],
    }  # fmt: skip


def _job_data(job: PlannedJob) -> dict[str, Any]:
    return {
        "sbatch": list(job.words), "script": job.script, "argument": job.argument, "text": job.text,
        "command": job.command,
    }  # fmt: skip
