"""Who installs wheels: uv, which looks where pip was told to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = "from trtmatrix.launchers.wheels import index_options; print(*index_options())"


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"PIP_INDEX_URL": "https://a.example/simple"}, ["--default-index=https://a.example/simple"]),
        ({"PIP_CONFIG_FILE": "pip.conf"}, ["--default-index=https://b.example/simple"]),
        (
            {"PIP_EXTRA_INDEX_URL": "file:///a file:///b"},
            ["--index=file:///a", "--index=file:///b", "--index-strategy=unsafe-best-match"],
        ),
    ],
)
def test_the_indexes_of_pip_s_own_settings_are_used(
    settings: dict[str, str], options: list[str], tmp_path: Path
) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://b.example/simple\n")
    environment = {"PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path), **settings}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=tmp_path,
    )
    assert done.stdout.split() == options
