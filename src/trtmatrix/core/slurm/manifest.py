"""The manifest of one array: its cells, in tasks; what an attempt at a task left. As types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trtmatrix.core.model import CellId


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One cell of a task, and how it is to be run.

    ``digests``: what a record of it must have to be current (repro, case, probe, image); with ``confirms``,
    ``alone``, ``builds`` and ``processes`` it tells whether another client wants the very same.
    ``seconds``: its time limit, all builds and processes counted. ``handed``: what the probe is given
    (``<index>.cell.json``).
    """

    cell: CellId
    digests: Mapping[str, str]
    run: str
    confirms: str = ""
    alone: bool = False
    builds: int = 1
    processes: int = 1
    seconds: float = 300.0
    handed: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def wish(self) -> tuple[object, ...]:
        """What makes two clients' wishes the same one, whatever the run."""
        digests = tuple(sorted(self.digests.items()))
        return (self.cell, digests, self.confirms, self.alone, self.builds, self.processes)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One array: the cells of one version on one GPU, cut into tasks; the array's index is the task's.

    ``image``: the key of the shared image; ``suite``: of the shared probe and repros; ``made``: in UTC;
    ``job``: what the probe is told once a task (``job.json``).
    """

    key: str
    gpu: str
    version: str
    image: str
    suite: str
    made: str
    tasks: tuple[tuple[Asked, ...], ...]
    job: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Try:
    """What one attempt at a task left in its folder, so far.

    ``indices``: the cells that it was to run, as places in the task, in its own order: number ``n`` of its
    files is the cell ``indices[n]``. ``published``: the job had come to its end and said so. ``records``,
    ``started``: its own numbers of which a record, or a sign of a start, is there. ``code``: the exit code
    of the container, None where that is not known; ``oom``: the engine says that memory ran out;
    ``trouble``: what kept the script from running the cells (a word of ``words.Trouble``), with ``detail``;
    ``job`` and ``node``: where it ran, empty where it did not start; ``gpu``: what nvidia-smi told there, as
    it was written; ``seconds``: since its last sign of life.

    ``retry``: it is one of the few attempts that trouble is given, ``why``: what it was made for (both empty
    for a first one). ``running``: for how long the last cell that was started and left no record had run when
    the job ended. ``gone``: Slurm's state of a job that ended and did not say all about it, as a client saw
    it and wrote it down (``UNLISTED`` where Slurm knew nothing any more), with ``gone_why``, its reason.
    ``interrupted``: its numbers of which the record only says that the probe was cut off, as the script gave
    no sign of life; these are not among ``records``.
    """

    task: int
    attempt: int
    indices: tuple[int, ...]
    published: bool = False
    records: frozenset[int] = frozenset()
    started: frozenset[int] = frozenset()
    code: int | None = None
    oom: bool = False
    trouble: str = ""
    detail: str = ""
    job: str = ""
    node: str = ""
    gpu: str = ""
    log: str = ""
    seconds: float = 0.0
    retry: bool = False
    why: str = ""
    running: float = 0.0
    interrupted: frozenset[int] = frozenset()
    gone: str = ""
    gone_why: str = ""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One sbatch of an array: written before it is called, and again when it has answered.

    ``number``: its own, from 1, in the jobs' comment as ``sent=<number>``; ``attempt`` of ``tasks``;
    ``made``: in UTC; ``client``: who called it; ``after``: the import that it waits for. ``job``: Slurm's
    id of it, empty until it is known; ``refused``: sbatch's own words where it will have none of it;
    ``lost``: it is sure that it never came to Slurm; ``later``: sbatch's own words as Slurm had too many
    jobs: it is to be sent again under the same number.
    """

    number: int
    attempt: int
    tasks: tuple[int, ...]
    made: str
    client: str = ""
    after: str = ""
    job: str = ""
    refused: str = ""
    lost: bool = False
    later: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it is not known yet what became of it."""
        return not (self.job or self.refused or self.lost or self.later)
