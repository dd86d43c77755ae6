"""An archive's repro.py over the stand-ins of TensorRT and CUDA: each release's API, how a run can end."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.probe.jobs import HERE, MAIN
from trtmatrix.bugs.script import fill_template

X = np.array([[-1.0, 2.0, 3.0], [4.0, -5.0, 6.0]], np.float32)
GRAPH = {"inputs": {"x": ["float32", [2, 3]]}, "outputs": {"y": ["float32", [2, 3]]}}
RIGHT = np.maximum(X, 0).astype(np.float64)
DEFAULTS: dict[str, Any] = {
    "RECORDED": {}, "FLAGS": ["TF32"], "TYPED": False, "LEVEL": None, "PROFILE": {},
    "LIMITS": {"y": (1e-4, 1e-3)}, "TOLERANCE": None, "BUG_IS": [],
}  # fmt: skip
RELEASES = ("8.5.3", "8.6.1", "9.3.0", "10.0.1", "10.8.0", "11.1.0")


class Archive:
    """A script with its files in a folder, run where nothing of ours is but the stand-ins."""

    def __init__(self, folder: Path, python: Path, driver: Path) -> None:
        self.folder, self.python, self.driver = folder, python, driver

    def run(
        self, *, graph: Mapping[str, Any] = GRAPH, inputs: Mapping[str, Any] | None = None,
        reference: Mapping[str, Any] | None = None, words: tuple[str, ...] = (),
        variables: Mapping[str, str] | None = None, builds: tuple[int, float] = (1, 60.0), **constants: Any,
    ) -> tuple[int, str]:  # fmt: skip
        values = {**DEFAULTS, "BUILDS, SECONDS": builds, **constants}
        (self.folder / "model.onnx").write_text("\n" + json.dumps(graph))
        np.savez(self.folder / "inputs.npz", **(inputs or {"x": X}))
        np.savez(self.folder / "reference.npz", **(reference or {"y": RIGHT}))
        (self.folder / "repro.py").write_text(fill_template(values), encoding="utf-8")
        done = subprocess.run(
            [self.python, self.folder / "repro.py", *words], capture_output=True, text=True, check=False,
            timeout=60, cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(HERE / "standins"), "LD_LIBRARY_PATH": str(self.driver),
                 "STANDIN_DEFAULT_STREAM": "1", **(variables or {})},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def archive(python: Path, tmp_path: Path, driver: Path) -> Archive:
    return Archive(tmp_path, python, driver)


@pytest.mark.parametrize("release", RELEASES)
def test_it_says_right_and_wrong_on_every_release(archive: Archive, release: str) -> None:
    variables = {"STANDIN_TENSORRT": release}
    assert archive.run(variables=variables) == (
        0,
        "\ny: 0, right up to 0.0001, wrong from 0.001: right\nrecorded: {}\n",
    )
    code, said = archive.run(variables=variables, reference={"y": RIGHT + 1})
    assert (code, ": WRONG\n" in said) == (1, True)


@pytest.mark.parametrize(("release", "constants", "wanted"), [
    ("8.6.1", {"FLAGS": ["TF32"]}, "TF32 level=3"),
    ("8.6.1", {"FLAGS": []}, "level=3"),
    ("8.6.1", {"FLAGS": ["TF32", "FP16"], "LEVEL": 5}, "FP16 TF32 level=5"),
    ("8.5.3", {"FLAGS": ["TF32", "FP16"], "TYPED": True, "LEVEL": 0}, "FP16 TF32 level=None"),
    ("9.3.0", {"FLAGS": ["TF32", "FP16"], "TYPED": True}, "TF32 strong level=3"),
    ("11.1.0", {"FLAGS": ["TF32", "FP16"], "TYPED": True}, "TF32 strong level=3"),
    ("11.1.0", {"FLAGS": ["TF32"]}, "TF32 strong level=3"),
])  # fmt: skip
def test_it_asks_of_the_build_what_the_case_does(
    archive: Archive, release: str, constants: Mapping[str, Any], wanted: str
) -> None:
    """The stand-in's plan tells what it was built with, where a detailed verbosity is asked for."""
    spy = archive.folder / "sitecustomize.py"
    spy.write_text(
        "import sys, tensorrt\nbuild = tensorrt.Builder.build_serialized_network\n"
        "def told(self, network, config):\n"
        "    config.profiling_verbosity = tensorrt.ProfilingVerbosity.DETAILED\n"
        "    plan = build(self, network, config)\n"
        "    import json; print('built with', json.loads(plan)['layer'])\n    return plan\n"
        "tensorrt.Builder.build_serialized_network = told\n"
    )
    path = f"{archive.folder}{os.pathsep}{HERE / 'standins'}"
    code, said = archive.run(variables={"STANDIN_TENSORRT": release, "PYTHONPATH": path}, **constants)
    assert code == 0, said
    assert f"built with {wanted}\n" in said


