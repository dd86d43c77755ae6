"""Repro files in a folder: one that does not load is told with its line; line ends do not matter."""

from __future__ import annotations

from pathlib import Path

import pytest
from reprosource import SOURCE, parse

from trtmatrix.common.errors import ConfigError
from trtmatrix.suite.repro_files import read_repros

LOADS_NOT = {
    "syntax": (SOURCE + "def\n", "not valid Python"),
    "import": ("import no_such_module_at_all\n" + SOURCE, ":1: does not load: ModuleNotFoundError"),
    "cases raise": (
        SOURCE.replace("    yield", "    1 / 0\n    yield"),
        ":15: cases() raised ZeroDivisionError",
    ),
    "cases of nothing": (SOURCE.replace("    yield {", "    {"), "cases() raised TypeError"),
    "no prepare": (SOURCE.replace("def prepare", "def prepared"), "no function prepare()"),
}


@pytest.mark.parametrize("name", LOADS_NOT)
def test_a_file_that_does_not_load_is_told_with_its_line(name: str, tmp_path: Path) -> None:
    source, words = LOADS_NOT[name]
    (tmp_path / "broken.py").write_text(source)
    (tmp_path / "fine.py").write_text(SOURCE)
    with pytest.raises(ConfigError) as caught:
        read_repros(tmp_path)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{tmp_path}/broken.py:")
    assert words in problem
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.parametrize("content", [b"# \xff\n", "FACTS = 1\n".encode("utf-16")])
def test_a_file_that_is_no_utf8_is_told(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read as UTF-8"):
        read_repros(tmp_path)


def test_a_folder_named_like_a_file_and_a_dead_link_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").mkdir()
    (tmp_path / "b.py").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError) as caught:
        read_repros(tmp_path)
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("prefix", ["", "\ufeff"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_byte_order_marks_and_line_ends_do_not_matter(prefix: str, ends: str, tmp_path: Path) -> None:
    (tmp_path / "a_b.py").write_bytes((prefix + SOURCE.replace("\n", ends)).encode())
    (loaded,) = read_repros(tmp_path)
    assert loaded.repro == parse()


def test_a_file_name_that_is_no_repros_is_told(tmp_path: Path) -> None:
    (tmp_path / "My Repro.py").write_text(SOURCE)
    with pytest.raises(ConfigError, match="use small letters"):
        read_repros(tmp_path)


def test_a_folder_without_repros_is_told_and_helpers_are_none(tmp_path: Path) -> None:
    (tmp_path / "_helper.py").write_text("1 / 0\n")
    (tmp_path / ".hidden.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError, match="no repro here: --repros names the folder"):
        read_repros(tmp_path)


def test_two_files_of_one_name_are_told(tmp_path: Path) -> None:
    for name in ("a_b.py", "a-b.py"):
        (tmp_path / name).write_text(SOURCE)
    with pytest.raises(ConfigError, match=r"a-b\.py is the repro a-b too: rename one"):
        read_repros(tmp_path)
