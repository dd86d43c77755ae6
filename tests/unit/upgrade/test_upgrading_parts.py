"""How upgrade uses its parts: the API's section and the user's model, by stand-ins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from trtmatrix.api import section
from trtmatrix.api.types import ApiChange, ApiSection, ApiUse, Certainty, ChangeKind
from trtmatrix.cli import entry as cli

ROOT = Path(__file__).parents[3]
MOVE = ["upgrade", "--from", "10.7.0", "--to", "10.8.0", "--gpu", "L4"]
CHANGE = ApiChange(name="ICudaEngine.num_bindings", kind=ChangeKind.REMOVED, replacement="num_io_tensors")
Asked = list[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The project itself, without an engine, its cache elsewhere."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("TRTMATRIX_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """A stand-in for the comparison of APIs, which finds one removed call where code is named."""
    asked: Asked = []

    def make_api_section(results: Path, before: str, after: str, code: Sequence[Path]) -> ApiSection:
        asked.append((str(results), before, after, list(map(str, code))))
        use = ApiUse(file="run.py", line=3, change=CHANGE, certainty=Certainty.SURE)
        named = tuple(str(path) for path in code)
        return ApiSection(changes=(CHANGE,), code=named, uses=(use,) if code else (), files=len(code))

    monkeypatch.setattr(section, "make_api_section", make_api_section)
    return asked


def test_the_api_alone_needs_no_gpu_and_is_no_answer(api: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*MOVE[:5], "--api"]) == 0
    assert capsys.readouterr().out.startswith("API: 1 removed\n")
    assert cli.run([*MOVE[:5], "--api", "--json", "--code", "src"]) == 11
    printed = json.loads(capsys.readouterr().out)
    assert (printed["exit_code"], printed["changes"][0]["kind"]) == (11, "removed")
    assert [asked[1:] for asked in api] == [("10.7.0", "10.8.0", []), ("10.7.0", "10.8.0", ["src"])]


def test_code_that_must_change_decides_the_exit_code(api: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["upgrade", "--full", "--from", "10.7.0", "--to", "10.8.0", "--gpu", "L4", "--code", "src"]
    assert cli.run(words) == 11, "go, don't or not enough: the code must change first"
    assert len(api) == 1
    out = capsys.readouterr().out
    assert "change your code first (exit code 11), the first line in run.py:3" in " ".join(out.split())
    assert "REMOVED ICudaEngine.num_bindings" in out
