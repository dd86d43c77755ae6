"""The command line's last resort and its small parsers."""

from __future__ import annotations

import argparse

import pytest

from trtmatrix import cli
from trtmatrix.core.errors import ExitCode


def test_an_unexpected_error_is_trouble_with_the_machinery_and_no_surprise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(args: argparse.Namespace) -> ExitCode:
        raise ZeroDivisionError(args.command)

    monkeypatch.setattr(cli, "_command", lambda _: broken)
    assert cli.run(["schema"]) is ExitCode.MACHINERY
    assert "mistake in trtmatrix itself" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "size"), [("512", 512), ("4k", 4096), ("2m", 2 << 20), ("32G", 32 << 30)])
def test_sizes(text: str, size: int) -> None:
    args = cli.make_parser().parse_args(["run", "--memory", text])
    assert args.memory == size


@pytest.mark.parametrize("words", [[], ["nothing"], ["run", "--memory", "much"], ["prepare"]])
def test_what_cannot_be_parsed_is_usage(words: list[str]) -> None:
    assert cli.run(words) is ExitCode.USAGE


def test_help_is_no_error() -> None:
    assert cli.run(["--help"]) is ExitCode.AS_EXPECTED
