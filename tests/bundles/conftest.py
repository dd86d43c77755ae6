"""A project with a version that is right and one that loses attention's scale; an archive of that."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from tests.bundles.attention import write_attention
from tests.models import images
from tests.models.conftest import Done, Project

RIGHT, WRONG = "onnxruntime-1.31.1", "onnxruntime-1.31.2"
COLUMNS = (
    (RIGHT, "onnxruntime", images.CURRENT, images.CURRENT_VERSION),
    (WRONG, "onnxruntime", images.DEFECTIVE, images.CURRENT_VERSION),
)


@dataclass(frozen=True, kw_only=True)
class Made:
    """A project, a cell of it that fails, the archive that was made of it and how that went."""

    project: Project
    cell: str
    archive: Path
    done: Done

    def make(self, target: Path, *words: str, cell: str = "") -> Done:
        """Call ``bundle make`` again."""
        name = cell or self.cell
        return self.project.call_bare("bundle", "make", name, *self.project.files, f"--to={target}", *words)

    def verify(self, archive: Path, *words: str) -> Done:
        """Call ``bundle verify`` as somebody who has nothing but the archive."""
        return self.project.call_bare("bundle", "verify", str(archive), "--json", *words)

    def record(self, version: str) -> Path:
        """Return the file of a version's record."""
        (file,) = (self.project.results / "local" / "cpu" / version).rglob("*.json")
        return file


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Run an attention block at both versions and make the archive of the wrong one."""
    images.make_defective()
    folder = tmp_path_factory.mktemp("bundles")
    project = Project(folder, columns=COLUMNS)
    model = write_attention(folder / "model")
    ran = project.run_with(model, model.with_name("inputs.npz"))
    assert ran.verdicts() == {RIGHT: "PASS", WRONG: "FAIL"}, ran.told
    (cell,) = (cell["id"] for cell in ran.data["cells"] if cell["version"] == WRONG)
    archive = folder / "out" / "attention.tar.gz"
    archive.parent.mkdir()
    done = project.call_bare("bundle", "make", cell, *project.files, f"--to={archive}", "--yes", "--json")
    return Made(project=project, cell=cell, archive=archive, done=done)


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Fail where a container of an archive is left behind."""
    yield
    names = [container.name for container in docker.from_env().containers.list(all=True)]
    assert not [name for name in names if name.startswith("reproduce-")]


def run_script(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run an unpacked archive by hand, as its ISSUE.md says."""
    return subprocess.run(
        ["/bin/sh", "reproduce.sh", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
