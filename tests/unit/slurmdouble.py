"""A Slurm in memory with nodes that play the probe: a fake, since no real one can be cut off at every step.

It speaks squeue's lines, has no accounting, and plays the script of a task on the shared folder: the same
files in the same order. What each cell's run came to, is counted.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playing import Play, Playing

from trtmatrix.core.slurm import layout
from trtmatrix.core.slurm.tasks import parse_tasks
from trtmatrix.effects.slurm_commands import Answer
from trtprobe.files import write_json

NODE = "node-a"
STUCK = "launch failed requeued held"
"""The reason of a job that waits and never runs."""
BOARD = "NVIDIA H200, GPU-0, 9.0, 143771, 580.159.04, Disabled, 1980, 2619, 700.00"


def nothing(given: object) -> str:
    """Do nothing, and say nothing."""
    del given
    return ""


class Killed(BaseException):
    """The client's process is gone at this point; no handler of the program's sees it."""


@dataclass(kw_only=True)
class FakeJob:
    """A job: an import, or a task of an array. ``state``: Slurm's word; ``node``: empty until it has one.

    ``age``: calls of squeue since it runs.
    """

    id: str
    task: int | None
    name: str
    comment: str
    script: Path
    attempt: str
    after: str
    state: str = "PENDING"
    reason: str = "Resources"
    age: int = 0
    node: str = ""


@dataclass(kw_only=True)
class FakeSlurm:
    """The controller and its nodes. ``lasts``: calls of squeue that a job runs for; 0: it never ends.

    ``refuses``: words by which sbatch refuses what has them in its command line. ``breaks``: what a node does
    instead of running a task's attempt; ``away``: so many calls from now on get no answer. ``image_says``:
    what an import that fails says; ``drained``: why the node takes no more jobs; ``board``: what it has.
    ``trouble``: what each script ends with, and ``said``: in which words; ``cancelled_by``: for sacct.
    """

    shared: Path
    play: Play
    lasts: int = 1
    refuses: str = ""
    breaks: Callable[[FakeJob], str] = nothing
    image_fails: bool = False
    image_says: str = "no such tag"
    drained: str = ""
    board: str = BOARD
    trouble: str = ""
    said: str = ""
    cancelled_by: str = ""
    away: int = 0
    jobs: list[FakeJob] = field(default_factory=list)
    executed: Counter[tuple[str, str]] = field(default_factory=Counter)
    called: list[Sequence[str]] = field(default_factory=list)
    before: Callable[[Sequence[str]], object] = nothing
    behind: Callable[[Sequence[str]], object] = nothing
    _ids: Any = field(default_factory=lambda: itertools.count(100))
    _lock: Any = field(default_factory=threading.RLock)

    def run(self, words: Sequence[str], seconds: float) -> Answer:
        """Answer a command as ``effects.slurm_commands.run_command`` does."""
        del seconds
        with self._lock:
            self.called.append(words)
            self.before(words)
            if self.away > 0:
                self.away -= 1
                return Answer(code=1, out="", err=f"{words[0]}: error: Unable to contact slurm controller")
            answer = getattr(self, words[0])(list(words[1:]))
            self.behind(words)
            return Answer(code=answer[0], out=answer[1], err=answer[2])

    def sbatch(self, words: list[str]) -> tuple[int, str, str]:
        """Submit."""
        options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
        if self.refuses and any(self.refuses in word for word in words):
            return (
                1,
                "",
                "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            )
        script, attempt = Path(words[-2]), words[-1]
        job = str(next(self._ids))
        tasks: Sequence[int | None] = parse_tasks(options["array"]).numbers if "array" in options else [None]
        after = options.get("dependency", "").removeprefix("afterok:")
        self.jobs += [
            FakeJob(
                id=job, task=task, name=options["job-name"], comment=options["comment"], script=script,
                attempt=attempt, after=after,
            )
            for task in tasks
        ]  # fmt: skip
        return 0, f"{job}\n", ""

    def squeue(self, words: list[str]) -> tuple[int, str, str]:
        """List jobs as lines; time goes on by this alone."""
        if "--json" in words:
            return 1, "", "squeue: error: no JSON here"
        for job in self.jobs:
            self._advance(job)
        lines = [
            f"{j.id}|{'N/A' if j.task is None else j.task}|{j.state}|{self.cancelled_by or 0}|{j.reason}|"
            f"{j.node}|{j.name}|{j.comment}\n"
            for j in self.jobs
        ]
        return 0, "".join(lines), ""

    def scancel(self, words: list[str]) -> tuple[int, str, str]:
        """Cancel jobs or tasks that have not ended."""
        for job in self.jobs:
            names = {job.id, f"{job.id}_{job.task}", f"--name={job.name}"}
            named = not names.isdisjoint(words)
            if named and job.state in {"PENDING", "RUNNING"}:
                job.state, job.reason = "CANCELLED", "None"
        return 0, "", ""

    def sinfo(self, words: list[str]) -> tuple[int, str, str]:
        """Say why a node takes no jobs."""
        del words
        return 0, f"{self.drained or 'none'}\n", ""

    def sacct(self, words: list[str]) -> tuple[int, str, str]:
        """Have no accounting."""
        if not self.cancelled_by or "--json" in words:
            return 1, "", "Slurm accounting storage is disabled" if not self.cancelled_by else "no JSON here"
        lines = [
            f"{j.id}_{j.task}|CANCELLED by {self.cancelled_by}|0:0|{j.node}|{j.name}|\n"
            for j in self.jobs if j.task is not None
        ]  # fmt: skip
        return 0, "".join(lines), ""

    @property
    def living(self) -> list[FakeJob]:
        """The jobs that wait or run."""
        return [job for job in self.jobs if job.state in {"PENDING", "RUNNING"}]

    def _advance(self, job: FakeJob) -> None:
        if job.state == "PENDING" and job.reason != STUCK:
            first = next((other for other in self.jobs if other.id == job.after), None)
            if first is not None and first.state == "FAILED":
                job.state, job.reason = "CANCELLED", "DependencyNeverSatisfied"
            elif first is None or first.state == "COMPLETED":
                job.state, job.reason, job.node = "RUNNING", "None", NODE
        elif job.state == "RUNNING":
            job.age += 1
            if self.lasts == 0 or job.age < self.lasts:
                return
            job.state = self._import(job) if job.task is None else self._task(job)

    def finish_import(self) -> None:
        """Have imports that run come to their end."""
        for job in self.jobs:
            if job.task is None and job.state == "RUNNING":
                job.state = self._import(job)

    def _import(self, job: FakeJob) -> str:
        key = job.name.removeprefix("trtmatrix-import-")
        if self.image_fails:
            folder = self.shared / "images" / f"{key}.{job.attempt}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "ended").write_text(f"code=1\ntrouble=image\ndetail={self.image_says}\n")
            return "FAILED"
        folder = self.shared / "images" / key
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "image.json", {"reference": "r", "id": "sha256:0", "file": "", "bytes": 0})
        return "COMPLETED"

    def _task(self, job: FakeJob) -> str:
        """Play a task's script to its end."""
        array, name = job.script.parent, f"{job.task}.{job.attempt}"
        wanted = array / "tries" / name
        unwanted = (wanted / "taken", wanted / layout.GONE, array / layout.STOPPING, array / layout.OVER)
        if any(mark.exists() for mark in unwanted):
            return "COMPLETED"
        if state := self.breaks(job):
            return state
        (wanted / "taken").touch()
        ran = array / "ran" / f"{name}.{job.id}"
        ran.mkdir(parents=True, exist_ok=True)
        facts = f"job={job.id}\ntask={job.task}\nattempt={job.attempt}\nid={job.id}\nnode={NODE}\n"
        (ran / "started").write_text(facts)
        (ran / "gpu.csv").write_text(f"{self.board}\n")
        if self.said:
            (array / f"said.{name}.{job.id}.txt").write_text(self.said)
        if self.trouble:
            (ran / "ended").write_text(f"code=\noom=0\ntrouble={self.trouble}\ndetail=what it was\n")
            ran.rename(array / "ran" / name)
            return "FAILED"
        probe = Playing(self.play)
        probe.jobs.append([])
        for number in itertools.count():
            file = wanted / "job" / f"{number}.cell.json"
            if not file.exists():
                break
            cell = json.loads(file.read_text())
            probe.jobs[-1].append(cell)
            self.executed[cell["cell"]["case"], cell["run"]] += 1
            probe.cell(number, cell, ran)
        (ran / "ended").write_text("code=0\noom=0\ntrouble=\ndetail=\n")
        ran.rename(array / "ran" / name)
        return "COMPLETED"
