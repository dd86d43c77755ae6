"""What a move does to code: the section, its text, the gate by exit code, and SARIF."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench.code_corpus import CORPUS
from goldenfile import check_golden

from trtmatrix import __version__
from trtmatrix.api.report import count_uses, render_api_text, render_sarif
from trtmatrix.api.section import make_api_section
from trtmatrix.api.types import ApiChange, ApiSection, ApiUse, ChangeKind, Kept
from trtmatrix.cli import entry as cli

GONE = ApiChange(name="A.b", kind=ChangeKind.REMOVED, replacement="A.c", source="guide", url="https://x/y")
OLD = ApiChange(name="D", kind=ChangeKind.DEPRECATED, note="soon")
PLANS = Kept(name="Plans", note="build them again", since="10.0", names=("A.b",), source="guide")
CPP = ("3 C++ files", "searched by name only: a.cpp, b.cpp, c.cpp")


def use(change: ApiChange, line: int, file: str = "a.py", why: str = "", cell: int = 0) -> ApiUse:
    return ApiUse(file=file, line=line, change=change, text="x.b", why=why, cell=cell)


def section_of(*uses: ApiUse, unread: tuple[tuple[str, str], ...] = ()) -> ApiSection:
    return ApiSection(uses=uses, code=("src",), files=2, unread=unread, behaviours=(PLANS,))


def test_section_of_the_corpus_tells_what_is_broken() -> None:
    section = make_api_section("8.6.1", "10.8.0", [CORPUS / "broken", CORPUS / "build_classic.py"])
    unread = {Path(file).name for file, _ in section.unread}
    assert unread == {"python2.py", "syntax.py", "broken.ipynb", "no_notebook.ipynb"}
    assert len(section.must_change) == 7
    text = render_api_text(section)
    assert text.startswith("7 uses must change, ")
    assert "REMOVED Builder.build_engine" in text
    assert "(python2.py, line 2)" in " ".join(text.split())


def test_without_code_it_is_the_difference_by_kind() -> None:
    section = make_api_section("8.6.1", "10.8.0")
    text = render_api_text(section)
    assert text.startswith("API: ")
    assert text.index("\nREMOVED") < text.index("\nDEPRECATED") < text.index("\nADDED")
    assert "\n  ICudaEngine.num_bindings\n" in text
    assert all(behaviour.note.split()[-1] in text for behaviour in section.behaviours)


def test_uses_by_file_the_worst_first_a_name_once_a_file_and_explained_once() -> None:
    """Neither text has a control character; SARIF has no line of a cell, and no place of unread languages."""
    section = section_of(
        use(OLD, 1), use(GONE, 9), use(GONE, 5), use(GONE, 2, why="guarded by x"),
        replace(use(OLD, 1, "b\x1b.py"), text="print('\x1b[31m')"), use(GONE, 4, "c.ipynb", cell=3),
        use(PLANS, 5), unread=(("src/b/d.py", "it is binary"), CPP),
    )  # fmt: skip
    check_golden("api-uses.txt", render_api_text(section))
    sarif = render_sarif(section, "8.6.1", "10.8.0", "/here")
    check_golden("api-uses.sarif", sarif.replace(f'"{__version__}"', '"0.1.0"'))


@pytest.mark.parametrize("name", ["pin tensorrt==8.6.1", "image nvcr.io/nvidia/tensorrt:23.12-py3"])
def test_to_change_a_pin_is_the_move_itself(name: str) -> None:
    pin = use(replace(GONE, name=name, kind=ChangeKind.CHANGED), 1)
    assert not pin.must_change
    assert count_uses(section_of(pin)).startswith("0 uses must change, 1 should, 0 possible")


def test_nothing_found_is_said_and_behaviour_that_the_code_does_not_meet_is_not() -> None:
    text = render_api_text(section_of())
    assert text.startswith("0 uses must change, 0 should, 0 possible (2 files looked at)\nNo use of a name")
    assert "Plans" not in text
    everywhere = replace(section_of(), behaviours=(replace(PLANS, names=()),))
    assert "Plans (since 10.0): build them again [1]" in render_api_text(everywhere)


def test_it_is_never_zero_where_code_was_seen_and_not_read() -> None:
    text = render_api_text(section_of(use(GONE, 1, "a.cpp", why="searched by name only"), unread=(CPP,)))
    assert text.startswith("0 uses must change in what was read, 0 should, 1 possible")
    assert "3 C++ files searched by name only" in " ".join(text.split())
    old, cache = ("old.py", "it does not parse as Python 3"), (".git", "left out: a cache")
    assert count_uses(section_of(unread=(cache, old))).startswith(
        "0 uses must change in what was read, 0 should"
    )
    assert count_uses(section_of(unread=(cache,))).startswith("0 uses must change, ")


def test_a_version_without_a_surface_is_named(tmp_path: Path) -> None:
    for before, after in (("9.3.0", "10.0.0"), ("8.6.1", "99.1.0")):
        section = make_api_section(before, after, [tmp_path])
        missing = ",".join(name for name in (before, after) if name != "8.6.1")
        assert f"the API of TensorRT {' and '.join(missing.split(','))} is not known" in section.lacking
        assert missing.partition(",")[0] in render_api_text(section)


def test_names_that_had_gone_before_the_move_are_told(tmp_path: Path) -> None:
    code = tmp_path / "run.py"
    code.write_text(
        "import tensorrt as trt, os\n"
        "engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(b'')\n"
        "print(engine.num_bindings)\n"
        "trt.Builder(trt.Logger()).create_builder_config().set_flag(trt.BuilderFlag.FP16)\n"
        "trt.Builder(trt.Logger()).max_workspace_size = 1\n"
        "os.system('trtexec --explicitBatch')\n"
    )
    older = {"ICudaEngine.num_bindings", "Builder.max_workspace_size", "trtexec --explicitBatch"}
    section = make_api_section("10.0.1", "10.8.0", [code])
    assert {use.change.name for use in section.must_change} == older
    assert not {change.name for change in section.changes} & older, "it is no part of this move"
    section = make_api_section("11.0.0", "11.4.0", [code])
    assert {use.change.name for use in section.must_change} == {*older, "BuilderFlag.FP16"}


# The gate

PYTHON_2 = "import tensorrt as trt\nprint trt.BuilderFlag.FP16\n"
FINE = "import tensorrt as trt\nprint(trt.Logger())\n"
BROKEN = (
    f"{FINE}config = trt.Builder(trt.Logger()).create_builder_config()\n"
    "config.set_flag(trt.BuilderFlag.FP16)\n"
)
MOVE = ["upgrade", "--from", "10.8.0", "--to", "11.4.0"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user's own, without matrix.yaml, with code that goes on and code that does not."""
    monkeypatch.chdir(tmp_path)
    files = {"fine/a.py": FINE, "broken/a.py": BROKEN, "none/a.txt": "x", "old/a.py": PYTHON_2}
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir()
        file.write_text(text)
    return tmp_path


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("--api", 0, ""), ("--api --code fine", 0, ""), ("--api --code broken", 11, ""),
        ("--api --code fine --code broken", 11, ""), ("--api --code none", 12, ""),
        ("--api --code fine --code old", 12, ""), ("--api --code broken --json", 11, ""),
        ("--code broken", 2, ""), ("--api -o a.html", 2, ""), ("", 2, ""), ("--api -o a.sarif", 2, ""),
        ("--to 11.9.0 --api", 2, "the API of TensorRT 11.9.0 is not known here (known: 8.5.3.1,"),
        ("--to 10.8.0 --api", 2, "10.8.0 and 10.8.0: a difference takes two versions of one product"),
    ],
)  # fmt: skip
def test_the_exit_code_says_whether_code_must_change(
    words: str, code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*MOVE, *words.split()]) == code
    assert told in capsys.readouterr().err


