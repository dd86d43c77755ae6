"""The answer on one screen: golden screens, their bounds, and what must never look otherwise than it is."""

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import cycle

import pytest
from builders import (
    make_case,
    make_cell,
    make_control,
    make_entry,
    make_expectation,
    make_reported,
    make_repro,
    make_unknown,
    make_version,
)
from goldenfile import check_golden
from nowhere import go_nowhere

from trtmatrix.cli import entry as cli
from trtmatrix.judge.entry import Entry, Standing
from trtmatrix.suite.model import NO_GPU, Cause, Control, Evidence, Exclusion, Gpu, Verdict
from trtmatrix.tables.answer import MEANINGS, State, make_answer
from trtmatrix.tables.page import render_html
from trtmatrix.tables.render_list import list_text
from trtmatrix.tables.render_text import LINES, print_text, render_screen

ACCEPTANCE = ["--trt", "10.7.0,10.8.0", "--repro", "sdpa-scale"]


@pytest.mark.parametrize(
    ("name", "words", "code", "width"), [("published", [], 0, 80), ("acceptance", ACCEPTANCE, 4, 160)]
)
def test_screens_of_the_published_records(
    name: str, words: list[str], code: int, width: int, monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    go_nowhere(monkeypatch, tmp_path_factory.mktemp("nowhere"))
    monkeypatch.setattr("trtmatrix.tables.render_text.terminal_width", lambda: width)
    assert cli.run(["table", *words]) == code
    check_screen(f"screen-{name}-{width}.txt", capsys.readouterr().out, width)


def check_screen(name: str, text: str, width: int) -> None:
    check_bounds(text, width)
    check_golden(name, text)


def check_bounds(text: str, width: int) -> None:
    lines = text.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= width
    assert not any(line != line.rstrip() for line in lines)


TRANSPOSE = make_repro(*(make_case(f"case-{n}") for n in range(15)), make_control(), id="transpose-mul")
PARSER = make_repro(
    make_case("sorted"), id="parser-drops", upstream="NVIDIA/TensorRT#1234",
    expectations=(make_expectation(Verdict.FAIL, "==8.6.0"),),
)  # fmt: skip
FUSED = make_repro(make_case("plain-512", remarks=frozenset({"fused"})), id="flash-attention")
RACE = make_repro(make_case("race"), id="streams")
PLUGIN = make_repro(make_case("deep"), id="own-plugin")


def failing() -> Iterator[Entry]:
    """A run at two versions: new and expected failures, a slow case, a crash, a flaky build, no images."""
    for version in ("8.5.3.1", "8.6.0"):
        new = version == "8.6.0"
        for number, case in enumerate(TRANSPOSE.cases):
            wrong = case.control is Control.NEGATIVE or (new and number < 6)
            yield make_entry(make_cell(TRANSPOSE, case, version), 1373.4 if wrong else 175.0)
        yield make_entry(make_cell(PARSER, version=version), 1373.4 if new else 175.0)
        yield make_entry(make_cell(RACE, version=version), 175.0, others=() if new else (1373, 175, 175))
        yield make_entry(make_cell(PLUGIN, version=version), ended="crashed" if new else "ran")
    for version in ("10.7.0", "10.8.0"):
        yield make_unknown(make_cell(TRANSPOSE, version=version), Exclusion.IMAGE_NOT_PULLED)
    yield make_reported(make_cell(FUSED, version="8.6.0"))


def without_gpu() -> Iterator[Entry]:
    for case in TRANSPOSE.cases:
        yield make_entry(make_cell(TRANSPOSE, case, "onnxruntime-1.31.1"), 1373 if case.control else 175.0)
        yield make_entry(make_cell(TRANSPOSE, case, "tensorrt-rtx-1.4"), ended="built")
        yield make_unknown(make_cell(TRANSPOSE, case, "10.7.0", NO_GPU), Exclusion.NO_GPU)


def second() -> Iterator[Entry]:
    """The same host again: every result is served from its record."""
    yield from (replace(entry, executed=False) for entry in without_gpu())


def interrupted() -> Iterator[Entry]:
    """What is there after a run that was interrupted: some versions were never reached."""
    for entry in failing():
        late = entry.cell.version.name == "8.6.0" and entry.outcome is not None
        yield make_unknown(entry.cell, None) if late else replace(entry, executed=False)


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize(
    ("name", "made"),
    [("failing", failing), ("no-gpu", without_gpu), ("second", second), ("interrupted", interrupted)],
)
def test_screens_of_runs(name: str, made: Callable[[], Iterator[Entry]], width: int) -> None:
    answer = make_answer(list(made()), seconds=250.2, cost="2 images, 21 GB, 12 min")
    details = ["results/local/report.html", "results/local/last-run.txt", "--full"]
    check_screen(f"screen-{name}-{width}.txt", render_screen(answer, width=width, details=details), width)


def test_many_findings_and_gpus_are_counted_where_they_have_no_room() -> None:
    made: Iterator[Callable[..., Entry]] = cycle(
        (make_reported, make_unknown, make_entry, partial(make_entry, ended="crashed"))
    )
    entries = [
        next(made)(make_cell(repro, version=f"10.{minor}.0", gpu=Gpu(slug=f"g{n}", name=f"GPU {n}")))
        for repro in (make_repro(id=f"finding-{number}") for number in range(25))
        for minor in range(20) for n in range(3)
    ]  # fmt: skip
    text = render_screen(make_answer(entries), width=80)
    check_bounds(text, 80)
    assert "finding-9 " in text
    assert "findings not shown" in text
    assert "versions not shown" in text
    assert "more to know: --full" in text


def test_controls_alone_are_the_self_check_and_were_measured() -> None:
    repro = make_repro(make_case("right", control=Control.POSITIVE), make_control())
    values = zip(repro.cases, (175.0, 1373.4), strict=True)
    entries = [make_entry(make_cell(repro, case), value) for case, value in values]
    assert "Overview" not in render_html(entries, generated="now")
    answer = make_answer(entries)
    assert answer.sentence == "No finding was tested."
    text = render_screen(answer)
    assert text.splitlines()[:2] == [
        "TensorRT on NVIDIA H200 · compute capability 9.0 · driver 580.159",
        "0 tests run · self-check: 2 of 2 controls as expected",
    ]
    assert "not measured" not in text


def test_a_run_says_what_it_could_not_run_and_shows_earlier_results_of() -> None:
    cells = [make_cell(TRANSPOSE, case) for case in TRANSPOSE.cases]
    entries = [make_entry(c, evidence=Evidence.RECORDED, excluded=Exclusion.NO_GPU) for c in cells]
    line = "Not run: 16 earlier results shown instead: no NVIDIA GPU here"
    assert line in render_screen(make_answer(entries, seconds=1.0)).splitlines()
    unknown = [make_unknown(cell, why) for cell, why in zip(cells[:9], Exclusion, strict=False)]
    text = render_screen(make_answer([*unknown, *entries], seconds=1.0))
    assert re.sub(r"\s+", " ", text).partition(" Next: ")[0].endswith(line.removeprefix("Not run: ")), (
        "in full"
    )
    assert "Not run" not in render_screen(make_answer(entries)), "a mere look was to run nothing"
    companions = [replace(entry, cell=replace(entry.cell, companion=True)) for entry in entries]
    assert "Not run" not in render_screen(make_answer(companions, seconds=1.0))


def test_a_control_that_comes_out_wrong_comes_first() -> None:
    control = make_entry(make_cell(case=make_control()), 175.0)
    answer = make_answer([make_entry(), control])
    assert (answer.kind, answer.news[0].word) == ("bad", "CHECK")
    text = render_screen(answer)
    assert "is PASS, must be FAIL" in text
    assert "self-check: 0 of 1 controls as expected" in text


@pytest.mark.parametrize("state", [state for state in State if state is not State.OK])
def test_every_state_is_explained_where_it_occurs(state: State) -> None:
    cell = make_cell()
    entry = {
        State.BAD: make_entry(cell, 1373.4), State.FLAKY: make_entry(cell, 175, others=(1373,)),
        State.SLOW: make_reported(make_cell(FUSED)), State.ERROR: make_entry(cell, ended="crashed"),
        State.BUILT: make_entry(cell, ended="built"),
        State.UNCLEAR: make_entry(make_cell(case=make_case(limits={}))), State.UNKNOWN: make_unknown(cell),
    }[state]  # fmt: skip
    text = render_screen(make_answer([entry]))
    assert f"{state.value}: {MEANINGS[state]}" in text


@pytest.mark.parametrize(
    ("value", "rest", "mark"),
    [
        (175.0, None, "ok…"),
        (175.0, Exclusion.NO_GPU, "ok…"),
        (175.0, Exclusion.COMPONENT_MISSING, "ok"),
        (1373.4, Exclusion.NO_GPU, "BAD!"),
    ],
)
def test_a_finding_is_ok_only_if_all_of_its_cases_that_can_run_are(
    value: float, rest: Exclusion | None, mark: str
) -> None:
    first, *others = (make_cell(TRANSPOSE, case) for case in TRANSPOSE.cases)
    tried = [make_entry(first, value), *(make_unknown(cell, rest) for cell in others)]
    text = render_screen(make_answer(tried))
    assert any(line.split() == ["transpose-mul", mark] for line in text.splitlines())
    assert ("…: partly tested" in text) is mark.endswith("…")


@pytest.mark.parametrize("cause", Cause)
def test_what_ended_without_a_result_names_its_cause_unless_a_version_cannot_know(cause: Cause) -> None:
    text = render_screen(make_answer([make_entry(ended=cause.value)]))
    silent = cause in {Cause.UNSUPPORTED_BY_VERSION, Cause.UNSUPPORTED_GPU, Cause.COMPONENT_MISSING}
    assert (f"without a result: {cause.value}" in text) is not silent


@pytest.mark.parametrize(
    ("entries", "command"),
    [
        ([make_entry(value=1373.4)], "nox -s bundle -- make sdpa-scale/sdpa-tf32@10.7.0#h200"),
        ([make_unknown(excluded=Exclusion.IMAGE_NOT_PULLED)], "nox -s matrix -- --trt 10.7.0  (1 GB)"),
        ([make_unknown(excluded=Exclusion.NO_GPU)], "on a host with an NVIDIA GPU: AGAIN"),
        ([make_unknown(excluded=Exclusion.OTHER_GPU)], "on a host with that GPU: AGAIN"),
        ([make_unknown(excluded=Exclusion.NO_ENGINE)], "nox -s doctor"),
        ([make_entry()], "nox -s report"),
        ([make_entry(make_cell(case=make_control()), 175.0)], "nox -s doctor"),
    ],
)
def test_the_next_command(entries: list[Entry], command: str) -> None:
    assert make_answer(entries, again="AGAIN", cost="1 GB").next == command


def test_a_long_command_is_shown_whole() -> None:
    again = f"nox -s matrix -- --trt {'10.7.0,' * 60}10.8.0"
    text = render_screen(make_answer([make_unknown(excluded=Exclusion.IMAGE_NOT_PULLED)], again=again))
    assert "NOT RUN  1 TensorRT test: " in text
    assert again.replace(" ", "") in re.sub(r"\s", "", text)


def test_what_became_wrong_comes_before_what_was_wrong_all_along() -> None:
    old = replace(TRANSPOSE, id="all-along", expectations=(make_expectation(Verdict.FAIL, ">=8.5"),))
    new = replace(TRANSPOSE, expectations=(make_expectation(Verdict.FAIL, ">=8.6"),))
    entries = [
        make_entry(make_cell(repro, repro.cases[0], version), 1373.4 if bad else 175.0)
        for repro, bad, version in ((old, True, "8.5.3.1"), (old, True, "8.6.0"),
                                    (new, False, "8.5.3.1"), (new, True, "8.6.0"))
    ]  # fmt: skip
    first, second = make_answer(entries).news
    assert first.text.startswith("transpose-mul 8.6.0: 1 of 1 case wrong; was ok in 8.5.3.1")
    assert second.text.startswith("all-along 8.5.3.1, 8.6.0: 1 of 1 case wrong")


def test_a_finding_names_the_issue_that_tells_of_each_version() -> None:
    issue = "https://github.com/NVIDIA/TensorRT/issues/{}"
    repro = make_repro(
        make_case("plain"), id="clip",
        expectations=(
            make_expectation(Verdict.FAIL, "==8.5.1.7", source=issue.format(2521)),
            make_expectation(Verdict.FAIL, "==8.5.3.1", source="https://github.com/onnx/onnx-tensorrt"),
        ),
    )  # fmt: skip
    values = {"8.5.1.7": 1373.4, "8.5.2.2": 175.0, "8.5.3.1": 1373.4, "8.6.0": 1373.4}
    entries = [make_entry(make_cell(repro, version=name), value) for name, value in values.items()]
    told = {item.text for item in make_answer(entries).news if item.word.startswith("BAD")}
    assert "clip 8.5.1.7: 1 of 1 case wrong; ok in 8.5.2.2, BAD in 8.5.3.1 (NVIDIA/TensorRT#2521)" in told
    (other,) = (text for text in told if text.startswith("clip 8.5.3.1, 8.6.0: "))
    assert other.endswith("was ok in 8.5.2.2 (NVIDIA/TensorRT#4333)")


def test_colours_add_nothing_and_controls_stay_plain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "finding  ok  BAD r\ncontrol †  FAIL\nrow  PASS 1.2  FAIL 9\nDON'T  (exit code 11)\n"
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign] # a terminal that can be read
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_text(text)
    lines = stream.getvalue().splitlines()
    assert re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()) == text
    assert ["\x1b[" in line for line in lines] == [True, False, True, True]
    assert "\x1b[1;31mBAD" in lines[0]
    assert "\x1b[1;31mDON'T  (exit code 11)" in lines[3]
    monkeypatch.setenv("COLUMNS", "40")
    print_text(f"| case | why |\n| --- | --- |\n| {'long-' * 12} | {'name-' * 12} |\n", markdown=True)
    laid = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert laid.count("-") == 24, "broken, not cut"


def test_what_runs_on_any_cpu_is_not_planned() -> None:
    versions = [replace(make_version(name), addition=True) for name in ("11.0.0", "onnxruntime-1.31.1")]
    text = list_text(versions, (), dict.fromkeys((v.name for v in versions), Standing.PLANNED))
    rows = [line.split()[:3] for line in text.splitlines()]
    assert ["11.0.0", "planned", "11.0.0"] in rows
    assert ["onnxruntime-1.31.1", "run", "here"] in rows
