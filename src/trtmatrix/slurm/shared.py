"""The folder that this host and every node see: the environment, the suite, cases, runs and their records."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from trtmatrix.common.border import ARRAY, BLOCK, BorderError, opened, read_file, read_json
from trtmatrix.common.errors import UsageError
from trtmatrix.common.paths import Project, hold, whole_file, whole_folder
from trtmatrix.judge.record import NewerRecordError, Record, RecordError, parse_record
from trtmatrix.records.store import kept_digests, kept_file, record_path, write_new
from trtmatrix.suite.digest import PACKAGES
from trtmatrix.suite.model import CellId
from trtprobe.files import write_json

BEGAN = "The task begins."  # what its script says first


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One sbatch of a run, in a folder of its own; ``tasks``: the ids of each task's cells."""

    folder: Path
    tasks: Sequence[Sequence[str]]

    @property
    def name(self) -> str:
        """The name of its jobs."""
        return f"trtmatrix-{self.folder.parent.name}.{self.folder.name}"

    @property
    def job(self) -> str:
        """The array's id; nothing as long as sbatch has not answered."""
        with contextlib.suppress(OSError):
            return (self.folder / "job").read_text().strip()
        return ""

    def codes(self) -> dict[int, int]:
        """Return the exit code of each task that has ended by itself."""
        found = {}
        for file in self.folder.glob("*.exit"):
            with contextlib.suppress(OSError, ValueError):
                found[int(file.stem)] = int(file.read_text())
        return found

    def said(self, task: int) -> tuple[bool, str]:
        """Return whether a task's script began, and the last that it says of itself, with its log."""
        log, lines = self.folder / f"{task}.log", list[str]()
        with contextlib.suppress(OSError):
            lines = log.read_text(errors="replace").strip().splitlines()
        ours = [line for line in lines if line.startswith(("trtmatrix: ", "[!!]", "slurmstepd"))]
        return BEGAN in lines, f"{(ours or lines or ['nothing'])[-1][:300]} ({log})"


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """One command's cells on their way: what it has submitted. Its logs stay when it is closed."""

    folder: Path

    @property
    def key(self) -> str:
        """What tells its command from others."""
        return self.folder.name.partition(".")[0]

    def past(self) -> dict[str, list[str]] | None:
        """Return each cell's records that were there before; None where it is closed."""
        data = _read(self.folder / "run.json")
        return None if data is None else data["past"]

    def submissions(self) -> list[Submission]:
        """Return what was submitted, in order."""
        read = [(folder, _read(folder / "tasks.json")) for folder in self.folder.glob("[0-9]*")]
        found = [Submission(folder=folder, tasks=data["tasks"]) for folder, data in read if data]
        return sorted(found, key=lambda sent: int(sent.folder.name))

    def add(self, tasks: Sequence[Sequence[str]]) -> Submission:
        """Make the folder of the next submission."""
        numbers = [int(folder.name) for folder in self.folder.glob("[0-9]*")]
        folder = self.folder / str(max(numbers, default=-1) + 1)
        folder.mkdir()
        write_json(folder / "tasks.json", {"tasks": tasks})
        return Submission(folder=folder, tasks=tasks)

    def drop(self, sent: Submission) -> None:
        """Forget a submission that Slurm did not take; its number stays taken: others may know it."""
        (sent.folder / "tasks.json").unlink()


