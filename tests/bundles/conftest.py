"""A project with a version that is right and one that loses attention's scale; an archive of that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.bundles.attention import write_attention
from tests.bundles.started import left_over
from tests.models import images
from tests.models.conftest import Done, Project

RIGHT, WRONG = "onnxruntime-1.31.1", "onnxruntime-1.31.2"
COLUMNS = (
    (RIGHT, images.CURRENT, images.CURRENT_VERSION),
    (WRONG, images.DEFECTIVE, images.CURRENT_VERSION),
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
        return self.call("make", name, *self.project.files, f"--to={target}", *words)

    def verify(self, archive: Path, *words: str) -> Done:
        """Call ``bundle verify`` as somebody who has nothing but the archive."""
        return self.call("verify", str(archive), "--json", *words)

    def call(self, *words: str, **variables: str) -> Done:
        """Call ``bundle``; what it unpacks lies in the project's folder."""
        given = {"TMPDIR": str(self.project.folder), **variables}
        return self.project.call_bare("bundle", *words, variables=given)

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


def refused(made: Made, archive: Path, *words: str) -> dict[str, Any]:
    """Verify an archive that must not be verified; returns the outcome."""
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
