"""Bad input ends with exit code 2, says what to do, shows no traceback and writes nothing."""

import shlex
import signal
from hashlib import sha256
from pathlib import Path

import pytest
from goldenfile import check_golden
from reprosource import SOURCE, write_project
from suite.test_facts import GOOD

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


@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_an_output_that_cannot_be_written_is_refused_before_anything_else(
    words: tuple[str, ...], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refused(capsys, project, *words, "--output", "/proc/a.md")
    assert "/proc: nothing can be written there: " in told


MEANINGLESS = [
    "run --trt 10.7", "run --trt 11.3", "run --trt tensort", "run --trt ''", "run --cache ''",
    "run --repro plian", "run --results matrix.yaml", "run --gpu 'NVIDIA L4x'", "run --case 'plain/x*'",
    "run --runtime docker", "run --output table.pdf", "run --output nowhere/table.md",
    "run --matrix nowhere.yaml", "run --repros nowhere", "run --rebuilds 0", "run --memory much",
    "run --memory 0", "run --nonsense", "run -- --trt 10.7.0", "tabel", "xyzzy", "prepare plain/nothing",
    "prepare plain/plain --to repros",
]  # fmt: skip


def test_a_word_that_matches_nothing_is_refused_with_what_to_write(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [f"{words}\n{refused(capsys, project, *shlex.split(words))}" for words in MEANINGLESS]
    check_golden("refused.txt", "\n".join(told).replace(str(project), "PROJECT"))


@pytest.mark.parametrize(("before", "kept"), [(signal.SIG_IGN, True), (signal.SIG_DFL, False)])
def test_a_hangup_that_is_ignored_stays_so(before: signal.Handlers, kept: bool) -> None:
    was = signal.signal(signal.SIGHUP, before)
    try:
        cli.run(["list", "--matrix", "nowhere.yaml"])
        assert (signal.getsignal(signal.SIGHUP) is signal.SIG_IGN) is kept
    finally:
        signal.signal(signal.SIGHUP, was)
