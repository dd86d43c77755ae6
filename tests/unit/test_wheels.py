"""Who installs wheels: uv, unless pip was told where to look."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtmatrix.launchers import wheels


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("", False),
        ("[global]\nindex-url = https://mirror.example/simple\n", True),
        ("[install]\nno-index = true\n", True),
        ("[global]\nextra-index-url = file:///srv/wheels\nfind-links = /srv\n", False),
    ],
)
def test_an_index_of_pip_s_own_is_seen_in_its_files(tmp_path: Path, text: str, own: bool) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(text)
    assert wheels.pip_has_own_index({}, [file, tmp_path / "absent"]) is own


@pytest.mark.parametrize("name", ["PIP_INDEX_URL", "PIP_NO_INDEX"])
def test_an_index_of_pip_s_own_is_seen_in_its_variables(name: str) -> None:
    assert wheels.pip_has_own_index({name: "x"}, [])


def test_pip_s_file_may_be_named_by_a_variable() -> None:
    assert Path("/srv/pip.conf") in wheels.pip_files({"PIP_CONFIG_FILE": "/srv/pip.conf"})
