"""The command that reads the surfaces again: what it keeps, what it refuses, what it says where it cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trtmatrix import cli
from trtmatrix.core.errors import ExitCode, UsageError
from trtmatrix.core.surfacefile import format_store
from trtmatrix.effects.surfaces import FOLDER, STORE
from trtmatrix.surfacing import _write, dated, read_known


def test_what_the_package_has_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    known = read_known(FOLDER / STORE)
    again = [
        dated(replace(s, origin=replace(s.origin, extracted="")), s, "2999-01-01") for s in known.values()
    ]
    text = format_store(again)
    assert text == (FOLDER / STORE).read_text(encoding="utf-8")
    file = tmp_path / STORE
    assert _write(file, text, len(again)).endswith("new")
    assert _write(file, text, len(again)).endswith("as it was")
    assert _write(file, text + "\n", len(again)).endswith("changed")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"schema": 1}', b"\xff\xfe", b"[1, 2"])
def test_a_file_that_is_no_store_is_begun_anew(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / STORE).write_bytes(content)
    assert read_known(tmp_path / STORE) == {}
    assert "written anew" in capsys.readouterr().err
    assert read_known(tmp_path / "absent.json") == {}


def test_a_folder_that_cannot_be_written_is_a_matter_of_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="--to"):
        _write(tmp_path / "file" / STORE, "text", 1)


def test_without_a_compiler_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "none")
    assert cli.run(["surfaces", "--to", str(tmp_path / "to")]) is ExitCode.MACHINERY
    assert "apt-get install gcc" in capsys.readouterr().err
    assert not (tmp_path / "to").exists()
