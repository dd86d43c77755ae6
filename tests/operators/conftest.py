"""A project whose ONNX Runtime is an image in which some models crash, hang or come out wrong."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.containers.conftest import BUILD, IMAGE
from tests.models import conftest as models
from trtmatrix.launchers.docker_engine import open_client

SPOILT = "trtmatrix/test-operators:latest"
ORT, RTX, STAND_IN = "onnxruntime-1.31.1", "tensorrt-rtx-1.7", "onnxruntime-1.31.2"
"""The versions; the last has the image in which some models are spoilt."""
COLUMNS = ((ORT, IMAGE, "1.31.1"), (RTX, IMAGE, "1.7.1.116"), (STAND_IN, SPOILT, "1.31.1"))
SITE = "/usr/local/lib/python3.11/dist-packages/onnxruntime"


class Project(models.Project):
    """matrix.yaml, results and cache; the suite itself is made once."""

    def operators(self, *words: str) -> models.Done:
        """Run ``trtmatrix operators``."""
        return self.call("operators", *words)

    def measured(self, *words: str) -> dict[str, Any]:
        """Run it, and return the one record that it writes as JSON."""
        file = self.folder / "out.json"
        done = self.operators(*words, f"--output={file}")
        assert file.is_file(), done.told
        (record,) = json.loads(file.read_text())["records"]
        found: dict[str, Any] = record
        return found


def make_images() -> None:
    """Make the image of the container tests, and from it the one with the stand-in."""
    subprocess.run([BUILD], check=True, stdout=subprocess.DEVNULL)
    client = open_client(120)
    container = client.containers.create(IMAGE, "true")
    try:
        stream, _ = container.get_archive(f"{SITE}/__init__.py")
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
            member = archive.extractfile("__init__.py")
            assert member is not None
            own = member.read()
        changed = own + (Path(__file__).with_name("standin.py")).read_bytes()
        room = io.BytesIO()
        with tarfile.open(fileobj=room, mode="w") as archive:
            facts = tarfile.TarInfo("__init__.py")
            facts.size, facts.mode = len(changed), 0o644
            archive.addfile(facts, io.BytesIO(changed))
        container.put_archive(SITE, room.getvalue())
        container.commit(*SPOILT.split(":"))
    finally:
        container.remove()


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Return the project."""
    make_images()
    folder = tmp_path_factory.mktemp("operators")
    yield Project(folder, columns=COLUMNS)
    open_client(120).images.remove(SPOILT, force=True)
