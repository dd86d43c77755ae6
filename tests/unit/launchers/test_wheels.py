"""Who installs wheels: uv, unless pip was told where to look."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtmatrix.launchers.wheels import pip_settings


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
    (tmp_path / "pip.conf").write_text(text)
    for environment in ({"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}, {}):
        found = bool({"index-url", "no-index"} & set(pip_settings(environment)))
        assert found is (own and bool(environment))


@pytest.mark.parametrize("name", ["PIP_INDEX_URL", "PIP_NO_INDEX"])
def test_an_index_of_pip_s_own_is_seen_in_its_variables(name: str) -> None:
    assert pip_settings({name: "x"}) == {name.removeprefix("PIP_").lower().replace("_", "-"): "x"}
