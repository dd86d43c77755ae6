"""The command that writes the whole matrix: its files, its exit codes, and what it says of bad ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import make_entry
from cli.test_light import project, store_all
from commandline import options_of
from pagereading import Page

from trtmatrix.cli import entry as cli
from trtmatrix.cli.commands import RunOptions, show
from trtmatrix.plan.context import open_context
from trtmatrix.plan.survey import take_survey
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.suite.plan import Pull

__all__ = ["project"]


def test_it_writes_what_it_is_asked_for(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_all(project)
    assert cli.run(["report"]) == 0
    assert capsys.readouterr().out == "report.html\n"
    Page((project / "report.html").read_text(encoding="utf-8"))
    assert cli.run(["report", "-o", "a.md", "-o", "b.json", "-o", "c.html"]) == 0
    assert (project / "a.md").read_text(encoding="utf-8").startswith("## TensorRT version matrix")
    assert json.loads((project / "b.json").read_text(encoding="utf-8"))["schema"] == 1
    assert (project / "c.html").exists()


@pytest.mark.parametrize(
    ("words", "executed", "logged"),
    [([], True, True), ([], False, False), (["--json"], True, False), (["--full"], True, True)],
)
def test_a_run_that_executed_something_leaves_its_page_and_every_row_in_its_log(
    words: list[str], executed: bool, logged: bool, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = options_of(RunOptions, "run", *words)
    context = open_context(options.project)
    show(options, context, take_survey(context, Pull.NEVER), [make_entry(executed=executed)], 61.0)
    log = project / "results" / "local" / "last-run.txt"
    assert log.exists() is log.with_name("report.html").exists() is logged
    shown = capsys.readouterr().out
    if logged:
        assert "PASS¹ 175" in log.read_text(encoding="utf-8")
    if logged and not words:
        assert "results/local/report.html · results/local/last-run.txt" in shown
        assert "1 test run in 61 s, none unexpected" in shown
    assert ("PASS¹ 175" in shown) is (words == ["--full"])


def test_an_interrupted_run_shows_what_is_there_by_then(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store_all(project)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trtmatrix.cli.commands.perform", interrupted)
    assert cli.run(["run"]) == 130
    shown, told = capsys.readouterr()
    assert "stored result" in shown
    assert "\nNext: " in shown
    assert "interrupted; what had ended is kept, the next run goes on" in told
    assert cli.run(["run", "--json"]) == 130
    assert capsys.readouterr().out == ""


def test_without_any_evidence_it_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["report"]) == 4
    assert "nox -s matrix runs what can be run here" in capsys.readouterr().out
    Page((project / "report.html").read_text(encoding="utf-8"))


def test_a_surprise_is_told_and_is_the_exit_code(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_all(project, 1e9)
    assert cli.run(["report"]) == 1
    assert "cells are not as expected: see what needs attention" in capsys.readouterr().out


def test_the_command_that_prepare_prints_can_be_pasted(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(CaseCache, "prepare", lambda *_: project / "repros")
    assert cli.run(["prepare", "plain/plain", "--to", "a b"]) == 0
    assert capsys.readouterr().out.endswith(" --files 'a b'\n")
