"""Code that must change decides the exit code of a whole report, by a stand-in for the comparison of APIs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trtmatrix.api import section
from trtmatrix.api.types import ApiChange, ApiSection, ApiUse, Certainty, ChangeKind
from trtmatrix.cli import entry as cli

ROOT = Path(__file__).parents[3]


def test_code_that_must_change_decides_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change = ApiChange(name="ICudaEngine.num_bindings", kind=ChangeKind.REMOVED, replacement="num_io_tensors")
    use = ApiUse(file="run.py", line=3, change=change, certainty=Certainty.SURE)

    def make_api_section(*_: Any) -> ApiSection:
        return ApiSection(changes=(change,), code=("src",), uses=(use,), files=1)

    monkeypatch.setattr(section, "make_api_section", make_api_section)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("TRTMATRIX_CACHE", str(tmp_path / "cache"))
    words = ["upgrade", "--full", "--from", "10.7.0", "--to", "10.8.0", "--gpu", "L4", "--code", "src"]
    assert cli.run(words) == 11, "go, don't or not enough: the code must change first"
    out = capsys.readouterr().out
    assert "change your code first (exit code 11), the first line in run.py:3" in " ".join(out.split())
    assert "REMOVED ICudaEngine.num_bindings" in out
