"""All that is mounted into images compiles and imports under each Python; a repro as a bug filer runs it."""

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

ROOT = HERE.parents[1]
FILES = sorted([*PROBE.rglob("*.py"), *(ROOT / "repros").glob("*.py"), *(HERE / "repros").glob("*.py")])

COMPILE = "import sys\nfor path in sys.argv[1:]: compile(open(path, 'rb').read(), path, 'exec')"

IMPORT = """
import importlib.util, pkgutil, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import trtprobe
for module in pkgutil.walk_packages(trtprobe.__path__, "trtprobe."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for path in sys.argv[2:]:
    spec = importlib.util.spec_from_file_location("repro", path)
    repro = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(repro)
    assert callable(repro.run), path
    if hasattr(repro, "cases"):
        assert list(repro.cases()), path
"""


def test_every_file_compiles(every: Path) -> None:
    assert {"sdpa_scale.py", "streams.py"} <= {path.name for path in FILES}
    done = subprocess.run([every, "-W", "error", "-c", COMPILE, *FILES], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_module_and_repro_imports_without_a_product(python: Path) -> None:
    repros = [str(path) for path in FILES if path.parent.name == "repros"]
    done = subprocess.run(
        [python, "-W", "error", "-c", IMPORT, str(PROBE.parent), *repros],
        capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [[], ["help"], ["supervise"]])
def test_a_wrong_call_says_how(words: list[str]) -> None:
    done = subprocess.run([MAIN, PROBE, *words], capture_output=True, text=True, check=False)
    assert done.returncode in {1, 2}
    assert "usage: " in done.stderr
    assert "Traceback" not in done.stderr


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
