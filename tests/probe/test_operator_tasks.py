"""The tasks of the suite of operators, run over stand-ins of TensorRT and of the CUDA driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from tests.probe.jobs import GRAPH, stand_in

SCRIPT = """
import json, sys
from zipfile import ZipFile
from trtprobe.backends import open_backend
from trtprobe.operators import run_task

class Host:
    def hand(self, message, write):
        print("output %d" % message["output"])

backend = open_backend("tensorrt")
backend.warm_up()
with ZipFile("suite.zip") as members:
    for task in json.loads(sys.argv[1]):
        done = run_task(task, backend, members, Host())
        print(done["ended"], done["detail"], flush=True)
"""


def test_a_model_that_builds_is_run_and_its_outputs_are_handed_over(tmp_path: Path, driver: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    with ZipFile(tmp_path / "suite.zip", "w") as suite:
        suite.writestr("model", json.dumps(GRAPH))
        suite.write(tmp_path / "x.npy", "x.npy")
    task = {"model": "model", "inputs": {"x": "x.npy"}, "outputs": ["y"], "profile": None}
    other = {**task, "outputs": ["z"]}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([task, task, other])], cwd=tmp_path,
        env={**os.environ, **stand_in(driver), "STANDIN_TENSORRT": "8.6.1"}, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == ["output", "0", "ran", "output", "0", "ran", "ran"], (
        done.stdout + done.stderr
    )