def test_with_a_matrix_too_a_release_beyond_it_needs_no_entry(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    assert cli.run([*MOVE, "--api", "--code", "tests/unit/code/build_classic.py"]) == 11
    out = " ".join(capsys.readouterr().out.split())
    assert "REMOVED BuilderFlag.FP16" in out
    assert "python migrate.py DIR" in out, "NVIDIA's own script"
    assert "python -m modelopt.onnx.autocast" in out
    for words, told in (
        (MOVE, "--api, with --code DIR"),
        ([*MOVE, "--api", "--models", ".", "--baseline", "README.md"], "--api tells of the APIs"),
        (["upgrade", "--from", "tensorrt-rtx-1.4", "--to", "11.4.0", "--api"], "is not known here"),
    ):  # fmt: skip
        assert cli.run(words) == 2
        assert told in capsys.readouterr().err


def test_sarif_and_json_are_written_too(here: Path) -> None:
    words = ["--api", "--code", "broken", "--code", str(here / "fine"), "-o", "a.sarif", "-o", "a.json"]
    assert cli.run([*MOVE, *words]) == 11
    first = json.loads(Path("a.sarif").read_text())["runs"][0]["results"][0]
    assert (first["level"], first["ruleId"]) == ("error", "removed/BuilderFlag.FP16")
    place = first["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("broken/a.py", 4)
    assert json.loads(Path("a.json").read_text())["exit_code"] == 11


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("src/a b/x.py", "src/a%20b/x.py"), ("./x.py", "x.py"), ("/here/src/x.py", "src/x.py"),
        ("../src/a/x.py", "file:///src/a/x.py"), ("/else/src/x.py", "file:///else/src/x.py"),
    ],
)  # fmt: skip
def test_addresses_are_relative_to_where_the_command_ran(file: str, uri: str) -> None:
    log = json.loads(render_sarif(section_of(use(GONE, 1, file)), "8.6.1", "10.8.0", "/here"))
    found = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert found == {"uri": uri} | ({} if uri.startswith("file:") else {"uriBaseId": "%SRCROOT%"})
