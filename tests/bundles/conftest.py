"""A project with a version that is right and one that loses attention's scale; an archive of that.

No other test names these versions: the containers that were started of them are known by that.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest
from projects import Column

from tests.bundles.deep import write_deep
from tests.calling import Done, Project
from tests.models import images

RIGHT, WRONG = (f"onnxruntime-1.31.{1000 + 2 * os.getpid() + n}" for n in range(2))


def columns(wrong: str = images.DEFECTIVE) -> tuple[Column, ...]:
    """Return a matrix of two versions: one is right, the other one runs in an image with a defect."""
    return (RIGHT, images.CURRENT, images.CURRENT_VERSION), (WRONG, wrong, images.CURRENT_VERSION)


@contextmanager
def count_starts() -> Iterator[list[str]]:
    """Fill a list, on the way out, with the version of each container that was started meanwhile."""
    started: list[str] = []
    before = time.time_ns()
    yield started
    events = docker.from_env().events(
        since=before // 10**9, until=int(time.time()) + 1, filters={"event": "start", "type": "container"},
        decode=True,
    )  # fmt: skip
    names = [str(e["Actor"]["Attributes"].get("name", "")) for e in events if e["timeNano"] >= before]
    started += [version for name in names for version in (RIGHT, WRONG) if f"-{version}-cpu-" in name]


def left_over() -> list[str]:
    found = docker.from_env().containers.list(all=True, ignore_removed=True)
    return [str(one.name) for one in found if RIGHT in str(one.name) or WRONG in str(one.name)]


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A project with a cell that fails at one version and is right at the other."""

    project: Project
    cell: str
    model: Path

    def words(self, target: Path, *words: str) -> list[str]:
        return ["minimise", self.cell, *self.project.files, f"--to={target}", *words]

    def minimise(self, target: Path, *words: str) -> Done:
        return self.project.call_bare(*self.words(target, "--json", *words))


def make_failing(folder: Path, samples: int = 2) -> Failing:
    images.make_defective()
    project = Project(folder, columns=columns())
    model = write_deep(folder / "deep", samples)
    ran = project.run(model)
    assert ran.verdicts() == {RIGHT: "PASS", WRONG: "FAIL"}, ran.told
    (cell,) = (cell["id"] for cell in ran.data["cells"] if cell["version"] == WRONG)
    return Failing(project=project, cell=cell, model=model)


@dataclass(frozen=True, kw_only=True)
class Made:
    """A project, a cell of it that fails, the archive that was made of it and how that went."""

    project: Project
    cell: str
    archive: Path
    done: Done

    def make(self, target: Path, *words: str, cell: str = "") -> Done:
        name = cell or self.cell
        return self.call("make", name, *self.project.files, f"--to={target}", *words)

    def verify(self, archive: Path, *words: str) -> Done:
        return self.call("verify", str(archive), "--json", *words)

    def call(self, *words: str, **variables: str) -> Done:
        """Call ``bundle``; what it unpacks lies in the project's folder."""
        return self.project.call_bare("bundle", *words, **{"TMPDIR": str(self.project.folder), **variables})

    def record(self, version: str) -> Path:
        (file,) = (self.project.results / "local" / "cpu" / version).rglob("*.json")
        return file


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("bundles")
    failing = make_failing(folder, samples=1)
    project, cell, archive = failing.project, failing.cell, folder / "out" / "attention.tar.gz"
    archive.parent.mkdir()
    done = project.call_bare("bundle", "make", cell, *project.files, f"--to={archive}", "--yes", "--json")
    return Made(project=project, cell=cell, archive=archive, done=done)


def refused(made: Made, archive: Path, *words: str) -> dict[str, Any]:
    done = made.verify(archive, *words)
    assert done.code == 1, done.told + done.printed
    assert not done.data["verified"]
    assert done.data["problems"]
    return done.data


def containers_below(folder: Path) -> list[str]:
    """Return the containers that archives unpacked below a folder run in; others may run theirs."""
    found = docker.from_env().containers.list(
        all=True, filters={"name": "trtmatrix-verify-"}, ignore_removed=True
    )
    return [
        str(container.name) for container in found
        if any(str(mount.get("Source", "")).startswith(f"{folder}/") for mount in container.attrs["Mounts"])
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail where a container of an archive, or of a version that only these tests name, is left behind."""
    yield
    assert containers_below(tmp_path_factory.getbasetemp()) == left_over() == []
