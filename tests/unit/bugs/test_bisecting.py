"""The command bisect: what it asks and when, how it ends, what it refuses, what it says, and --exec."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import H200, make_case, make_cell, make_entry, make_reported, make_unknown
from goldenfile import check_golden

from trtmatrix.bugs.bisect import BisectOptions, ShellCommand, run_search, stored_reply
from trtmatrix.bugs.search import (
    Answer,
    Reply,
    Search,
    bisect_json,
    render_bisect_markdown,
    render_bisect_text,
)
from trtmatrix.cli import entry as cli
from trtmatrix.common.errors import ExitCode, MachineryError
from trtmatrix.judge.entry import Entry
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.plan.context import ProjectOptions
from trtmatrix.suite.model import Cause, Evidence, Exclusion

GOOD, BAD, CANNOT_SAY = Answer.GOOD, Answer.BAD, Answer.CANNOT_SAY
REPLIES = {
    "G": Reply(answer=GOOD, words="PASS (3 builds)", figure="1.2", known="run now", tried=True),
    "B": Reply(answer=BAD, words="FAIL (3 builds)", figure="12", reason="12 noise floors | lost-scale",
               known="run now", tried=True, image="nvcr.io/x@sha256:" + "1" * 64, driver="580.159"),
    "F": Reply(answer=BAD, words="FLAKY (2 of 3 builds fail)", known="run now", tried=True),
    "?": Reply(answer=CANNOT_SAY, words="NO VERDICT (crashed)", reason="SIGSEGV", known="run now",
               tried=True),
}  # fmt: skip


class Made:
    """A row whose history is known."""

    interrupted = "it was interrupted"

    def __init__(self, letters: str, stored: Mapping[int, str], hints: dict[int, Answer]) -> None:
        self.letters, self.stored, self.hints = letters, stored, hints
        self.search = Search(
            candidates=tuple(f"10.{n}.0" for n in range(len(letters))),
            title="sdpa-scale/sdpa-tf32", rests_on="a good answer rests on 3 builds",
            about="lost √scale in fused attention, NVIDIA/TensorRT#4333, TensorRT on NVIDIA H200",
        )  # fmt: skip

    def known(self) -> tuple[dict[int, Reply], dict[int, Answer]]:
        known = "stored record of 2026-11-20, measured here"
        replies = {n: replace(REPLIES[one], tried=False, known=known) for n, one in self.stored.items()}
        return replies, self.hints

    def ask(self, number: int) -> Reply:
        return REPLIES[self.letters[number]]

    def commands(self) -> tuple[str, ...]:
        return ("nox -s bisect -- again",)


def search(
    letters: str, *, stored: Mapping[int, str] | None = None, hints: dict[int, Answer] | None = None,
    **ends: int,
) -> tuple[Search, ExitCode]:  # fmt: skip
    made: Any = Made(letters, stored or {}, hints or {})
    made.search.good, made.search.bad = ends.get("good"), ends.get("bad")
    return made.search, run_search(made, can_run=True)


ENDING: list[tuple[str, dict[str, Any]]] = [
    ("GGBBG", {}), ("GGBBG", {"bad": 3}), ("BGGG", {"good": 0, "bad": 3}), ("????", {}), ("GGFF", {}),
    ("GBGGB", {"good": 0, "bad": 4, "stored": {1: "B", 2: "G"}}),
]  # fmt: skip


def test_how_a_search_ends() -> None:
    found = [(letters, ends, *search(letters, **ends)) for letters, ends in ENDING]
    text = [f"{n} {ends}: {code.name}\n\n{render_bisect_text(report)}" for n, ends, report, code in found]
    check_golden("bisect-ends.txt", "\n".join(text))
    assert [json.loads(bisect_json(report))["monotone"] for *_, report, _ in found] == [True] * 5 + [False]


def test_the_report_as_text_markdown_and_json() -> None:
    report, _ = search("GGG?BBFGG", bad=5, stored={0: "G"}, hints={1: BAD})
    check_golden("bisect.txt", render_bisect_text(report))
    check_golden("bisect.md", render_bisect_markdown(report))
    check_golden("bisect.json", bisect_json(report))


def test_versions_that_were_not_run_are_one_line_and_reports_of_them_are_said() -> None:
    silent = Reply(answer=CANNOT_SAY, words="not run", reason="no record; no NVIDIA GPU here")
    report, _ = search("GB??????", hints={5: GOOD}, stored={0: "G", 1: "B"})
    report.replies.update(dict.fromkeys(range(2, 8), silent))
    text = render_bisect_text(report)
    reason = "cannot say  not run: no record; no NVIDIA GPU here"
    shown = [" ".join(line.split("  ")[0].split()) for line in text.splitlines() if reason in line]
    assert shown == ["10.2.0 to 10.4.0 (3)", "10.5.0", "10.6.0 to 10.7.0 (2)"]
    assert re.search(f"10.5.0 .* {reason} +reported or recorded as good", text)
    assert (
        "nothing newer is known to be good (not tested, but reported or recorded: 10.5.0 good).\n"
    ) in text
    assert "image nvcr.io/x@sha256:" + "1" * 64 in text
    assert "…" not in text
    assert "…" in render_bisect_text(report, 56)


def stored(entry: Entry, rebuilds: int = 1, *, can_run: bool = True) -> Reply | None:
    return stored_reply(entry, rebuilds, can_run=can_run, current={}, images={})


def three(value: float = 175.0) -> Entry:
    return make_entry(value=value, others=(value, value))


def only_built(*bug: Cause) -> Entry:
    cell = make_cell(case=make_case(bug_is=frozenset(bug)), version="tensorrt-rtx-1.7")
    return make_entry(cell, ended="built")


@pytest.mark.parametrize(
    ("entry", "can_run", "answer"),
    [
        (three, True, GOOD),
        (make_entry, True, None),  # one engine of three
        (make_entry, False, GOOD),
        (lambda: three(1400.0), True, BAD),
        (lambda: make_reported(make_cell()), True, None),
        (lambda: make_reported(make_cell()), False, CANNOT_SAY),
        (make_unknown, True, None),
        (lambda: make_unknown(excluded=Exclusion.NO_GPU), False, CANNOT_SAY),
        (lambda: make_entry(ended="crashed"), True, CANNOT_SAY),
        (lambda: make_entry(ended="image missing"), True, None),  # it may be there now
        (only_built, True, CANNOT_SAY),
        (lambda: only_built(Cause.BUILD_FAILED), True, GOOD),
    ],
)
def test_what_a_stored_record_answers(
    entry: Callable[[], Entry], can_run: bool, answer: Answer | None
) -> None:
    reply = stored(entry(), 3, can_run=can_run)
    assert (reply.answer if reply else None) is answer


def test_a_published_record_answers_and_one_before_a_change_does_not() -> None:
    gpu = {"name": H200.name, "driver": H200.driver, "variant": ""}
    entry = make_entry(value=1400.0, evidence=Evidence.RECORDED, gpu=gpu)
    changed = {"repro": "another"}
    assert stored_reply(entry, 3, can_run=True, current=changed, images={}) is None
    reply = stored(entry, 3)
    assert reply is not None
    assert (reply.answer, "recorded elsewhere" in reply.known) == (BAD, True)


NOT_ODD = "case {version} in 10.*|11.*) exit 1;; esac"


def bisect(tmp_path: Path, *words: str) -> int:
    return cli.run(["bisect", f"--cache={tmp_path / 'cache'}", *words])


def test_a_case_is_looked_up_in_stored_records_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bisect(tmp_path, "--case", "controls/matmul-softmax-fp32", "--gpu", "H200", "--no-run") == 1
    said = capsys.readouterr().out
    assert "…" not in said, "no terminal"
    assert "controls/matmul-softmax-fp32 (" in said
    rows = re.search(r"\n0 of \d+ versions run, (\d+) known without a run", said)
    assert rows
    assert int(rows[1]) == len(re.findall(r"^\S+ +(?:good|bad) ", said, re.MULTILINE))


def test_a_report_for_others_says_nothing_private(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/wilhelmina")
    command = f"test ! -e /home/wilhelmina/model || exit 9; {NOT_ODD}"
    file = tmp_path / "found.md"
    assert bisect(tmp_path, "--exec", command, "--output", str(file)) == 0
    assert "wilhelmina" not in file.read_text()
    assert "Last good `9.3.0`, first bad `10.0.0`" in file.read_text()
    shown = capsys.readouterr()
    assert "wilhelmina" in shown.out  # the terminal is the user's own
    assert "taken out as private: " in shown.err


MEANINGLESS = [
    "", "--case sdpa-tf32 --exec true", "--exec true --no-run", "--exec true --good 10.7", "--case sdpa-tf23",
    "--exec true --image a:1", "--case native-sdpa-tf32 --product onnxruntime",
]  # fmt: skip


def test_what_cannot_be_asked_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {bisect(tmp_path, *words.split()) for words in MEANINGLESS} == {2}
    check_golden("bisect-refused.txt", capsys.readouterr().err)


def test_versions_of_which_nothing_is_known_are_searched_only_where_they_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = []
    for ends in ((), ("--good", "11.2.1")):
        bisect(tmp_path, "--case", "sdpa-tf32", "--gpu", "L4", "--no-run", "--json", *ends)
        rows.append({line["name"] for line in json.loads(capsys.readouterr().out)["row"]})
    assert {"8.6.1", "10.7.0", "10.0.0"} < rows[0]
    assert rows[0].isdisjoint({"10.9.0", "11.2.1"})
    assert rows[1] - rows[0] == {"11.2.1"}


def run_shell(command: str, *images: str) -> Reply:
    options = BisectOptions(
        project=ProjectOptions(), model=ModelOptions(), shell_command=command, image=(*images, "y:2")
    )
    return ShellCommand(options).ask(0)


def test_exit_codes_are_read_as_git_does_and_some_end_the_search() -> None:
    answers = {0: GOOD, 1: BAD, 124: BAD, 125: CANNOT_SAY, 126: BAD, 127: BAD}
    assert {code: run_shell(f"exit {code}", "10.7.0").answer for code in answers} == answers
    for end in ("exit 128", "exit 255", "kill -9 $$"):
        with pytest.raises(MachineryError, match=r"10\.7\.0: the command ended with .* ends the search"):
            run_shell(end, "10.7.0")


def test_a_command_knows_its_version_and_image(capfd: pytest.CaptureFixture[str]) -> None:
    command = 'printf "%s|%s|%s" {version} {image} "$TRTMATRIX_VERSION|$TRTMATRIX_IMAGE|${HOME:+{}}"'
    name = "a b'c; exit 9"
    assert run_shell(command, name).answer is GOOD
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", f"{name}|{name}|{name}|{name}|{{}}")
