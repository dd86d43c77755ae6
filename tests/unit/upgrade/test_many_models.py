"""Many models in one report: each answers for itself, the worst decides, a baseline or JUnit is a gate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring as read_xml

import pytest
from builders import make_version
from upgrade.test_upgrade_performance import NEW_CELL, OLD_CELL, timed
from upgrades import ask, entries_for, own

from trtmatrix.common.errors import ExitCode, UsageError
from trtmatrix.model.outcomes import CheckOutcome
from trtmatrix.suite.matrix import Compute
from trtmatrix.suite.model import Cause, Known
from trtmatrix.upgrade.decide import decide
from trtmatrix.upgrade.document import COLUMNS, model_table, words_of
from trtmatrix.upgrade.findings import Entries
from trtmatrix.upgrade.gate import compare_with, render_junit
from trtmatrix.upgrade.question import Own
from trtmatrix.upgrade.render import render_markdown, render_page, render_screen, render_text
from trtmatrix.upgrade.report import (
    Baseline,
    Decision,
    FactLine,
    Lacking,
    PerformanceLine,
    Spread,
    Upgrade,
    Weight,
    upgrade_json,
)

GO, DONT, ENOUGH = Decision.GO, Decision.DONT, Decision.NOT_ENOUGH
CRASHED = Cause.CRASHED.value


def with_parts(mine: Own, **parts: Any) -> Own:
    return replace(mine, section=replace(mine.section, **parts))


def model(name: str, before: str = "good3", after: str = "good3", mistake: str = "") -> Own:
    return with_parts(own(before, after), name=name, repro=name, mistake=mistake)


def answer(*models: Own, finding: str = "good3") -> Upgrade:
    """The report on a move with a list of models."""
    entries = entries_for({"sdpa": "good3"}, {"sdpa": finding})
    return decide(ask(entries, owns=models, models=(Path("models.yaml"),)))


@pytest.mark.parametrize(
    ("models", "decision", "code"),
    [
        ((model("a"), model("b")), GO, 0),
        ((model("a"), model("b", "good3", "bad3")), DONT, 11),
        ((model("a"), model("b", "good3", "unknown")), ENOUGH, 12),
        ((model("a"), model("b", "good3", "unknown"), model("c", "good3", CRASHED)), DONT, 11),
        ((model("a"), model("b", mistake="no such file")), GO, 2),
        ((model("b", mistake="no such file"),), ENOUGH, 2),
    ],
)
def test_the_worst_decides(models: tuple[Own, ...], decision: Decision, code: int) -> None:
    upgrade = answer(*models)
    assert (upgrade.decision, upgrade.exit_code) == (decision, code)


def test_each_answers_for_itself_and_the_findings_are_notes() -> None:
    upgrade = answer(model("good"), model("worse", "good3", "bad3"), model("gone", "good3", CRASHED),
                     model("silent", "good3", "void"), finding="bad3")  # fmt: skip
    assert [m.decision for m in upgrade.models] == [GO, DONT, DONT, ENOUGH]
    assert {r.topic for r in upgrade.reasons if r.weight is Weight.AGAINST} == {"worse", "gone"}
    assert {f.weight for f in upgrade.findings} == {Weight.NOTE}, "models are the better evidence"
    assert "sdpa-scale" in {r.topic for r in upgrade.reasons}, "one that gets worse is told all the same"
    assert answer(model("good"), finding="bad3").decision is GO
    told = "1 of 4 models can move to 10.8.0; don't move worse, gone; too little is known of silent."
    assert upgrade.summary == told
    unknown = answer(model("good"), model("silent", "good3", "unknown")).reasons
    known = {r.topic: r.known for r in unknown if r.weight is not Weight.NOTE}
    assert known == {"silent": "none", "your model": "measured"}


def test_a_row_a_model_with_the_worst_first_is_in_every_format() -> None:
    upgrade = answer(model("mine-0"), model("mine-1", "good3", "bad3"), model("odd", mistake="no such file"))
    rows = [[words_of(value) for value in row] for row in model_table(upgrade).rows]
    assert [row[:2] for row in rows] == [["odd", "mistake"], ["mine-1", "don't"], ["mine-0", "go"]]
    texts = [render(upgrade) for render in (render_text, render_markdown, render_page)]
    for text in (*texts, render_screen(upgrade, 80)):
        assert "no such file" in text
        assert text.index("mine-1") < text.index("mine-0")
        assert "! beyond limit" in " ".join(text.split())
    odd = render_markdown(answer(model("<b>a"), model("b\ud800"))).encode()
    assert b"<b>" not in odd.replace(b"\\<b", b"")


@pytest.mark.parametrize("width", [80, 100, 130, 160])
@pytest.mark.parametrize(("number", "since"), [(60, False), (60, True), (11, True), (2, True)])
def test_models_fit_on_a_screen_with_their_reasons(width: int, number: int, since: bool) -> None:
    states = ["bad3", "good3", "unknown", Cause.UNSUPPORTED_BY_VERSION.value]
    names = [f"model-{n:02}-of-a-long-name-{n:02}" for n in range(number)]
    upgrade = answer(*(model(name, states[n % 4], states[n % 4]) for n, name in enumerate(names)))
    command = "nox -s upgrade -- " + " ".join(f"--models folder/of/models-{n:02}.yaml" for n in range(30))
    news = Baseline(file="accepted.json", new=tuple(f"model-{n}: it is worse now" for n in range(30)))
    lacking = (Lacking(what="a", command=command),) * 3
    upgrade = replace(upgrade, baseline=news if since else None, lacking=lacking)
    lines = render_screen(upgrade, width).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= width
    assert lines.index("Why") + 1 < len(lines)
    assert any("more: --full" in line for line in lines) is (number == 60)


@pytest.mark.parametrize("width", [80, 100, 130, 160])
def test_a_column_is_whole_or_said_to_be_left_out(width: int) -> None:
    upgrade = answer(model("of-a-very-long-name-indeed", "good3", CRASHED), model("m", "good3", "unknown"))
    was, will = (Spread(median=n, low=1, high=n, count=3) for n in (1, 3))
    lines = tuple(
        PerformanceLine(
            repro=mine.repro, case="c", measure=name, unit="", before=was, after=will, ratio=2.0,
            told_apart=True, beyond_limit=True,
        )
        for mine in upgrade.models for name in COLUMNS
    )  # fmt: skip
    text = " ".join(render_screen(replace(upgrade, performance=lines), width).split())
    left = [name for name in COLUMNS if name in text.partition("not shown: ")[2].partition(" Why ")[0]]
    assert text.count("2.00×") == text.count(" ! ") - 1 == 2 * (4 - len(left))


SHAPE = "input x: the engine does not take the shape [3]; it was built for [2]"


@pytest.mark.parametrize(
    ("before", "after", "reference", "code"),
    [
        ("signal 11", "index 99 is out of bounds", "none: index 99 is out of bounds", 2),
        (SHAPE, SHAPE, "ONNX Runtime, float64", 2),
        ("signal 11", SHAPE, "ONNX Runtime, float64", 11),
        ("signal 11", "signal 11", "ONNX Runtime, float64", 11),
    ],
)
def test_inputs_that_nobody_takes_are_a_mistake(before: str, after: str, reference: str, code: int) -> None:
    mine = model("m", CRASHED, CRASHED)
    (line,) = mine.section.cases
    sides = (replace(line.before, reason=before), replace(line.after, reason=after))
    line = replace(line, before=sides[0], after=sides[1])
    upgrade = answer(with_parts(mine, cases=(line,), reference=reference))
    assert upgrade.exit_code == code
    assert ("its inputs are refused by both versions" in upgrade.models[0].mistake) is (code == 2)


def accepted(folder: Path, *models: Own) -> Path:
    file = folder / "accepted.json"
    file.write_text(upgrade_json(answer(*models)))
    return file


def test_what_was_accepted_is_no_reason_to_stop(tmp_path: Path) -> None:
    bad, worse = model("bad", "good3", "bad3"), model("worse", "good3", "bad3")
    file = accepted(tmp_path, bad, model("worse"), model("mended", "good3", "bad3"))
    now = answer(bad, worse, model("mended"))
    since = compare_with(now, file)
    assert [[text.partition(":")[0] for text in found] for found in (since.new, since.gone, since.same)] == [
        ["worse"], ["mended"], ["bad"],
    ]  # fmt: skip
    stopped = replace(now, baseline=since)
    assert stopped.exit_code is ExitCode.DONT
    assert "1 gone, 1 as before, new: worse" in " ".join(render_screen(stopped, 160).split())
    same = answer(bad, model("worse"))
    passed = replace(same, baseline=compare_with(same, file))
    assert (passed.exit_code, passed.decision) == (ExitCode.AS_EXPECTED, DONT)
    assert "DON'T  (exit code 0: no worse than accepted)" in render_text(passed)


SILENT = model("m", "good3", "void")
THRICE = replace(SILENT.section.cases[0], after=replace(SILENT.section.cases[0].after, builds=3))
NODE = FactLine(topic="Resize ×1 (up)", text="ignored; new at 10.8.0", weight=Weight.AGAINST)


@pytest.mark.parametrize(
    ("was", "now", "new"),
    [
        (model("m"), model("m", "bad3", "bad3"), ("m: not enough evidence",)),
        (
            model("m", "good3", "unknown"), with_parts(model("m", "good3", "unknown"), nodes=(NODE,)),
            ("m: Resize ×1 (up): ignored; new at 10.8.0",),
        ),
        (model("m"), with_parts(SILENT, cases=(THRICE,), check=CheckOutcome(script="a.py", passed=True)), ()),
    ],
)  # fmt: skip
def test_what_an_answer_hangs_on_is_new(was: Own, now: Own, new: tuple[str, ...], tmp_path: Path) -> None:
    bad, upgrade = model("bad", "good3", "bad3"), answer(model("bad", "good3", "bad3"), now)
    since = compare_with(upgrade, accepted(tmp_path, bad, was))
    assert since.new == new
    assert (replace(upgrade, baseline=since).exit_code is ExitCode.DONT) is bool(new)


def test_code_that_cannot_be_checked_is_new(tmp_path: Path) -> None:
    upgrade = decide(ask([], owns=(model("m"),), models=(Path("m"),), code=(Path("src"),)))
    assert compare_with(upgrade, accepted(tmp_path, model("m"))).new == (
        "your code: not checked: none is Python, a notebook, shell or a Dockerfile",
    )


def test_a_slowdown_and_a_mistake_are_new_too(tmp_path: Path) -> None:
    fast, slow = (Entries([timed(OLD_CELL, (1.0,) * 3), timed(NEW_CELL, (t,) * 3)]) for t in (1.0, 2.0))
    quick = replace(with_parts(model("m"), repro=OLD_CELL.repro.id), entries=fast, limit=1.1)
    now = answer(replace(quick, entries=slow), model("odd", mistake="gone"))
    assert now.models[0].decision is DONT
    since = compare_with(now, accepted(tmp_path, quick))
    assert since.new == (
        "m: latency, measured in different runs: 2.00× as much, significantly beyond 1.1×",
        "odd: mistake: gone",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "no report of upgrade"), ("no JSON", "no report of upgrade"),
        ('{"schema": 3, "product": "tensorrt", "gpu": "NVIDIA H200"}', "its schema is 3, here it is 4"),
        ('{"schema": 4, "product": "tensorrt", "gpu": "NVIDIA L4", "performance": [], "models": [], '
         '"findings": [], "gpu_and_driver": [], "reasons": [], "api": {"uses": []}}', "its gpu is NVIDIA L4"),
    ],
)  # fmt: skip
def test_another_file_is_no_baseline(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(UsageError, match=words):
        compare_with(answer(model("a")), tmp_path / "r.json")


def test_junit_has_a_case_a_model_or_a_finding() -> None:
    upgrade = answer(model("good"), model("worse", "good3", "bad3"), model("silent", "good3", "unknown"),
                     model("odd", mistake="no <file>"))  # fmt: skip
    (suite,) = read_xml(render_junit(upgrade))  # noqa: S314 - our own text
    ended = {case.get("name"): [child.tag for child in case if child.tag != "properties"] for case in suite}
    assert ended == {"good": [], "worse": ["failure"], "silent": ["skipped"], "odd": ["error"]}
    counts = {"tests": "4", "failures": "1", "errors": "1", "skipped": "1"}
    assert suite.attrib | {"name": ""} == {"name": "", **counts}
    entries = entries_for({"sdpa": "good3"}, {"sdpa": "bad3"})
    (suite,) = read_xml(render_junit(decide(ask(entries))))  # noqa: S314 - our own text
    assert [(case.get("classname"), case.get("name"), case[-1].tag) for case in suite] == [
        ("finding", "sdpa-scale", "failure")
    ]
    assert json.loads(upgrade_json(upgrade))["models"][1]["decision"] == "don't"


def test_junit_has_every_reason_against_the_move() -> None:
    """Beside a model findings decide, too; a GPU that is not supported and unread code stop a move of any."""
    span = Compute(min="7.5", max="8.9", known=Known.READ, source="notes")
    after = replace(make_version("10.8.0"), compute=span)
    entries = entries_for({"sdpa": "good3"}, {"sdpa": "bad3"})
    upgrade = decide(ask(entries, after=after, owns=(model("m"),), code=(Path("src"),)))
    upgrade = replace(upgrade, api=replace(upgrade.api, code=("src",)))
    (suite,) = read_xml(render_junit(upgrade))  # noqa: S314 - our own text
    assert {case.get("name"): case[-1].tag for case in suite} == {
        "m": "properties", "sdpa-scale": "failure", "GPU": "failure", "code": "skipped",
    }  # fmt: skip
