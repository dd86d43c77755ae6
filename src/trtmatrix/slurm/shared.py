"""The folder that this host and every node see: the environment, the suite, cases, runs and their records."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from trtmatrix.core.errors import MachineryError, UsageError
from trtmatrix.core.model import CellId
from trtmatrix.core.record import Record, parse_record
from trtmatrix.effects.code import PACKAGES
from trtmatrix.effects.kept_outputs import kept_file
from trtmatrix.effects.offline import need_network
from trtmatrix.effects.paths import Project
from trtmatrix.effects.store import read_json, record_path, write_new
from trtmatrix.effects.wheels import install_wheels
from trtprobe.files import write_json

LOCK_SECONDS = 0.2
TOLD_SECONDS = 10.0
OLD_SECONDS = 30 * 24 * 3600.0
"""What has been of no use for so long goes: suites, environments, and the logs of runs that are over."""
PYTHON = "3.12"
"""What uv fetches where the site names no Python; 3.10 at least is needed."""

Note = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One sbatch of a run: an array over cells of one version on one GPU, in a folder of its own.

    ``tasks``: the ids of each task's cells.
    """

    folder: Path
    version: str
    gpu: str
    tasks: tuple[tuple[str, ...], ...]

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

    def log(self, task: int) -> Path:
        """Return what a task prints into."""
        return self.folder / f"{task}.log"


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """One command's cells on their way: what it claims, what it submitted. It is there as long as it is open."""

    folder: Path
    _read: dict[str, Submission] = field(default_factory=dict, compare=False, repr=False)

    @property
    def key(self) -> str:
        """What tells its command from others."""
        return self.folder.name

    def facts(self) -> dict[str, Any] | None:
        """Return ``claims`` and ``past`` (the records of each cell that were there before), None where closed."""
        return read_json(self.folder / "run.json")

    def write(self, facts: Mapping[str, Any]) -> None:
        """Write them anew."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / "run.json", dict(facts))

    def submissions(self) -> list[Submission]:
        """Return what was submitted, in order."""
        for folder in self.folder.glob("[0-9]*"):
            data = read_json(folder / "tasks.json") if folder.name not in self._read else None
            if data is not None:
                tasks = tuple(tuple(task) for task in data["tasks"])
                self._read[folder.name] = Submission(
                    folder=folder, version=data["version"], gpu=data["gpu"], tasks=tasks
                )
        return [self._read[name] for name in sorted(self._read, key=int)]

    def add(self, version: str, gpu: str, tasks: Sequence[Sequence[CellId]]) -> Submission:
        """Make the folder of the next submission."""
        numbers = [int(folder.name) for folder in self.folder.glob("[0-9]*")]
        folder = self.folder / str(max(numbers, default=-1) + 1)
        folder.mkdir()
        named = tuple(tuple(map(str, task)) for task in tasks)
        write_json(folder / "tasks.json", {"version": version, "gpu": gpu, "tasks": named})
        return Submission(folder=folder, version=version, gpu=gpu, tasks=named)

    def drop(self, sent: Submission) -> None:
        """Forget a submission that Slurm did not take."""
        self._read.pop(sent.folder.name, None)
        shutil.rmtree(sent.folder)


class Shared:
    """The shared folder of a site."""

    def __init__(self, root: Path, note: Note) -> None:
        """Name it; it is made on the first use."""
        self.root, self.note = root, note
        self._copied: dict[tuple[int, int], Path] = {}

    def check(self) -> None:
        """Make the folder, and try what is needed of it; :class:`UsageError` where that fails."""
        try:
            for name in ("runs", "over", "suites", "env", "cache/cases", "cache/outputs", "results/local"):
                (self.root / name).mkdir(parents=True, exist_ok=True)
            with self.lock():
                pass
        except OSError as error:
            raise UsageError(
                f"shared: {self.root} cannot be used: {error.strerror}\n  it must be a folder of yours on a file "
                "system that all nodes mount, with POSIX locks (NFS 4, Lustre with flock, GPFS, BeeGFS)"
            ) from error

    @contextlib.contextmanager
    def lock(self, name: str = "lock") -> Iterator[None]:
        """Hold a lock that ends with its process, on whatever host; tells who holds it where that takes long."""
        with (self.root / name).open("a+") as file:
            began, told = time.monotonic(), False
            while True:
                try:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except (BlockingIOError, PermissionError):
                    if not told and time.monotonic() > began + TOLD_SECONDS:
                        file.seek(0)
                        self.note(f"waiting for {self.root / name}, held by {file.read().strip() or 'another'}")
                        told = True
                    time.sleep(LOCK_SECONDS)
            file.truncate(0)
            file.write(f"{os.uname().nodename}, process {os.getpid()}")
            file.flush()
            yield

    def python(self, named: str | None) -> str:
        """Return the Python of the nodes, with all that trtmatrix needs installed; made once.

        ``named``: a Python 3.10 or later that this host and every node have under that path; without one uv
        fetches its own into the shared folder. Raises :class:`MachineryError` with what to type.
        """
        wanted = [Requirement(text) for text in importlib.metadata.requires("trtmatrix") or ()]
        plain = sorted(str(one) for one in wanted if not (one.marker and "extra" in str(one.marker)))
        key = sha256("\n".join([named or PYTHON, *plain]).encode()).hexdigest()[:16]
        folder = self.root / "env" / key
        python = folder / "bin" / "python"
        with self.lock("env.lock"):
            if not (folder / "complete").exists():
                self.note(f"making the Python environment of the nodes in {folder} (once)")
                shutil.rmtree(folder, ignore_errors=True)
                self._make_python(named, folder)
                install_wheels(python, tuple(plain))
                (folder / "complete").touch()
        os.utime(folder)
        return str(python)

    def _make_python(self, named: str | None, folder: Path) -> None:
        need_network("the Python environment of the nodes")
        own = ["--managed-python", "--python", PYTHON]
        words = ["--no-python-downloads", "--python", named] if named else own
        command = [sys.executable, "-m", "uv", "venv", "--quiet", *words, str(folder)]
        place = {"UV_PYTHON_INSTALL_DIR": str(self.root / "python")}
        done = subprocess.run(
            command, env={**os.environ, **place}, capture_output=True, text=True, check=False
        )
        old = "import sys; sys.exit(sys.version_info < (3, 10))"
        if done.returncode or subprocess.run([folder / "bin" / "python", "-c", old], check=False).returncode:
            raise MachineryError(
                f"no Python 3.10 for the nodes from {named or 'uv'}: {done.stderr.strip()[-300:]}\n"
                "  name one that this host and every node have by python: in slurm.yaml"
            )

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
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
            for name, data in content.items():
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                (partial / name).write_bytes(data)
            _publish(partial, folder)
        os.utime(folder)
        return str(folder)

    def stage_case(self, case: Path) -> None:
        """Copy a prepared case if it is not there; files that cases share on this host are shared there too."""
        target = self.root / "cache" / "cases" / case.name
        if target.is_dir():
            return
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=target.parent))
        for file in (path for path in case.rglob("*") if path.is_file()):
            copy = partial / file.relative_to(case)
            copy.parent.mkdir(parents=True, exist_ok=True)
            facts = file.stat()
            node = facts.st_dev, facts.st_ino
            with contextlib.suppress(OSError):  # it has been removed, or has too many links
                os.link(self._copied[node], copy) if node in self._copied else shutil.copy(file, copy)
            if not copy.exists():
                shutil.copy(file, copy)
            self._copied[node] = target / file.relative_to(case)
        _publish(partial, target)

    def runs(self) -> list[RunFolder]:
        """Return the runs that are open: whose jobs may still bring records."""
        return [RunFolder(folder=folder) for folder in sorted((self.root / "runs").iterdir())]

    def run(self, key: str) -> RunFolder:
        """Return the run of a command."""
        return RunFolder(folder=self.root / "runs" / key)

    def close(self, run: RunFolder) -> Path:
        """Take a run away from those that are open; its logs stay for a while. Call it under the lock."""
        over = self.root / "over" / f"{run.key}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
        with contextlib.suppress(FileNotFoundError):  # another client was sooner
            run.folder.rename(over)
            os.utime(over)
        return over

    def tidy(self) -> None:
        """Remove what has been of no use for a month. Call it under the lock, where no run is open."""
        for old in (path for name in ("over", "suites", "env") for path in (self.root / name).iterdir()):
            if old.stat().st_mtime < time.time() - OLD_SECONDS:
                shutil.rmtree(old, ignore_errors=True)

    def names(self, cell: CellId) -> frozenset[str]:
        """Return the names of a cell's records that are there."""
        return _names(self.root / "results" / "local", cell)

    def take(self, cell: CellId, names: Sequence[str], project: Project) -> list[Record]:
        """Copy records of a cell, outputs first, to this project's own; returns them as they lie here."""
        taken = []
        for name in sorted(names):
            file = _folder(self.root / "results" / "local", cell) / name
            content = file.read_bytes()
            record = parse_record(content, str(file))
            for facts in dict(record.data.get("kept", {})).values():
                self._take_output(str(facts["sha256"]), project.cache)
            target = record_path(project.local, record)
            with contextlib.suppress(FileExistsError):
                write_new(target, content)
            taken.append(parse_record(content, str(target)))
        return taken

    def take_all(self, project: Project) -> None:
        """Copy every record that this project does not have: what came while nobody looked."""
        for folder in (self.root / "results" / "local").glob("*/*/*/*"):
            gpu, version, repro, case = folder.parts[-4:]
            cell = CellId(repro=repro, case=case, version=version, gpu=gpu)
            self.take(cell, sorted(self.names(cell) - _names(project.local, cell)), project)

    def known_here(self, cell: CellId, project: Project) -> frozenset[str]:
        """Return the names of a cell's records that are there and in this project."""
        return self.names(cell) & _names(project.local, cell)

    def _take_output(self, digest: str, cache: Path) -> None:
        source, target = kept_file(self.root / "cache", digest), kept_file(cache, digest)
        if source.exists() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".partial", delete=False) as partial:
                partial.close()
                shutil.copyfile(source, partial.name)
                Path(partial.name).replace(target)


def _folder(root: Path, cell: CellId) -> Path:
    return root / cell.gpu / cell.version / cell.repro / cell.case


def _names(root: Path, cell: CellId) -> frozenset[str]:
    try:
        return frozenset(name for name in os.listdir(_folder(root, cell)) if name.endswith(".json"))  # noqa: PTH208 - of 2,000 folders: no objects
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


def _publish(partial: Path, target: Path) -> None:
    """Give a folder its name; where another client was sooner, its is as good."""
    partial.chmod(0o755)
    try:
        partial.rename(target)
    except OSError:
        shutil.rmtree(partial)
        if not target.is_dir():
            raise
