"""What a command imports and starts: --help and list nothing heavy, a run that is served nothing at all."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from builders import make_record
from engines import ANSWERS, serving
from projects import matrix_text
from reprosource import SOURCE

from trtmatrix.cli import entry as cli
from trtmatrix.launchers.gpu import NVML
from trtmatrix.plan.context import ProjectOptions, open_context
from trtmatrix.plan.survey import digests_now, take_survey
from trtmatrix.records.store import write_record
from trtmatrix.suite.plan import Pull

HEAVY = {
    "onnx", "onnxruntime", "docker", "requests", "urllib3", "rich", "pynvml", "multiprocessing", "asyncio",
    "venv", "torch",
}  # fmt: skip
"""What is slow to import, and what only running needs; repros are read anew, and import what they like."""
with contextlib.suppress(OSError):
    ctypes.CDLL(NVML)
    HEAVY -= {"pynvml"}  # a run asks a host with NVIDIA's driver what GPUs it has

ENGINE = {"docker", "requests", "urllib3"}
"""What the container engine is asked by."""
NOT_FOR_LIST = {"pynvml", "http", "ssl"}
NOT_FOR_HELP = {"pydantic", "yaml", "packaging", "numpy", "trtmatrix_repros", "trtmatrix.authoring"}
RUNNING = {
    "trtmatrix.run.execute", "trtmatrix.run.worker", "trtmatrix.run.tasks", "trtmatrix.launchers.containers",
}  # fmt: skip
STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system")

WATCHED = f"""
import sys
started = []
sys.addaudithook(lambda event, args: started.append(event) if event in {STARTS!r} else None)
from trtmatrix.cli.entry import run

code = run(sys.argv[1:])
import json
print("\\n" + json.dumps([int(code), sorted(sys.modules), started]))
"""


@dataclass(frozen=True, kw_only=True)
class Watched:
    """How a command ended in a process of its own, what it had imported, and what it started."""

    code: int
    modules: set[str]
    started: list[str]

    def imported(self, names: set[str]) -> set[str]:
        """Which of these modules and packages it had imported."""
        return names & {part for name in self.modules for part in parents(name)}


def parents(name: str) -> Iterator[str]:
    """A module's name and those of the packages around it."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def watched(*words: str) -> Watched:
    """Run a command by this very program: a PYTHONPATH such as ``src`` means nothing in another folder."""
    command = [sys.executable, "-c", WATCHED, *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert not done.returncode, done.stderr
    code, modules, started = json.loads(done.stdout.splitlines()[-1])
    return Watched(code=code, modules=set(modules), started=started)


MATRIX = matrix_text(
    ("10.7.0", "example.org/tensorrt:10.7.0", "10.7.0"),
    ("tensorrt-rtx-1.7", {"wheels": ["tensorrt-rtx==1.7"]}, "1.7"),
    ("onnxruntime-1.31.1", "a/b:1", "1.31.1"),
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one repro."""
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    (tmp_path / "repros").mkdir()
    (tmp_path / "repros" / "plain.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRTMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    return tmp_path


def store_all(project: Path, value: float = 0.5) -> int:
    """Store a current record of every cell that can be run here; returns how many."""
    context = open_context(ProjectOptions())
    survey = take_survey(context, Pull.NEVER)
    cells = [cell for launch in survey.plan.launches for cell in launch.cells]
    current = digests_now(context, survey)
    for cell in cells:
        record = make_record(cell, value, digests=current[cell.id])
        write_record(project / "results" / "local", record.data)
    return len(cells)


def tree(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*")}


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"], []])
def test_help_imports_nothing_of_the_program(words: list[str]) -> None:
    found = watched(*words)
    assert found.imported(HEAVY | NOT_FOR_LIST | NOT_FOR_HELP) == set()
    ours = {name for name in found.modules if name.startswith("trtmatrix.")}
    assert {name.split(".")[1] for name in ours} == {"cli", "common"}


@pytest.mark.usefixtures("project")
def test_list_imports_nothing_heavy() -> None:
    found = watched("list", "--json", "--trt", "10.7.0", "--repro", "plain")
    assert (found.code, found.started) == (0, [])
    assert found.imported(HEAVY | NOT_FOR_LIST | RUNNING) == set()


def test_a_run_with_nothing_changed_imports_nothing_heavy_and_starts_nothing(project: Path) -> None:
    with serving(project / "docker.sock") as asked:
        assert store_all(project) == 2
        before = tree(project)
        asked.clear()
        found = watched("run")
        assert asked == ["/version", *ANSWERS]
    assert (found.code, found.started) == (0, [])
    assert found.imported(HEAVY - ENGINE | RUNNING) == set()
    changed = {path for path, moment in tree(project).items() if before.get(path) != moment}
    assert {Path(path).name for path in changed} <= {project.name, "docker.sock"}


@pytest.mark.parametrize("command", ["table", "report"])
def test_a_table_imports_nothing_heavy(command: str, project: Path) -> None:
    with serving(project / "docker.sock"):
        store_all(project)
        found = watched(command)
    assert found.imported(HEAVY - ENGINE | RUNNING) == set()
