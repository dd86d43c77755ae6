"""What commands import and start, as little as can be; what they write, say and end with."""

import contextlib
import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import make_entry, make_record
from commandline import options_of
from engines import ANSWERS, serving
from pagereading import Page
from projects import matrix_text
from reprosource import write_project

from trtmatrix.cli import entry as cli
from trtmatrix.cli.commands import show
from trtmatrix.launchers.gpu import NVML
from trtmatrix.plan.context import ProjectOptions, open_context
from trtmatrix.plan.survey import digests_now, take_survey
from trtmatrix.prepare.cases import CaseCache
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


def watched(*words: str) -> tuple[int, set[str], list[str]]:
    """Run a command by this very program; its code, what it had imported, and what it started.

    A PYTHONPATH such as ``src`` means nothing in another folder.
    """
    command = [sys.executable, "-c", WATCHED, *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert not done.returncode, done.stderr
    code, modules, started = json.loads(done.stdout.splitlines()[-1])
    return code, set(modules), started


MATRIX = matrix_text(
    ("10.7.0", "example.org/tensorrt:10.7.0", "10.7.0"),
    ("tensorrt-rtx-1.7", {"wheels": ["tensorrt-rtx==1.7"]}, "1.7"),
    ("onnxruntime-1.31.1", "a/b:1", "1.31.1"),
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one repro."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    return write_project(tmp_path, MATRIX, monkeypatch)


def store_all(project: Path, value: float = 0.5) -> int:
    """Store a current record of every cell that can be run here; returns how many."""
    context = open_context(ProjectOptions())
    survey = take_survey(context, Pull.NEVER)
    cells = [cell for launch in survey.plan.launches for cell in launch.cells]
    current = digests_now(context, survey)
    for cell in cells:
        write_record(project / "results" / "local", make_record(cell, value, digests=current[cell.id]))
    return len(cells)


def tree(root: Path) -> set[tuple[Path, int]]:
    return {(path, path.stat().st_mtime_ns) for path in root.rglob("*")}


@pytest.mark.parametrize("words", [["--help"], ["--version"], []])
def test_help_imports_nothing_of_the_program(words: list[str]) -> None:
    _, modules, _ = watched(*words)
    assert modules & (HEAVY | NOT_FOR_LIST | NOT_FOR_HELP) == set()
    ours = {name.split(".")[1] for name in modules if name.startswith("trtmatrix.")}
    assert ours == {"cli", "common"}


@pytest.mark.usefixtures("project")
def test_list_imports_nothing_heavy() -> None:
    code, modules, started = watched("list", "--json", "--trt", "10.7.0", "--repro", "plain")
    assert (code, started, modules & (HEAVY | NOT_FOR_LIST | RUNNING)) == (0, [], set())


def test_a_run_with_nothing_changed_imports_nothing_heavy_and_starts_nothing(project: Path) -> None:
    with serving(project / "docker.sock") as asked:
        assert store_all(project) == 2
        before = tree(project)
        asked.clear()
        code, modules, started = watched("run")
        assert asked == ["/version", *ANSWERS]
    assert (code, started, modules & (HEAVY - ENGINE | RUNNING)) == (0, [], set())
    assert {path.name for path, _ in tree(project) - before} <= {project.name, "docker.sock"}


@pytest.mark.parametrize("command", ["table", "report"])
def test_a_table_imports_nothing_heavy(command: str, project: Path) -> None:
    with serving(project / "docker.sock"):
        store_all(project)
        assert watched(command)[1] & (HEAVY - ENGINE | RUNNING) == set()


def test_it_writes_what_it_is_asked_for(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_all(project)
    assert cli.run(["report"]) == 0
    assert capsys.readouterr().out == "report.html\n"
    Page((project / "report.html").read_text(encoding="utf-8"))
    assert cli.run(["report", "-o", "a.md", "-o", "b.json", "-o", "c.html"]) == 0
    assert (project / "a.md").read_text(encoding="utf-8").startswith("## TensorRT version matrix")
    assert json.loads((project / "b.json").read_text(encoding="utf-8"))["schema"] == 1
    assert (project / "c.html").exists()


@pytest.mark.parametrize(
    ("words", "executed", "logged"),
    [([], True, True), ([], False, False), (["--json"], True, False), (["--full"], True, True)],
)
def test_a_run_that_executed_something_leaves_its_page_and_every_row_in_its_log(
    words: list[str], executed: bool, logged: bool, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = options_of("run", *words)
    context = open_context(options.project)
    show(options, context, take_survey(context, Pull.NEVER), [make_entry(executed=executed)], 61.0)
    log = project / "results" / "local" / "last-run.txt"
    assert log.with_name("report.html").exists() is logged
    shown = capsys.readouterr().out
    assert "PASS¹ 175" in log.read_text(encoding="utf-8") if logged else not log.exists()
    if logged and not words:
        assert "results/local/report.html · results/local/last-run.txt" in shown
        assert "1 test run in 61 s, none unexpected" in shown
    assert ("PASS¹ 175" in shown) is (words == ["--full"])


def test_an_interrupted_run_shows_what_is_there_by_then(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store_all(project)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trtmatrix.cli.commands.perform", interrupted)
    assert cli.run(["run"]) == 130
    shown, told = capsys.readouterr()
    assert "stored result" in shown
    assert "\nNext: " in shown
    assert "interrupted; what had ended is kept, the next run goes on" in told
    assert cli.run(["run", "--json"]) == 130
    assert capsys.readouterr().out == ""


def test_no_evidence_or_a_surprise_is_told_and_is_the_exit_code(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["report"]) == 4
    assert "nox -s matrix runs what can be run here" in capsys.readouterr().out
    Page((project / "report.html").read_text(encoding="utf-8"))
    store_all(project, 1e9)
    assert cli.run(["report"]) == 1
    assert "cells are not as expected: see what needs attention" in capsys.readouterr().out


def test_the_command_that_prepare_prints_can_be_pasted(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(CaseCache, "prepare", lambda *_: project / "repros")
    assert cli.run(["prepare", "plain/plain", "--to", "a b"]) == 0
    assert capsys.readouterr().out.endswith(" --files 'a b'\n")
