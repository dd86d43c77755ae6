"""All that is mounted into images compiles and imports under each Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.probe.jobs import HERE, MAIN, PROBE

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
