"""A project in a folder of its own, and the real command line over it. Without an engine all tests fail."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import docker.errors
import pytest
from bench.registry import Serving
from projects import command, matrix_text, records_below

from tests.calling import Done
from tests.containers.engines import client, socket_group, use_by_hand
from tests.containers.pulling_kit import Bench, open_bench
from tests.registry.registries import serve_registry
from trtmatrix.launchers.container import OWNER_LABEL, PROJECT_LABEL

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "docker" / "test" / "build"
IMAGE = "trtmatrix/test:latest"
MEMORY, OUTPUT = 1 << 30, 64 << 20
LIMITS = (f"--memory={MEMORY}", f"--output-size={OUTPUT}")

MATRIX = matrix_text(
    ("onnxruntime-1.29.0", "127.0.0.1:1/trtmatrix/nowhere:1.29.0", "1.29.0"),  # nothing answers there
    ("onnxruntime-1.30.0", IMAGE, "1.30.0"),  # another library than the image has
    ("onnxruntime-1.31.1", IMAGE, "1.31.1"),
    ("onnxruntime-1.32.0", {"wheels": ["onnxruntime==1.32.0"]}, "1.32.0"),  # wheels that are nowhere
)
GOOD = "onnxruntime-1.31.1"


class Project:
    """matrix.yaml, results and cache of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results, self.cache = folder, folder / "results", folder / "cache"
        folder.mkdir(exist_ok=True)
        (folder / "matrix.yaml").write_text(MATRIX)

    def command(self, *words: str) -> list[str]:
        places = (f"--results={self.results}", f"--cache={self.cache}")
        return command("run", self.folder, HERE / "repros", *places, *LIMITS, *words)

    def start(self, *words: str, prefix: Sequence[str] = ()) -> subprocess.Popen[str]:
        with (self.folder / "told").open("w") as told, (self.folder / "printed").open("w") as printed:
            return subprocess.Popen(
                [*prefix, *self.command(*words, "--json", "--full")], stdout=printed, stderr=told,
                text=True, start_new_session=True,
            )  # fmt: skip

    def run(self, *words: str, prefix: Sequence[str] = (), seconds: float = 300) -> Done:
        process = self.start(*words, prefix=prefix)
        try:
            code = process.wait(timeout=seconds)
        finally:
            end(process)
        return self.done(code)

    def done(self, code: int) -> Done:
        printed, told = ((self.folder / name).read_text() for name in ("printed", "told"))
        return Done(code=code, printed=printed, told=told)

    def records(self) -> list[dict[str, Any]]:
        return records_below(self.results)

    def record(self, cell: dict[str, Any]) -> dict[str, Any]:
        """Return the record that a cell of the printed JSON names."""
        found = [r for r in self.records() if r["run"] == cell["record"]["run"] and identity(r) == cell["id"]]
        assert len(found) == 1
        return found[0]

    def jobs(self) -> list[Path]:
        return sorted((self.cache / "jobs").glob("*"))


STRANGER = 12345  # a user ID that neither the host nor an image knows


def become_stranger(folder: Path) -> list[str]:
    """Give a folder to the stranger, and return what a command is prefixed with to be run as that user.

    A user who may read this checkout wherever it lies, and use the engine: no more than that.
    """
    group = socket_group()
    os.chown(folder, STRANGER, group)
    words = ["setpriv", f"--reuid={STRANGER}", f"--regid={group}", "--clear-groups"]
    words += ["--bounding-set=-all,+dac_read_search"]
    return [*words, "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]


def identity(record: dict[str, Any]) -> str:
    return "{repro}/{case}@{version}#{gpu}".format(**record["cell"])


def end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for container in containers_of(process.pid):
        with contextlib.suppress(docker.errors.APIError):  # its own run may be removing it
            container.remove(force=True)


def containers_of(pid: int) -> list[Any]:
    found = client().containers.list(all=True, filters={"label": PROJECT_LABEL}, sparse=True)
    return [c for c in found if c.attrs["Labels"].get(OWNER_LABEL, "").split(":")[2:3] == [str(pid)]]


@pytest.fixture(scope="session", autouse=True)
def _image() -> None:
    use_by_hand()
    subprocess.run([str(BUILD)], check=True)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def started(project: Project) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def start(*words: str, of: Project = project) -> subprocess.Popen[str]:
        running.append(of.start(*words))
        return running[-1]

    yield start
    for process in running:
        end(process)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serve_registry(tmp_path_factory.mktemp("registry")) as opened:
        yield opened


@pytest.fixture
def bench(serving: Serving) -> Iterator[Bench]:
    with open_bench(serving) as opened:
        yield opened