class Shared:
    """The shared folder of a site, made on the first use."""

    def __init__(self, root: Path, note: Callable[[str], None]) -> None:
        self.root, self.note, self.local = root, note, root / "results" / "local"
        self._copied: dict[tuple[int, int], Path] = {}  # by device and inode of their source

    def check(self) -> None:
        """Make the folder, and try what is needed of it; :class:`UsageError` where that fails."""
        try:
            for name in ("runs", "suites", "cache/cases", "cache/outputs", "results/local"):
                (self.root / name).mkdir(parents=True, exist_ok=True)
            with self.lock():
                pass
        except OSError as error:
            raise UsageError(
                f"shared: {self.root} cannot be used: {error.strerror}\n"
                "  it must be a folder of yours on a file system that all nodes mount, with POSIX locks"
            ) from error

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Hold the lock under which is decided what is submitted."""
        return hold(self.root / "lock")

    def stage_suite(self, project: Project) -> str:
        """Return the folder with our packages, matrix.yaml, its lock and the repros, copied there if new.

        A run goes on with the suite that it began with, whatever is edited meanwhile.
        """
        sources = {"matrix.yaml": project.matrix, "matrix.lock": project.lock}
        trees = {**{f"src/{name}": path for name, path in PACKAGES.items()}, "repros": project.repros}
        for name, tree in trees.items():
            for file in sorted(tree.rglob("*")):
                inner = file.relative_to(tree)
                if file.is_file() and not any(p.startswith((".", "__pycache__")) for p in inner.parts):
                    sources[f"{name}/{inner}"] = file
        content = {name: file.read_bytes() for name, file in sources.items() if file.is_file()}
        total = sha256()
        for name, data in sorted(content.items()):
            total.update(f"{name} {len(data)}\n".encode() + data)
        folder = self.root / "suites" / total.hexdigest()[:16]
        if not folder.is_dir():
            with whole_folder(folder) as partial:
                for name, data in content.items():
                    (partial / name).parent.mkdir(parents=True, exist_ok=True)
                    (partial / name).write_bytes(data)
        os.utime(folder)
        return str(folder)

    def stage_case(self, case: Path) -> None:
        """Copy a prepared case if it is not there; files that cases share here are shared there, too."""
        target = self.root / "cache" / "cases" / case.name
        if target.is_dir():
            return
        with whole_folder(target) as partial:
            for file in (path for path in case.rglob("*") if path.is_file()):
                inner, facts = file.relative_to(case), file.stat()
                copy, source = partial / inner, (facts.st_dev, facts.st_ino)
                copy.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(self._copied[source], copy)
                except (KeyError, OSError):  # the first of its kind; a file system without links
                    shutil.copy(file, copy)
                self._copied[source] = target / inner

    def runs(self) -> list[RunFolder]:
        """Return the runs that are open: whose jobs may still bring records."""
        return [RunFolder(folder=file.parent) for file in sorted(self.root.glob("runs/*/run.json"))]

    def run(self, key: str) -> RunFolder:
        """Return the open run of a command, or a new one, which is not there before it submits something."""
        new = self.root / "runs" / f"{key}.{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        return next((run for run in self.runs() if run.key == key), RunFolder(folder=new))

    def close(self, run: RunFolder) -> None:
        """Close a run: its cells are anybody's. Call it under the lock."""
        with contextlib.suppress(FileNotFoundError):  # another client was sooner
            (run.folder / "run.json").rename(run.folder / "closed.json")

    def take(self, cell: CellId, names: Iterable[str], project: Project) -> list[Record]:
        """Copy records of a cell, outputs first, to this project's own; returns them as they lie here.

        A damaged one is set aside: its cell has none.
        """
        taken = []
        for file in (self.local / cell.folder / name for name in sorted(names)):
            try:
                content = read_file(file)
                record = parse_record(content, str(file))
            except NewerRecordError as error:
                self.note(str(error))
            except (RecordError, BorderError) as error:
                self.note(f"{error}; it is set aside")
                file.rename(file.with_name(f"{file.name}.damaged"))
            else:
                for digest in kept_digests(record):
                    theirs, ours = kept_file(self.root / "cache", digest), kept_file(project.cache, digest)
                    if theirs.exists() and not ours.exists():
                        with opened(theirs, ARRAY) as (stream, _), whole_file(ours, sync=False) as out:
                            shutil.copyfileobj(stream, out, BLOCK)
                target = record_path(project.local, record)
                with contextlib.suppress(FileExistsError):
                    write_new(target, content)
                taken.append(parse_record(content, str(target)))
        return taken

    def take_all(self, project: Project) -> None:
        """Copy every record that this project does not have: what came while nobody looked."""
        for folder in self.local.glob("*/*/*/*"):
            gpu, version, repro, case = folder.parts[-4:]
            cell = CellId(repro=repro, case=case, version=version, gpu=gpu)
            self.take(cell, record_names(self.local, cell) - record_names(project.local, cell), project)


def _read(file: Path) -> dict[str, Any] | None:
    """Return a JSON object of ours; None where it is not there, or damaged."""
    try:
        return read_json(file)
    except (OSError, BorderError):
        return None


def record_names(root: Path, cell: CellId) -> set[str]:
    """Return the names of a cell's records below a folder of records."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return {name for name in os.listdir(root / cell.folder) if name.endswith(".json")}  # noqa: PTH208 - of 2,000 folders: no objects
    return set()
