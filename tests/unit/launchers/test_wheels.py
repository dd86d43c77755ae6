"""Who installs wheels: uv, which looks where pip was told to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = "from trtmatrix.launchers.wheels import index_options; print(*index_options())"


@pytest.mark.parametrize("name", ["PIP_CONFIG_FILE", "PIP_INDEX_URL"])
def test_an_index_of_pip_s_own_is_seen(name: str, tmp_path: Path) -> None:
    index, file = "https://mirror.example/simple", tmp_path / "pip.conf"
    file.write_text(f"[global]\nindex-url = {index}\n")
    value = str(file) if name == "PIP_CONFIG_FILE" else index
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path), name: value},
    )  # fmt: skip
    assert done.stdout.strip() == f"--default-index={index}"


def test_several_indexes_are_all_looked_at_as_pip_does() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": ":".join(sys.path), "HOME": "/", "PIP_EXTRA_INDEX_URL": "file:///a file:///b"},
    )  # fmt: skip
    assert done.stdout.split() == [
        "--index=file:///a",
        "--index=file:///b",
        "--index-strategy=unsafe-best-match",
    ]
