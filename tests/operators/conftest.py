"""A project whose ONNX Runtime is an image in which some models crash, hang or come out wrong."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.containers.conftest import BUILD, IMAGE
from trtmatrix.launchers.docker_engine import open_client

ROOT = Path(__file__).resolve().parents[2]
SPOILT = "trtmatrix/test-operators:latest"
ORT, RTX, STAND_IN = "onnxruntime-1.31.1", "tensorrt-rtx-1.7", "onnxruntime-1.31.2"
"""The versions; the last has the image in which some models are spoilt."""
SITE = "/usr/local/lib/python3.11/dist-packages/onnxruntime"
MATRIX = """\
schema: 1
sources:
  here: {title: "This test"}
versions:
"""
VERSION = """\
  - version: "%s"
    product: %s
    origin: {image: "%s"}
    library: {value: "%s", known: measured, source: here}
"""


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended, and what it told."""

    code: int
    out: str
    told: str


class Project:
    """matrix.yaml, results and cache; the suite itself is made once."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.results, self.cache = folder, folder / "results", cache
        text = MATRIX + VERSION % (ORT, "onnxruntime", IMAGE, "1.31.1")
        text += VERSION % (RTX, "tensorrt-rtx", IMAGE, "1.7.1.116")
        text += VERSION % (STAND_IN, "onnxruntime", SPOILT, "1.31.1")
        (folder / "matrix.yaml").write_text(text)

    def operators(self, *words: str) -> Done:
        """Run ``trtmatrix operators``."""
        command = [
            sys.executable, "-m", "trtmatrix", "operators", f"--cache={self.cache}",
            f"--repros={ROOT}/repros", *words,
        ]  # fmt: skip
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        return Done(code=done.returncode, out=done.stdout, told=done.stderr)

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
    yield Project(folder, folder / "cache")
    open_client(120).images.remove(SPOILT, force=True)
