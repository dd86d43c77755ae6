"""Reading folders of code, the API's part of the report, and its text."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from bench.code_corpus import CORPUS

from trtmatrix.api_section import make_api_section
from trtmatrix.core.api import ApiChange, ApiUse, Behaviour, Certainty, ChangeKind
from trtmatrix.core.render_api_text import WIDTH, count_uses, render_api_text
from trtmatrix.core.upgrade.report import ApiSection
from trtmatrix.effects.code_files import LARGEST, read_code

GONE = ApiChange(name="A.b", kind=ChangeKind.REMOVED, replacement="A.c", source="guide", url="https://x/y")
OLD = ApiChange(name="D", kind=ChangeKind.DEPRECATED, note="soon")


def use(change: ApiChange, line: int, file: str = "a.py", why: str = "") -> ApiUse:
    certainty = Certainty.POSSIBLE if why else Certainty.SURE
    return ApiUse(file=file, line=line, change=change, certainty=certainty, text="x.b", why=why)


def test_folder_is_read_without_what_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/a.py").write_text("x = 1\n")
    (tmp_path / "run").write_text("#!/bin/sh\ntrtexec\n")
    (tmp_path / "notes.md").write_text("trtexec")
    for folder in (".git", "node_modules", "lib/site-packages"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "b.py").write_text("")
    (tmp_path / "env").mkdir()
    (tmp_path / "env/mine.py").write_text("")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/pyvenv.cfg").write_text("")
    (tmp_path / "venv/theirs.py").write_text("")
    found = read_code([tmp_path])
    assert sorted(found.texts) == ["env/mine.py", "pkg/a.py", "run"]
    assert sorted(name for name, _ in found.unread) == [".git", "lib/site-packages", "node_modules", "venv"]


def test_links_large_and_unreadable_files_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing")
    (tmp_path / "latin.py").write_bytes(b"x = 1\n# caf\xe9\n")
    (tmp_path / "declared.py").write_bytes(b"# -*- coding: latin-1 -*-\nx = 1  # caf\xe9\n")
    (tmp_path / "binary.py").write_bytes(b"a\0b")
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbfx = 1\n")
    with (tmp_path / "large.py").open("wb") as file:
        file.truncate(LARGEST + 1)
    os.mkfifo(tmp_path / "pipe.py")
    found = read_code([tmp_path])
    declared = "# -*- coding: latin-1 -*-\nx = 1  # café\n"
    assert found.texts == {"a.py": "x = 1\n", "bom.py": "x = 1\n", "declared.py": declared}
    told = dict(found.unread)
    assert set(told) == {"circle", "gone.py", "latin.py", "binary.py", "large.py"}
    assert "line 2" in told["latin.py"]
    assert "read already" in told["circle"]


def test_single_files_and_what_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x")
    found = read_code([file, tmp_path / "missing"])
    assert not found.texts
    assert [why.partition(":")[0] for _, why in found.unread] == [
        "it is no Python, notebook, shell script, Makefile or Dockerfile", "there is no such file or folder",
    ]  # fmt: skip


def test_section_of_the_corpus_tells_what_is_broken(tmp_path: Path) -> None:
    section = make_api_section(tmp_path, "8.6.1", "10.8.0", [CORPUS / "broken", CORPUS / "build_classic.py"])
    assert {file.removeprefix("broken/") for file, _ in section.unread} == {
        "python2.py", "syntax.py", "broken.ipynb", "no_notebook.ipynb", "latin1.py", "binary.py",
    }  # fmt: skip
    assert count_uses(section.uses)[0] == 7
    assert all(use.change.source for use in section.uses)
    removed = next(use for use in section.uses if use.change.name == "Builder.build_engine")
    assert "build_serialized_network" in removed.change.replacement
    text = render_api_text(section)
    assert text.startswith("7 uses must change, ")
    assert "REMOVED Builder.build_engine" in text
    assert "python2.py: it does not parse as Python 3, line 2" in text


def test_section_without_code_is_the_difference(tmp_path: Path) -> None:
    section = make_api_section(tmp_path, "8.6.1", "10.8.0")
    assert section.changes
    assert not section.uses
    text = render_api_text(section)
    assert text.startswith("API: ")
    assert text.index("REMOVED") < text.index("DEPRECATED") < text.index("ADDED")
    assert "\n  ICudaEngine\n" in text
    assert "num_bindings\n" in text


def test_missing_surface_says_what_reads_it(tmp_path: Path) -> None:
    section = make_api_section(tmp_path, "8.6.1", "99.1.0", [tmp_path])
    assert "99.1.0" in section.lacking
    assert "nox -s matrix -- --trt 99.1.0" in section.lacking
    assert "99.1.0" in render_api_text(section)


@pytest.mark.parametrize("code", [(), (CORPUS,)])
def test_no_line_is_wider_than_it_must_be(tmp_path: Path, code: tuple[Path, ...]) -> None:
    text = render_api_text(make_api_section(tmp_path, "8.6.1", "10.8.0", code))
    wide = [line for line in text.splitlines() if len(line) > WIDTH and "https://" not in line]
    assert not wide


def test_uses_by_file_the_worst_first_each_with_replacement_and_source() -> None:
    uses = (use(OLD, 1), use(GONE, 9), use(GONE, 5), use(GONE, 2, why="guarded by x"), use(OLD, 1, "b.py"))
    section = ApiSection(uses=uses, code=("src",), files=2, unread=(("c.py", "it is binary"),))
    assert render_api_text(section) == (
        "2 uses must change, 2 should, 1 possible (2 files read)\n"
        "\n"
        "a.py\n"
        "  line 5: REMOVED A.b\n"
        "      | x.b\n"
        "      instead: A.c [1]\n"
        "  line 9: REMOVED A.b\n"
        "      | x.b\n"
        "  line 1: DEPRECATED D\n"
        "      | x.b\n"
        "      soon\n"
        "  line 2: possibly removed A.b\n"
        "      | x.b\n"
        "      possible: guarded by x\n"
        "\n"
        "b.py\n"
        "  line 1: DEPRECATED D\n"
        "      | x.b\n"
        "      soon\n"
        "\n"
        "Not read:\n"
        "  c.py: it is binary\n"
        "\n"
        "Sources\n"
        "  [1] guide https://x/y\n"
    )


def test_nothing_found_is_said() -> None:
    behaviour = Behaviour(topic="Plans", text="build them again", since="10.0", source="guide")
    text = render_api_text(ApiSection(code=("src",), files=1, behaviours=(behaviour,)))
    assert text.startswith("0 uses must change, 0 should, 0 possible (1 file read)\nNo use of a name")
    assert "Plans (since 10.0): build them again [1]" in text


def test_a_version_without_a_surface_is_bracketed_and_said_so(tmp_path: Path) -> None:
    code = tmp_path / "run.py"
    code.write_text(
        "import tensorrt as trt\n"
        "engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(b'')\n"
        "print(engine.num_bindings)\n"
    )
    gone = make_api_section(tmp_path, "9.3.0", "10.0.0", [code])
    assert "8.6.1 stands in" in gone.stands_in
    assert "10.0.1 stands in" in gone.stands_in
    assert "--trt 9.3.0,10.0.0" in gone.stands_in
    used = {use.change.name: (use.change.kind, use.certainty) for use in gone.uses}
    assert used["ICudaEngine.num_bindings"] == (ChangeKind.REMOVED, Certainty.SURE)
    still = make_api_section(tmp_path, "8.6.1", "9.3.0", [code])
    kinds = {use.change.kind for use in still.uses}
    assert ChangeKind.DEPRECATED in kinds, "it goes in 10.0"
    assert ChangeKind.REMOVED not in kinds
    assert still.stands_in in render_api_text(still).replace("\n  ", " ")
    after = make_api_section(tmp_path, "10.0.0", "10.0.1.6", [code])
    assert ChangeKind.REMOVED not in {use.change.kind for use in after.uses}


def test_what_may_have_changed_outside_of_the_move_is_only_possible(tmp_path: Path) -> None:
    from trtmatrix.api_section import doubt_use
    from trtmatrix.effects.surfaces import read_surfaces

    bracket = read_surfaces(tmp_path).between("8.6.1", "9.3.0")
    assert bracket is not None
    unknown = replace(GONE, note="by 10.0.1; 9.3.0 itself was not read")
    assert doubt_use(use(unknown, 1), bracket).certainty is Certainty.POSSIBLE
    assert doubt_use(use(GONE, 1), bracket).certainty is Certainty.SURE
    assert not make_api_section(tmp_path, "10.7.0", "10.8.0").stands_in
