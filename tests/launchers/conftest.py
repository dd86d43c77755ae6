"""A project with two versions, and the stand-ins first in PATH. No engine of Docker's answers."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from projects import command, matrix_text

from tests.launchers.standins import make_standins
from tests.slurm.image import make_standin

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"
REFERENCE = "registry.lab/tensorrt:10.7"
CHOSEN = ("--trt=10.7.0", "--case=looks", "--no-controls", "--no-confirm")
MATRIX = matrix_text(("10.7.0", REFERENCE, "10.7.0"), ("onnxruntime-9", "lab/ort:9", "9"))
FORGOTTEN = ("SLURM", "APPTAINER", "SINGULARITY", "ENROOT", "PYXIS", "TRTMATRIX")


@dataclass
class Done:
    code: int
    out: str
    told: str


@dataclass
class Project:
    folder: Path
    environment: dict[str, str]

    def start(self, verb: str, *words: str, results: str = "results", **more: str) -> subprocess.Popen[str]:
        words = (f"--results={self.folder / results}", *words)
        return subprocess.Popen(
            command(verb, self.folder, HERE / "repros", *words), env={**self.environment, **more}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def call(self, verb: str, *words: str, **more: str) -> Done:
        process = self.start(verb, *words, **more)
        out, told = process.communicate(timeout=120)
        return Done(process.returncode, out, told)

    def run(self, engine: str, *words: str, **more: str) -> Done:
        return self.call("run", f"--engine={engine}", *CHOSEN, *words, **more)

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(file.read_text()) for file in sorted(self.folder.glob("results*/**/*.json"))]

    def told(self) -> list[str]:
        """What the stand-ins were asked."""
        file = self.folder / "bin" / "told"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture(scope="session", autouse=True)
def _images() -> None:
    subprocess.run([str(HERE.parents[1] / "docker" / "test" / "build")], check=True)
    make_standin()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    make_standins(tmp_path)
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(FORGOTTEN)}
    paths = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(tmp_path / "nvml")}
    return Project(
        tmp_path,
        {
            **inherited, **paths, "PYTHONPATH": f"{tmp_path / 'nvml'}:{SOURCE}", "FAKE_GPUS": "1",
            "DOCKER_HOST": "unix:///nowhere.sock",
        },
    )  # fmt: skip