ODD = {bad: np.where(X == 2, bad, X).astype(np.float32) for bad in (np.nan, np.inf)}
SHAPE = np.full_like(RIGHT, 1e-6)  # a known defect, far below the noise
BOTH = {"y": (1e-4, 1e-3), "lost in y": (0.02, 0.04)}
JUDGED: list[tuple[dict[str, Any], int]] = [
    # NaN where the reference is finite, whatever the limits
    *(({"inputs": {"x": x}}, 1) for x in ODD.values()),
    *(({"inputs": {"x": x}, "LIMITS": {"y": (-1.0, 1e300)}}, 1) for x in ODD.values()),
    *(({"inputs": {"x": x}, "reference": {"y": np.where(X == 2, bad, RIGHT)}}, 0) for bad, x in ODD.items()),
    *(({"reference": {"y": np.where(X == 2, bad, RIGHT)}}, code) for bad, code in ((np.nan, 0), (np.inf, 1))),
    *(({"reference": {"y": RIGHT * (1 + e * 1e-4)}}, code) for e, code in ((0.5, 0), (4.0, 125), (20.0, 1))),
    *(({"reference": {"y": RIGHT - c * SHAPE, "lost in y": SHAPE}, "LIMITS": BOTH}, code)
      for c, code in ((0.0, 0), (0.03, 125), (1.0, 1), (-1.0, 1))),
    # the user's own tolerance decides
    *(({"reference": {"y": RIGHT + off * (X == -1)}, "LIMITS": {"y": (1.0, 1.0)}, "TOLERANCE": (1e-3, 0.0)},
       code) for off, code in ((0.9e-3, 0), (1.1e-3, 1))),
    ({"reference": {"y": RIGHT[:1]}}, 1),
]  # fmt: skip


@pytest.mark.parametrize(("given", "code"), JUDGED)
def test_it_says_what_the_judge_says(archive: Archive, given: dict[str, Any], code: int) -> None:
    found, said = archive.run(**given)
    assert found == code
    assert given.get("reference", {"y": X})["y"].shape == X.shape or "(2, 3) instead of (1, 3): WRONG" in said


INT64 = {"inputs": {"x": ["int64", [2, 3]]}, "outputs": {"y": ["int64", [2, 3]]}}
DYNAMIC = {"inputs": {"x": ["float32", [-1, 3]]}, "outputs": {"y": ["float32", [-1, 3]]}}
REFUSED = {**GRAPH, "refuses": [["no formats", "INVALID_GRAPH", 1, "A"]]}
NO_KERNEL, NO_MEMORY = (
    {**GRAPH, "says": text} for text in ("no implementation", "Error Code 2: OutOfMemory")
)
CRASHES, HANGS = ({"STANDIN_BUILDER": how, "STANDIN_BUILDERS": "builders"} for how in ("crashes", "hangs"))
ENDS: list[tuple[dict[str, Any], int]] = [
    ({"graph": DYNAMIC, "PROFILE": {"x": [[1, 3], [2, 3], [4, 3]]}}, 0),
    ({"graph": DYNAMIC}, 125),
    ({"graph": {**GRAPH, "plugins": ["MultiscaleDeformableAttnPlugin_TRT"]}}, 0),
    *(({"graph": INT64, "inputs": {"x": X.astype(np.int64)}, "variables": {"STANDIN_TENSORRT": release}}, 0)
      for release in ("8.6.1", "10.8.0")),
    # a build failure, a crash or a hang is the failure only where it is the bug; no memory never is
    *(({"graph": graph, "BUG_IS": bug}, code) for graph in (NO_KERNEL, REFUSED)
      for bug, code in (([], 125), (["build failed"], 1))),
    ({"graph": NO_MEMORY, "BUG_IS": ["build failed"]}, 125),
    ({"variables": {"STANDIN_DEVICE_BYTES": "3"}}, 125),
    *(({"BUG_IS": bug, **how}, code) for bug, code in (([], 125), (["crashed"], 1))
      for how in ({"variables": CRASHES}, {"graph": {**GRAPH, "run_says": "Cuda failure"}})),
    *(({"variables": HANGS, "BUG_IS": bug, "builds": (1, 1.0)}, code)
      for bug, code in (([], 125), (["time-out"], 1))),
    # what is missing says nothing
    *(({"variables": {name: value}}, 125) for name, value in
      (("STANDIN_NO_DEVICE", "1"), ("LD_LIBRARY_PATH", ""), ("PYTHONPATH", ""))),
    ({"words": ("--onnxruntime",)}, 125),
]  # fmt: skip


@pytest.mark.parametrize(("given", "code"), ENDS)
def test_how_a_run_ends_is_the_failure_only_where_it_is_the_bug(
    driver: Path, tmp_path: Path, given: dict[str, Any], code: int
) -> None:
    found, said = Archive(tmp_path, MAIN, driver).run(**given)
    assert found == code, said
    assert (code == 125 and given == {"graph": DYNAMIC}) <= ("build failed" in said)


def test_a_missing_numpy_says_nothing(archive: Archive) -> None:
    (archive.folder / "numpy.py").write_text("raise ImportError('no NumPy here')\n")
    assert archive.run()[0] == 125


def test_each_engine_is_judged_and_one_that_is_wrong_decides(archive: Archive) -> None:
    """The stand-in's second engine is spoilt: a failure that only some engines have comes back."""
    (archive.folder / "sitecustomize.py").write_text(
        "import standin_context as s, numpy\nrun, runs = s.IExecutionContext.execute_async_v3, []\n"
        "def spoilt(self, stream):\n    done = run(self, stream); runs.append(1)\n"
        "    if len(runs) > 2: self._array('y')[...] = 7\n    return done\n"
        "s.IExecutionContext.execute_async_v3 = spoilt\n"
    )
    path = f"{archive.folder}{os.pathsep}{HERE / 'standins'}"
    assert archive.run(variables={"PYTHONPATH": path})[0] == 0
    code, said = archive.run(variables={"PYTHONPATH": path}, words=("--builds", "2"))
    assert (code, said.count(": right\n"), said.count(": WRONG\n")) == (1, 1, 1)
