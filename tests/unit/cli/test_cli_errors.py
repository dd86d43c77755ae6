"""Bad input ends with exit code 2, says what to do, shows no traceback and writes nothing."""

from __future__ import annotations

import signal
from hashlib import sha256
from pathlib import Path

import pytest
from reprosource import SOURCE, write_project
from suite.test_config import GOOD

from trtmatrix.cli import entry as cli


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_project(tmp_path, GOOD, monkeypatch)


def tree(root: Path) -> dict[str, str]:
    """What lies in a project."""
    return {
        str(path.relative_to(root)): sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in root.rglob("*")
    }


def refused(capsys: pytest.CaptureFixture[str], project: Path, *words: str) -> str:
    """Return what is printed by a command that must be refused and must write nothing."""
    before = tree(project)
    assert cli.run(words) == 2
    assert tree(project) == before
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    return printed.err


@pytest.mark.parametrize("command", ["run", "table", "list", "doctor", "publish"])
def test_every_command_refuses_and_tells_mistakes_of_all_files(
    command: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "matrix.yaml").write_text(GOOD.replace('"10.7.0"\n', "10.10\n"))
    (project / "repros" / "other.py").write_text("FACTS = {}\n1 / 0\n")
    (project / "repros" / "none.py").write_text(SOURCE.replace("def run", "def ran"))
    (project / "repros" / "no_literal.py").write_text(SOURCE.replace('"a title"', "str(1)"))
    text = refused(capsys, project, command)
    assert "matrix.yaml:5: versions[0].version: " in text
    assert "repros/other.py:2: does not load" in text
    assert "no function run()" in text
    assert "no_literal.py:1: FACTS must be a literal" in text


WRITING = (
    ("run",), ("table",), ("report",), ("operators", "--trt", "10.7.0"), ("bisect", "--case", "plain/plain"),
    ("upgrade", "--from", "10.7.0", "--to", "10.7.0"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--trt", "10.7"), "--trt 10.7: not listed; perhaps you meant 10.7.0"),
        (("--trt", "11.3"), "--trt 11.3: not listed; known are 10.7.0; to add it, copy an entry of "),
        (("--trt", "tensort"), "--trt tensort: not listed; known are 10.7.0"),
        (("--trt", ""), "argument --trt: '' names nothing; leave the option out for all"),
        (("--cache", ""), "argument --cache: '' names no file or folder; leave the option out"),
        (("--results", "matrix.yaml"), "--results matrix.yaml: this is a file; name a folder"),
        (("--repro", "plian"), "perhaps you meant plain"),
        (("--gpu", "NVIDIA L4x"), "perhaps you meant L4"),
        (("--case", "plain/x*"), "--case plain/x*: "),
        (("--runtime", "docker"), "argument --runtime: docker: known are container, wheels, host"),
        (("--output", "table.pdf"), "the suffix must be one of"),
        (("--output", "nowhere/table.md"), "there is no folder nowhere"),
        *(((*words, "--output", "/proc/a.md"), "/proc: nothing can be written there: ") for words in WRITING),
        (("--matrix", "nowhere.yaml"), "name the file by --matrix"),
        (("--repros", "nowhere"), "--repros names the folder"),
        (("--rebuilds", "0"), "'0' is no number from 1 to 100"),
        (("--memory", "much"), "no size such as 512m or 4GB"),
        (("--memory", "0"), "no size such as 512m or 4GB"),
        (("--nonsense",), "unrecognized arguments: --nonsense\n  all options: python -m trtmatrix"),
        (("--", "--trt", "10.7.0"), "-- --trt 10.7.0 (leave out the --, which nox alone wants)"),
        (("tabel",), "no command tabel; perhaps you meant table\n  all options: "),
        (("xyzzy",), "no command xyzzy\n"),
        (("prepare", "plain/nothing"), "no such case"),
        (("prepare", "plain/plain", "--to", "repros"), "by --to"),
    ],
    ids=" ".join,
)
def test_a_word_that_matches_nothing_is_refused(
    words: tuple[str, ...], told: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in refused(capsys, project, *(("run",) if words[0].startswith("-") else ()), *words)


@pytest.mark.parametrize(("before", "kept"), [(signal.SIG_IGN, True), (signal.SIG_DFL, False)])
def test_a_hangup_that_is_ignored_stays_so(before: signal.Handlers, kept: bool) -> None:
    was = signal.signal(signal.SIGHUP, before)
    try:
        cli.run(["list", "--matrix", "nowhere.yaml"])
        assert (signal.getsignal(signal.SIGHUP) is signal.SIG_IGN) is kept
    finally:
        signal.signal(signal.SIGHUP, was)
