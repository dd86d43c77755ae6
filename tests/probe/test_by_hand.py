"""A repro by hand: `python repros/<name>.py --files DIR`, as a bug filer runs it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from projects import strict_json

from tests.probe.jobs import HERE, MAIN, PROBE, stand_in, write_case
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.suite.repro_files import read_repros
from trtprobe.files import CaseFiles

REPRO = HERE.parents[1] / "repros" / "sdpa_scale.py"
SMALL = {"batch": 1, "length": 24, "heads": 2, "head_size": 8}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (loaded,) = [found for found in read_repros(REPRO.parent) if found.file.name == REPRO.name]
    first = next(case for case in loaded.repro.cases if case.id == "sdpa-fp32")
    small = replace(first, params={**first.params, **SMALL})
    return CaseCache(tmp_path_factory.mktemp("cache")).prepare(loaded, small)


def call(files: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MAIN, REPRO, f"--files={files}", *words], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(PROBE.parent), **environment}, cwd=files.parent,
    )  # fmt: skip


def printed(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    data: dict[str, Any] = strict_json(done.stdout[done.stdout.index("{") :])
    return data


def test_onnx_runtime_agrees_with_the_reference(case: Path) -> None:
    done = call(case, "--product=onnxruntime")
    assert done.returncode == 0, done.stderr
    result = printed(done)
    assert (result["ended"], result["detail"]) == ("ran", "")
    measured = result["measurements"]["outputs"]["y"]
    assert (measured["count"], measured["nan_unexpected"]) == (24 * 16, 0)
    assert 0 < measured["rel_l2"] < 1e-6


def test_tensorrt_is_the_default_product(case: Path, driver: Path, tmp_path: Path) -> None:
    case = write_case(tmp_path / "case", {**CaseFiles(case).params, "precision": "tf32", "level": 0})
    environment = stand_in(driver)
    environment["PYTHONPATH"] += os.pathsep + str(PROBE.parent)
    done = call(case, **environment)
    assert done.returncode == 0, done.stderr
    assert printed(done)["engine"]["layers"] == ["TF32 level=0"]
    rtx = call(case, "--product=tensorrt-rtx", "--builds=2", **environment)
    assert (rtx.returncode, printed(rtx)["ended"]) == (0, "built")
    assert printed(rtx)["detail"].startswith("parsed and built, ")


def test_a_folder_that_holds_no_case_is_told(tmp_path: Path) -> None:
    done = call(tmp_path)
    assert done.returncode == 2
    assert "holds no case" in done.stderr
    assert "python -m trtmatrix prepare" in done.stderr
