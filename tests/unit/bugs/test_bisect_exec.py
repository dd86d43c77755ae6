"""bisect --exec: what a command is told, how its exit codes are read, how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from bugs.test_bisecting import NOT_ODD, bisect

from trtmatrix.bugs.ask import Command, fill, read_exit_code, run_shell
from trtmatrix.bugs.bisect_report import Candidate
from trtmatrix.bugs.search import Answer
from trtmatrix.common.errors import MachineryError

GOOD, BAD, CANNOT_SAY = Answer.GOOD, Answer.BAD, Answer.CANNOT_SAY


@pytest.mark.parametrize(
    ("code", "answer"), [(0, GOOD), (1, BAD), (124, BAD), (125, CANNOT_SAY), (126, BAD), (127, BAD)]
)
def test_exit_codes_are_read_as_git_does(code: int, answer: Answer) -> None:
    assert read_exit_code(code, "10.7.0") is answer


@pytest.mark.parametrize("code", [128, 255, -9])
def test_codes_that_end_the_search(code: int) -> None:
    with pytest.raises(MachineryError, match=r"10\.7\.0: the command ended with .* ends the search"):
        read_exit_code(code, "10.7.0")


def test_a_command_knows_its_version_and_image(capfd: pytest.CaptureFixture[str]) -> None:
    odd = Candidate(name="a b'c", image="x:1; exit 9")
    command = fill('printf "%s|%s|%s" {version} {image} "$TRTMATRIX_VERSION|${HOME:+{}}"', odd)
    assert run_shell(command, odd) == 0
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "a b'c|x:1; exit 9|a b'c|{}")


def test_a_command_that_is_interrupted_starts_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")

    def stop(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("trtmatrix.bugs.ask.run_shell", stop)
    assert bisect(tmp_path, "--exec", NOT_ODD) == 130
    said = " ".join(capsys.readouterr().out.split())
    assert f"The search was cut short: {Command.interrupted}." in said
    assert "1 of 21 versions run, 0 known without a run." in said
    assert "stored" in Command.interrupted
