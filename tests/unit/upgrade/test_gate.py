"""What a baseline protects a team from: what it accepted may stay as it is, and may not get much worse."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring as read_xml

import pytest
from builders import make_case, make_cell, make_entry, make_record, make_repro
from upgrades import ask, entries_for, own

from trtmatrix.common.errors import ExitCode
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.record import record_from
from trtmatrix.model.outcomes import Integers
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.matrix import Compute
from trtmatrix.suite.model import Cause, Known, Verdict
from trtmatrix.upgrade.decide import decide
from trtmatrix.upgrade.findings import Entries
from trtmatrix.upgrade.gate import compare_with, render_junit
from trtmatrix.upgrade.question import Own
from trtmatrix.upgrade.report import (
    Baseline,
    Decision,
    FactLine,
    PerformanceLine,
    SampleFigure,
    Spread,
    Upgrade,
    Weight,
    upgrade_json,
)

GONE = "no such file"
ONE = Spread(median=1.0, low=1.0, high=1.0, count=7)


def model(name: str, before: str = "good3", after: str = "good3", **parts: Any) -> Own:
    mine = own(before, after)
    return replace(mine, section=replace(mine.section, name=name, repro=name, **parts))


def failing(floors: float | None, before: str = "good3", **after: Any) -> Own:
    """A model that is wrong after the move, by so many noise floors."""
    mine = model("m", before, "bad3")
    (line,) = mine.section.cases
    word = f"FAIL {floors:g}" if floors is not None else "FAIL"
    line = replace(line, after=replace(line.after, **{"floors": floors, "word": word, **after}))
    return replace(mine, section=replace(mine.section, cases=(line,)))


def answer(*models: Own, finding: str = "good3") -> Upgrade:
    entries = entries_for({"sdpa": "good3"}, {"sdpa": finding})
    return decide(ask(entries, owns=models, models=(Path("models.yaml"),)))


def slowed(ratio: float, measure: str = "latency", *, sure: bool = True) -> Upgrade:
    """The report on a model that got so much slower; unless ``sure``, perhaps."""
    line = PerformanceLine(
        repro="m", case="c", measure=measure, unit="ms", before=ONE, after=ONE, ratio=ratio, told_apart=sure,
        beyond_limit=sure, more_engines=not sure,
    )  # fmt: skip
    how = "significantly beyond 1.1×" if sure else "perhaps beyond 1.1×: too few engines to tell"
    weight = Weight.AGAINST if sure else Weight.LACKING
    reason = FactLine(topic="your model", text=f"{measure}: {ratio:.2f}× as much, {how}", weight=weight)
    upgrade = answer(model("m"))
    decision = Decision.DONT if sure else Decision.NOT_ENOUGH
    mine = replace(upgrade.models[0], reasons=(reason,), decision=decision)
    return replace(upgrade, models=(mine,), performance=(line,), decision=decision)


def since(accepted: Upgrade, now: Upgrade, folder: Path, owns: Sequence[Own] = ()) -> Baseline:
    file = folder / "accepted.json"
    file.write_text(upgrade_json(accepted))
    return compare_with(now, file, owns)


@pytest.mark.parametrize(
    ("accepted", "now", "new"),
    [(1.15, 1.15, False), (1.15, 1.26, False), (1.15, 1.27, True), (1.15, 8.0, True), (8.0, 1.15, False)],
)
@pytest.mark.parametrize("sure", [True, False])
def test_an_accepted_slowdown_may_not_grow_by_more_than_the_limit(
    accepted: float, now: float, new: bool, sure: bool, tmp_path: Path
) -> None:
    upgrade = slowed(now, sure=sure)
    found = since(slowed(accepted, sure=sure), upgrade, tmp_path)
    assert [text.partition(": ")[0] for text in found.new] == ["m"] * new
    assert len(found.same) == 1 - new
    stopped = ExitCode.DONT if sure else ExitCode.NOT_ENOUGH
    assert replace(upgrade, baseline=found).exit_code is (stopped if new else ExitCode.AS_EXPECTED)
    assert not new or found.new[0].endswith(f" (accepted: {accepted:.2f}×)")


@pytest.mark.parametrize(
    ("measure", "limit", "build", "now", "new"),
    [
        ("latency", 1.5, 0.0, 1.7, False), ("latency", 1.5, 0.0, 1.8, True),
        ("latency", 1.1, 3.0, 1.4, True), ("build time", 1.1, 3.0, 3.4, False),
        ("build time", 1.1, 3.0, 3.7, True), ("build time", 1.1, 0.0, 1.4, True),
        ("latency", 1.0, 0.0, 1.25, False),  # clocks within 5% count as the same
    ],
)  # fmt: skip
def test_the_limit_is_the_model_s_own(
    measure: str, limit: float, build: float, now: float, new: bool, tmp_path: Path
) -> None:
    mine = replace(model("m"), limit=limit, build=build)
    found = since(slowed(1.2, measure), slowed(now, measure), tmp_path, (model("other"), mine))
    assert bool(found.new) is new


def measured(cell: Cell, milliseconds: float) -> Entry:
    engine = {"run_ms": milliseconds, "clocks": {"sm_mhz": 1980}}
    made = make_record(cell, 1.0, others=(1.0,) * 2, gpu={"name": "NVIDIA H200", "driver": "580.1"})
    builds = [{**build, "engine": engine} for build in made.data["builds"]]
    record = record_from({**made.data, "builds": builds}, made.file)
    return replace(make_entry(cell, 1.0, others=(1.0,) * 2), record=record, records=(record,))


@pytest.mark.parametrize(("now", "new"), [(2.1, False), (2.3, True), (8.0, True)])
def test_a_measured_slowdown_is_found_again_in_a_report(now: float, new: bool, tmp_path: Path) -> None:
    """What a report says of it in words is what it is known by."""
    repro = make_repro(make_case())
    old, later = (make_cell(repro, version=version) for version in ("10.7.0", "10.8.0"))

    def moved(milliseconds: float) -> Upgrade:
        entries = Entries([measured(old, 1.0), measured(later, milliseconds)])
        mine = model("m")
        section = replace(mine.section, repro=repro.id)
        return answer(replace(mine, section=section, entries=entries, limit=1.1))

    assert bool(since(moved(2.0), moved(now), tmp_path).new) is new


def test_a_slowdown_that_was_open_and_is_sure_is_new(tmp_path: Path) -> None:
    assert since(slowed(1.2, sure=False), slowed(1.2), tmp_path).new
    assert not since(slowed(1.2), slowed(1.2, sure=False), tmp_path).new


@pytest.mark.parametrize("before", ["good3", "unknown", "bad3"])
@pytest.mark.parametrize(
    ("accepted", "now", "new"),
    [
        (9.0, 9.0, False), (9.0, 17.0, False), (9.0, 19.0, True), (9.0, 2.3e7, True), (2.3e7, 9.0, False),
        (9.0, math.nan, True), (9.0, math.inf, True), (math.nan, math.nan, False), (math.inf, 9.0, False),
        (math.inf, math.nan, False), (None, 9.0, False), (9.0, None, False), (None, math.nan, True),
    ],
)  # fmt: skip
def test_an_accepted_error_may_at_most_double(
    before: str, accepted: float | None, now: float | None, new: bool, tmp_path: Path
) -> None:
    """Also one that is there before the move as well, which is no reason by itself."""
    upgrade = answer(failing(now, before))
    found = since(answer(failing(accepted, before)), upgrade, tmp_path)
    assert (bool(found.new), bool(found.same)) == (new, not new)
    assert (replace(upgrade, baseline=found).exit_code is ExitCode.AS_EXPECTED) is not new
    assert not new or accepted is None or found.new[0].endswith(f"accepted: FAIL {accepted:g})")
    assert not new or f"FAIL {now:g}" in found.new[0]


def test_an_error_counts_beside_an_accepted_slowdown(tmp_path: Path) -> None:
    """A model that was and is wrong, and is slower."""

    def slow(floors: float) -> Upgrade:
        upgrade, wrong = slowed(1.2), answer(failing(floors, "bad3")).models[0]
        return replace(upgrade, models=(replace(upgrade.models[0], cases=wrong.cases),))

    assert not since(slow(9.0), slow(10.0), tmp_path).new
    (new,) = since(slow(9.0), slow(2.3e7), tmp_path).new
    assert new == "m: sdpa: unchanged, bad, FAIL! 1373 → FAIL 2.3e+07 (accepted: FAIL 9)"


@pytest.mark.parametrize(("now", "new"), [(2e-2, False), (2.1e-2, True), (math.inf, True)])
def test_an_error_without_a_noise_floor_is_compared_by_its_norm(
    now: float, new: bool, tmp_path: Path
) -> None:
    def wrong(worst: float) -> Upgrade:
        figure = SampleFigure(
            output="y", version="10.8.0", unit="relative L2 error", median=0, p90=0, worst=worst,
            worst_sample=0, samples=1,
        )  # fmt: skip
        mine = failing(None)
        return answer(replace(mine, section=replace(mine.section, samples=(figure,))))

    assert bool(since(wrong(1e-2), wrong(now), tmp_path).new) is new


@pytest.mark.parametrize(("now", "new"), [(3, False), (6, False), (7, True)])
def test_more_wrong_elements_of_integers_are_new(now: int, new: bool, tmp_path: Path) -> None:
    def wrong(beyond: int) -> Upgrade:
        found = Integers(output="y", version="10.8.0", count=100, differ=beyond, beyond=beyond)
        return answer(model("m", "good3", "void", integers=(found,)))

    upgrade = wrong(now)
    assert upgrade.decision is Decision.DONT
    assert bool(since(wrong(3), upgrade, tmp_path).new) is new


def test_mended_integers_are_not_new_though_the_rest_says_nothing(tmp_path: Path) -> None:
    wrong = Integers(output="y", version="10.8.0", count=100, differ=5, beyond=5)
    accepted, now = (model("m", "good3", "void", integers=found) for found in ((wrong,), ()))
    assert not since(answer(accepted), answer(now), tmp_path).new
    assert since(answer(now), answer(accepted), tmp_path).new


def test_a_second_problem_of_the_same_nodes_is_new(tmp_path: Path) -> None:
    def known(*rules: str) -> Upgrade:
        reasons = [
            FactLine(topic="your model", text=f"Resize ×1 (r): {rule}", weight=Weight.AGAINST)
            for rule in rules
        ]
        upgrade = answer(model("m"))
        return replace(upgrade, models=(replace(upgrade.models[0], reasons=tuple(reasons)),))

    assert since(known("antialiasing"), known("antialiasing", "axes"), tmp_path).new == (
        "m: Resize ×1 (r): axes",
    )


def test_another_verdict_is_new(tmp_path: Path) -> None:
    wrong, crashed = failing(9.0), model("m", "good3", Cause.CRASHED.value)
    flaky = failing(9.0, verdict=Verdict.FLAKY)
    (new,) = since(answer(wrong), answer(crashed), tmp_path).new
    assert new.endswith("(accepted: FAIL 9)")
    assert since(answer(crashed), answer(wrong), tmp_path).new
    for accepted, now in ((wrong, flaky), (flaky, wrong), (crashed, crashed)):
        assert not since(answer(accepted), answer(now), tmp_path).new


def worse_finding(floors: float, *cases: str, weight: Weight = Weight.AGAINST) -> Upgrade:
    """The report without a model, on a finding some of whose cases got worse."""
    upgrade = decide(ask(entries_for({"sdpa": "good3"}, {"sdpa": "bad3"})))
    (finding,) = upgrade.findings
    (line, *_) = (line for line in finding.cases if line.case == "sdpa")
    after = replace(line.after, floors=floors, word=f"FAIL {floors:g}")
    lines = tuple(replace(line, case=case, after=after, weight=weight) for case in cases)
    return replace(upgrade, findings=(replace(finding, cases=lines, weight=weight, why="worse"),))


def test_a_finding_that_gets_worse_still_is_new(tmp_path: Path) -> None:
    accepted = worse_finding(9.0, "a", "b")
    for now in (accepted, worse_finding(17.0, "a"), worse_finding(9.0, "b", weight=Weight.WORKAROUND)):
        assert not since(accepted, now, tmp_path).new
    assert since(accepted, worse_finding(2.3e7, "a"), tmp_path).new == (
        "sdpa-scale: worse (a FAIL 2.3e+07, accepted: FAIL 9)",
    )
    assert since(accepted, worse_finding(9.0, "a", "c"), tmp_path).new == ("sdpa-scale: worse (c FAIL 9)",)
    assert since(worse_finding(9.0, "a", weight=Weight.WORKAROUND), accepted, tmp_path).new


def test_a_known_mistake_does_not_hide_a_new_answer(tmp_path: Path) -> None:
    odd = model("odd", mistake=GONE)
    now = answer(odd, failing(9.0))
    assert now.exit_code is ExitCode.USAGE
    known = replace(now, baseline=since(answer(odd, model("m")), now, tmp_path))
    assert known.exit_code is ExitCode.DONT
    both = replace(now, baseline=since(answer(model("odd"), model("m")), now, tmp_path))
    assert both.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(("at", "value"), [("ratio", "much"), ("more_engines", None)])
def test_a_report_with_a_broken_figure_is_no_baseline(at: str, value: str | None, tmp_path: Path) -> None:
    data = json.loads(upgrade_json(slowed(1.2)))
    if value is None:
        del data["performance"][0][at]
        data["performance"][0]["beyond_limit"] = False
    else:
        data["performance"][0][at] = value
    (tmp_path / "r.json").write_text(json.dumps(data))
    with pytest.raises(Exception, match="no report of upgrade"):
        compare_with(slowed(1.2), tmp_path / "r.json")


# JUnit


def ended(upgrade: Upgrade) -> dict[str | None, tuple[str, str | None]]:
    (suite,) = read_xml(render_junit(upgrade))  # noqa: S314 - our own text
    return {
        case.get("name"): (case[-1].tag, case[-1].get("message")) for case in suite
        if case[-1].tag != "properties"
    }  # fmt: skip


def test_what_is_accepted_is_skipped_in_junit(tmp_path: Path) -> None:
    wrong, odd, silent = failing(9.0), model("odd", mistake=GONE), model("silent", "good3", "unknown")
    now = answer(wrong, odd, silent, model("fine"))
    plain = ended(now)
    assert {name: kind for name, (kind, _) in plain.items()} == {
        "m": "failure", "odd": "error", "silent": "skipped",
    }  # fmt: skip
    passed = replace(now, baseline=since(now, now, tmp_path))
    assert passed.exit_code is ExitCode.AS_EXPECTED
    assert {kind for kind, _ in ended(passed).values()} == {"skipped"}
    assert ended(passed)["odd"] == ("skipped", f"accepted: {GONE}")
    assert str(ended(passed)["m"][1]).startswith("accepted: sdpa: regressed")


def test_what_is_new_is_red_in_junit_and_says_what(tmp_path: Path) -> None:
    now = answer(failing(2.3e7), model("odd", mistake=GONE), model("worse", "good3", "bad3"))
    accepted = answer(failing(9.0), model("odd", mistake=GONE), model("worse"))
    found = ended(replace(now, baseline=since(accepted, now, tmp_path)))
    assert {name: kind for name, (kind, _) in found.items()} == {
        "m": "failure", "odd": "skipped", "worse": "failure",
    }  # fmt: skip
    assert str(found["m"][1]).endswith("(accepted: FAIL 9)")


def test_a_finding_with_a_work_around_is_red_once_it_is_worse(tmp_path: Path) -> None:
    accepted, now = (worse_finding(floors, "a", weight=Weight.WORKAROUND) for floors in (100.0, 1000.0))
    assert not ended(now)
    assert ended(replace(now, baseline=since(accepted, now, tmp_path))) == {
        "sdpa-scale": ("failure", "worse (a FAIL 1000, accepted: FAIL 100)")
    }


def test_an_accepted_gpu_and_finding_are_skipped_in_junit(tmp_path: Path) -> None:
    span = Compute(min="7.5", max="8.9", known=Known.READ, source="notes")
    question = ask(entries_for({"sdpa": "good3"}, {"sdpa": "bad3"}))
    now = decide(replace(question, after=replace(question.after, compute=span)))
    assert {name: kind for name, (kind, _) in ended(now).items()} == {
        "sdpa-scale": "failure", "GPU": "failure",
    }  # fmt: skip
    passed = replace(now, baseline=since(now, now, tmp_path))
    assert {kind for kind, _ in ended(passed).values()} == {"skipped"}
    half = replace(now, baseline=since(replace(now, gpu_and_driver=()), now, tmp_path))
    assert {name: kind for name, (kind, _) in ended(half).items()} == {
        "sdpa-scale": "skipped", "GPU": "failure",
    }  # fmt: skip
