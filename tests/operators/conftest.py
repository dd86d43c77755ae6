"""A project whose ONNX Runtime is an image in which some models crash, hang or come out wrong."""

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import calling
from tests.containers.conftest import BUILD, IMAGE
from tests.models.images import make_spoilt

SPOILT = "trtmatrix/test-operators:latest"
ORT, RTX, STAND_IN = "onnxruntime-1.31.1", "tensorrt-rtx-1.7", "onnxruntime-1.31.2"
"""The versions; the last has the image in which some models are spoilt."""
COLUMNS = ((ORT, IMAGE, "1.31.1"), (RTX, IMAGE, "1.7.1.116"), (STAND_IN, SPOILT, "1.31.1"))


class Project(calling.Project):
    """matrix.yaml, results and cache; the suite itself is made once."""

    def measured(self, *words: str) -> dict[str, Any]:
        file = self.folder / "out.json"
        done = self.call("operators", *words, f"--output={file}")
        assert file.is_file(), done.told
        (record,) = json.loads(file.read_text())["records"]
        return {**record, "counts": Counter(row["verdict"] for row in record["rows"].values())}


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Make the image of the container tests, and from it the one with the stand-in; return the project."""
    subprocess.run([BUILD], check=True, stdout=subprocess.DEVNULL)
    make_spoilt(SPOILT, Path(__file__).with_name("standin.py").read_text())
    return Project(tmp_path_factory.mktemp("operators"), columns=COLUMNS)
