"""A project with two versions, and the stand-ins first in PATH. No engine of Docker's answers."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from projects import ROOT

from tests import calling
from tests.launchers.standins import make_standins
from tests.slurm.image import make_standin

HERE = Path(__file__).resolve().parent
REFERENCE = "registry.lab/tensorrt:10.7"
CHOSEN = ("--trt=10.7.0", "--case=looks", "--no-controls", "--no-confirm")
COLUMNS = (("10.7.0", REFERENCE, "10.7.0"), ("onnxruntime-9", "lab/ort:9", "9"))
FORGOTTEN = ("SLURM", "APPTAINER", "SINGULARITY", "ENROOT", "PYXIS", "TRTMATRIX")


class Project(calling.Project):
    """Two versions; the stand-ins are first in PATH."""

    def call_run(self, engine: str, *words: str, **more: str) -> calling.Done:
        return self.call("run", f"--engine={engine}", *CHOSEN, *words, **more)

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(file.read_text()) for file in sorted(self.folder.glob("results*/**/*.json"))]

    def told(self) -> list[str]:
        file = self.folder / "bin" / "told"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture(scope="session", autouse=True)
def _images() -> None:
    subprocess.run([str(ROOT / "docker" / "test" / "build")], check=True)
    make_standin()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    make_standins(tmp_path)
    project = Project(tmp_path, COLUMNS, HERE / "repros")
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(FORGOTTEN)}
    project.environment = {
        **inherited, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "FAKE_GPUS": "1",
        "LD_LIBRARY_PATH": str(tmp_path / "nvml"), "PYTHONPATH": f"{tmp_path / 'nvml'}:{ROOT / 'src'}",
        "DOCKER_HOST": "unix:///nowhere.sock",
    }  # fmt: skip
    return project
