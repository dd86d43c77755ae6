"""What the README prints is what its command prints, over the shipped records."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from nowhere import ROOT, go_nowhere

from trtmatrix.cli import entry as cli


def test_the_first_table_is_what_its_command_prints(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    block = (ROOT / "README.md").read_text().split("```\n")[1]
    command, shown = block.split("\nTensorRT on ", maxsplit=1)
    words = shlex.split(command.removeprefix("$ python -m trtmatrix ").replace("\\\n", ""))
    go_nowhere(monkeypatch, tmp_path)
    assert cli.run(words) == 0
    assert capsys.readouterr().out == f"TensorRT on {shown}"
