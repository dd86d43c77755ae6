"""Many models in one report, the worst of which decides; baselines, JUnit, and figures of both versions."""

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree.ElementTree import fromstring as read_xml

import pytest
from bench import latency
from builders import make_case, make_cell, make_entry, make_record, make_repro, make_version
from nowhere import ROOT
from onnxmodels import mlp, saved
from projects import files_of
from upgrades import NEW, OLD, ask, entries_for, own

from trtmatrix.cli.entry import run
from trtmatrix.common.errors import ExitCode, UsageError
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.record import record_from
from trtmatrix.model.outcomes import CheckOutcome
from trtmatrix.plan.context import Context
from trtmatrix.plan.survey import Survey
from trtmatrix.run.perform import Options, Result
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.matrix import Compute
from trtmatrix.suite.model import Cause, Known
from trtmatrix.upgrade.decide import decide
from trtmatrix.upgrade.document import COLUMNS, model_table, render_markdown, render_page, words_of
from trtmatrix.upgrade.findings import Entries
from trtmatrix.upgrade.gate import compare_with, render_junit
from trtmatrix.upgrade.performance import make_performance, rank_p_value
from trtmatrix.upgrade.question import Own
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
from trtmatrix.upgrade.screen import render_screen

GPU = {"name": "NVIDIA H200", "driver": "580.1", "variant": "140 GiB", "clocks": {"power_limit_w": 700.0}}


def timed(cell: Cell, latencies: Sequence[float], gpu: dict[str, Any] | None = None, **engine: Any) -> Entry:
    """An entry of one record whose engines took so many milliseconds."""
    others = [1.0] * (len(latencies) - 1)
    made = make_record(cell, 1.0, others=others, gpu=gpu or GPU)
    engines = [{"run_ms": value, "clocks": {"sm_mhz": 1980}, **engine} for value in latencies]
    builds = [{**build, "engine": e} for build, e in zip(made.data.get("builds", ()), engines, strict=False)]
    more: dict[str, Any] = {"builds": builds} if builds else {"engine": engines[0]}
    record = record_from({**made.data, **more}, made.file)
    return replace(make_entry(cell, 1.0, others=others), record=record, records=(record,))


def shown(upgrade: Upgrade) -> str:
    return re.sub(r"[\\*]", "", " ".join(render_markdown(upgrade).split()))


def compare(old: Entry, new: Entry) -> list[PerformanceLine]:
    return list(make_performance(Entries([old, new]), OLD, NEW, 1.1))


CASE = make_repro(make_case())
OLD_CELL, NEW_CELL = make_cell(CASE, version=OLD), make_cell(CASE, version=NEW)

ONE, TWO, SLOW = (1.0,) * 3, (2.0,) * 3, (2.0, 2.2, 2.6)


@pytest.mark.parametrize(
    ("before", "after", "gpu", "clock", "told_apart", "why"),
    [
        ((1.0, 1.1, 1.2), SLOW, {}, 1980, True, ""), (ONE, TWO, {}, 1900, True, ""),
        ((1.0, 1.1, 2.1), SLOW, {}, 1980, False, ""),  # the spreads overlap
        ((1.0, 1.1), SLOW, {}, 1980, False, "2 and 3 engines, 3 a side are needed"),
        ((1.0,), (9.0,), {}, 1980, False, "1 and 1 engines, 3 a side are needed"),
        (ONE, TWO, {"driver": "535.1"}, 1980, False, "driver 580.1 against 535.1"),
        (ONE, TWO, {"clocks": {"power_limit_w": 350.0}}, 1980, False, "power limit 700 W against 350 W"),
        (ONE, TWO, {}, 1200, False, "SM clock 1980 MHz against 1200 MHz"),
    ],
)  # fmt: skip
def test_a_figure_and_when_it_is_told_apart(
    before: Any, after: Any, gpu: dict[str, Any], clock: int, told_apart: bool, why: str
) -> None:
    new = timed(NEW_CELL, after, {**GPU, **gpu}, clocks={"sm_mhz": clock})
    (line,) = compare(timed(OLD_CELL, before), new)
    middle = median(before)
    assert line.before == Spread(median=middle, low=min(before), high=max(before), count=len(before))
    assert (line.measure, line.unit, line.ratio) == ("latency", "ms", median(after) / middle)
    assert (line.told_apart, line.p_value is not None, line.why_not) == (told_apart, told_apart, why)


def test_every_measure_and_the_latency_over_many_runs_where_both_have_it() -> None:
    facts: dict[str, Any] = {"build_seconds": 3.0, "engine_bytes": 10, "device_memory_bytes": 20}
    many: dict[str, Any] = {"latency": {"median_ms": 5.0}, **facts}
    lines = compare(timed(OLD_CELL, (1.0,), latency={"median_ms": 2.0}), timed(NEW_CELL, (2.0,), **many))
    assert [(line.measure, line.ratio) for line in lines] == [("latency", 2.5)]
    lines = compare(timed(OLD_CELL, (1.0,), **facts), timed(NEW_CELL, (2.0,), **many))
    assert [line.measure for line in lines] == ["latency", "build time", "engine size", "device memory"]
    assert lines[0].ratio == 2.0, "a single run is compared with a single run"


def test_times_without_clocks_under_load_are_not_told_apart_but_sizes_are() -> None:
    facts: dict[str, Any] = {"clocks": None, "build_seconds": 1.0, "engine_bytes": 10}
    slow = timed(NEW_CELL, (9.0, 9.0, 9.0), build_seconds=9.0, engine_bytes=90)
    lines = {line.measure: line for line in compare(timed(OLD_CELL, ONE, **facts), slow)}
    unknown = "clocks under load not recorded"
    why_not = {"latency": unknown, "build time": unknown, "engine size": ""}
    assert {name: line.why_not for name, line in lines.items()} == why_not
    assert {name: line.told_apart for name, line in lines.items()} == {n: not w for n, w in why_not.items()}


@pytest.mark.parametrize("measured_again", [False, True])
def test_what_other_tests_disturbed_is_not_timed_but_its_sizes_count(measured_again: bool) -> None:
    facts: dict[str, Any] = {"build_seconds": 1.0, "engine_bytes": 10}
    old, new = timed(OLD_CELL, ONE, **facts), timed(NEW_CELL, TWO, build_seconds=9.0, engine_bytes=90)
    assert new.record is not None
    disturbed = record_from({**new.record.data, "workers": 3}, "")
    records = (new.record, disturbed) if measured_again else (disturbed,)
    lines = {line.measure: line for line in compare(old, replace(new, record=records[0], records=records))}
    assert [line.told_apart for line in lines.values()] == [measured_again, measured_again, True]
    assert list(lines) == ["latency", "build time", "engine size"]
    assert ("other tests ran beside it" in lines["latency"].why_not) is not measured_again
    assert lines["engine size"].why_not == ""


@pytest.mark.parametrize("overruled", ["", "alone it says PASS"])
def test_a_failure_that_was_confirmed_beside_others_has_the_times_of_its_turns(overruled: str) -> None:
    old, new = timed(OLD_CELL, ONE), timed(NEW_CELL, TWO)
    again = timed(NEW_CELL, (9.0, 9.0, 9.0))
    assert again.record is not None
    confirmed = record_from({**again.record.data, "workers": 2, "run": "later"}, "")
    entry = replace(again, record=confirmed, records=(confirmed,), set_aside=new.records, overruled=overruled)
    (line,) = compare(old, entry)
    assert (line.ratio, line.told_apart) == ((9.0, False) if overruled else (2.0, True))
    assert ("other tests ran beside it" in line.why_not) is bool(overruled)


@pytest.mark.parametrize(("megabytes", "seconds", "beyond"), [(0.01, 0.1, False), (10.0, 10.0, True)])
def test_a_size_and_a_build_time_must_cost_something(megabytes: float, seconds: float, beyond: bool) -> None:
    def engines(cell: Cell, times: float) -> Entry:
        size = int(times * megabytes * 2**20)
        more: dict[str, Any] = {"engine_bytes": size, "device_memory_bytes": size}
        return timed(cell, ONE, build_seconds=times * seconds, **more)

    _, *lines = compare(engines(OLD_CELL, 1), engines(NEW_CELL, 2))
    assert [line.measure for line in lines] == ["build time", "engine size", "device memory"]
    assert [(line.told_apart, line.beyond_limit) for line in lines] == [(True, beyond)] * 3


@pytest.mark.parametrize(("megabytes", "beyond"), [(45, False), (55, True)])
def test_more_memory_is_held_against_weights_and_memory_together(megabytes: int, beyond: bool) -> None:
    old, new = (
        timed(cell, ONE, engine_bytes=499 * 2**20, device_memory_bytes=memory * 2**20)
        for cell, memory in ((OLD_CELL, 1), (NEW_CELL, 1 + megabytes))
    )
    _, _, line = compare(old, new)
    assert (line.measure, line.told_apart, line.beyond_limit) == ("device memory", True, beyond)


def test_end_to_end_latency_and_throughput_are_compared_as_latency_is() -> None:
    def engines(cell: Cell, ms: float, batch: float = 8) -> Entry:
        quantiles = {"median_ms": ms, "low_ms": ms, "high_ms": ms}
        facts: dict[str, Any] = {"end_to_end": quantiles, "end_to_end_graph": quantiles}
        return timed(cell, ONE, throughput={**quantiles, "batch": batch}, **facts)

    _, *lines = compare(engines(OLD_CELL, 4.0), engines(NEW_CELL, 8.0))
    assert [(line.measure, line.ratio, line.beyond_limit) for line in lines] == [
        ("end-to-end latency", 2.0, True), ("end-to-end latency with a CUDA graph", 2.0, True),
        ("throughput", 2.0, True),
    ]  # fmt: skip
    throughput = lines[-1]
    medians = [spread.median for spread in (throughput.before, throughput.after) if spread is not None]
    assert (medians, throughput.unit) == ([2000, 1000], "items/s")
    mine = replace(
        own("good3", "good3"), entries=Entries([engines(OLD_CELL, 4.0), engines(NEW_CELL, 8.0)]), limit=1.1
    )
    upgrade = decide(ask(entries_for({"sdpa": "good3"}, {"sdpa": "good3"}), owns=(mine,)))
    assert upgrade.decision is Decision.DONT
    reasons = " ".join(reason.text for reason in upgrade.reasons)
    assert "throughput, measured in different runs: 2.00× the time an item, significantly" in reasons
    told = shown(upgrade)
    assert "2.00× the time an item, significantly beyond 1.1×" in told
    assert "Of throughput the ratio is that of the time an item takes" in told
    assert "end-to-end latency with a CUDA graph: 1 case, 1 worse, 0 better" in told
    assert [line.ratio for line in compare(engines(OLD_CELL, 4.0), engines(NEW_CELL, 8.0, 16))][-1] == 1.0


def test_what_the_probe_could_not_time_is_told_with_its_reason() -> None:
    why = {"end_to_end_graph": "no CUDA graph: a loop", "throughput": "no throughput: out of memory"}
    quantiles = {"median_ms": 2.0, "low_ms": 2.0, "high_ms": 2.0}
    before = timed(OLD_CELL, ONE, end_to_end_graph=quantiles)
    _, graph, throughput = compare(before, timed(NEW_CELL, ONE, not_timed=why))
    assert (graph.why_not, graph.ratio) == (f"{NEW}: no CUDA graph: a loop", None)
    assert graph.before is not None
    assert (graph.before.median, graph.after, throughput.before) == (2.0, None, None)
    assert throughput.why_not == f"{NEW}: no throughput: out of memory"
    upgrade = decide(ask([before, timed(NEW_CELL, ONE, not_timed=why)]))
    assert upgrade.decision is Decision.GO
    assert f"1 not comparable: {NEW}: no CUDA graph: a loop" in shown(upgrade)


@pytest.mark.parametrize("odd", [0.0, float("nan"), "fast"])
def test_what_is_no_figure_is_left_out(odd: object) -> None:
    assert compare(timed(OLD_CELL, (1.0,)), timed(NEW_CELL, (odd,))) == []  # type: ignore[arg-type] # as a record may


@pytest.mark.parametrize(("after", "told"), [(1.09, False), (1.11, True), (3.0, True), (0.5, False)])
def test_a_slower_case_is_a_note_and_a_slower_model_is_not_to_be_moved(after: float, told: bool) -> None:
    entries = [timed(OLD_CELL, ONE), timed(NEW_CELL, (after, after, after))]
    upgrade = decide(ask(entries))
    assert upgrade.decision is Decision.GO
    notes = [reason for reason in upgrade.reasons if reason.topic == "performance"]
    assert [note.weight for note in notes] == ([Weight.NOTE] if told else [])
    assert ("But latency" in upgrade.summary) is told
    mine = replace(own("good3", "good3"), entries=Entries(entries), limit=1.1)
    good = entries_for({"sdpa": "good3"}, {"sdpa": "good3"})
    assert decide(ask(good, owns=(mine,))).decision is (Decision.DONT if told else Decision.GO)
    assert decide(ask(good, owns=(replace(mine, limit=4.0),))).decision is Decision.GO
    left_out = decide(ask(good, owns=(replace(mine, limit=0.0),), no_performance=True))
    assert (left_out.decision, left_out.performance) == (Decision.GO, ())
    assert any("--no-performance" in spot for spot in left_out.not_looked_at)


@pytest.mark.parametrize(
    ("seconds", "ratio", "beyond"), [((22, 4, 5, 4), 2.0, True), ((22, 4, 5), 2.0, False)]
)
def test_the_first_build_of_a_process_counts_only_where_others_are_too_few(
    seconds: tuple[float, ...], ratio: float, beyond: bool
) -> None:
    """TensorRT loads what it needs with it: here 17 s on each side."""

    def side(cell: Cell, factor: float) -> Entry:
        records = []
        for position, taken in enumerate(seconds):
            made = timed(cell, (1.0,), build_seconds=taken if position == 0 else taken * factor).records[0]
            records.append(record_from({**made.data, "worker": {"position": position}}, f"{position}.json"))
        return replace(timed(cell, (1.0,)), record=records[0], records=tuple(records))

    (line,) = (x for x in compare(side(OLD_CELL, 1.0), side(NEW_CELL, 2.0)) if x.measure == "build time")
    assert (line.ratio, line.beyond_limit) == (ratio, beyond)


def test_build_times_may_have_a_limit_of_their_own() -> None:
    entries = [timed(OLD_CELL, ONE, build_seconds=4.0), timed(NEW_CELL, ONE, build_seconds=7.0)]
    mine = replace(own("good3", "good3"), entries=Entries(entries), limit=1.1)
    for build, limit, decision in (
        (0.0, "1.1", Decision.DONT),
        (1.5, "1.5", Decision.DONT),
        (2.0, "", Decision.GO),
    ):
        upgrade = decide(ask([], owns=(replace(mine, build=build),)))
        assert upgrade.decision is decision
        told = f"build time, measured in different runs: 1.75× as much, significantly beyond {limit}×"
        assert any(told in reason.text for reason in upgrade.reasons) is bool(limit)


def test_slow_cases_of_which_some_were_measured_by_turns_are_told_from_the_others() -> None:
    repro = make_repro(make_case("apart"), make_case("turns"))
    entries = []
    for case, version in itertools.product(repro.cases, (OLD, NEW)):
        made = timed(make_cell(repro, case, version), (1.0 if version == OLD else 2.0,) * 3)
        day = 1 if version == OLD and case.id == "apart" else 2
        data = {**made.records[0].data, "started": f"2025-01-0{day}T01", "finished": f"2025-01-0{day}T02"}
        record = record_from(data, "record.json")
        entries.append(replace(made, record=record, records=(record, record)))
    (reason,) = [reason.text for reason in decide(ask(entries)).reasons if "latency" in reason.text]
    assert "latency: 2 of 2 cases significantly beyond 1.1× (1 of them measured in different runs)" in reason


def test_a_slowdown_that_is_not_comparable_is_told_beside_go() -> None:
    upgrade = decide(ask([timed(OLD_CELL, ONE, clocks=None), timed(NEW_CELL, (3.0, 3.0, 3.0))]))
    assert upgrade.decision is Decision.GO
    assert "3.00× as much, beyond 1.1× not comparable: clocks under load not recorded" in upgrade.summary


def test_the_same_version_twice_is_neither_worse_nor_better() -> None:
    """Every other engine is compared with those between: few are told to be few, and a drift meets both."""
    for latencies, ratio, why in (
        ((1.0, 1.2, 1.5), 1.2 / 1.25, "2 and 1 engines, 3 a side are needed"),
        ((1.0, 1.1, 1.2, 1.3, 1.4, 1.5), 1.3 / 1.2, ""),
    ):
        (line,) = make_performance(Entries([timed(OLD_CELL, latencies)]), OLD, OLD, 1.1)
        assert line.ratio == pytest.approx(ratio)
        assert (line.told_apart, line.beyond_limit, line.why_not) == (False, False, why)


def test_the_rank_test_is_exact_and_counts_a_tie_against_a_difference() -> None:
    assert rank_p_value((1, 2, 3), (4, 5, 6)) == 1 / 20
    assert rank_p_value((1, 1, 1), (1, 1, 1)) == 1


def test_a_labelled_set_of_latencies_is_told_apart_as_its_labels_say() -> None:
    counts = latency.measure(300, seed=1)
    for slower in (False, True):
        mine = [counts[name] for name, kind in latency.KINDS.items() if kind.slower is slower]
        called = sum(number for _, number, _ in mine) / sum(pairs for pairs, _, _ in mine)
        assert called >= 0.99 if slower else called <= 0.01
    # Drawn from 35 real engines of each model; the rank test alone tells 4% of such pairs apart.
    for spread, _, apart, beyond, surely, _ in latency.draw_pairs(500).values():
        assert (spread > 1.1, apart <= 0.015, beyond <= 0.02, surely <= 0.004) == (True,) * 4


def test_a_model_that_seems_too_slow_is_timed_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only what three engines leave open is, and then all of its engines decide; there is no GPU here."""
    often: list[tuple[int, bool, list[str]]] = []
    wide = (1.0, 1.3, 0.9, 1.25, 1.4, 1.1, 1.2)
    times = {"chance": (1.6, 1.7, 1.9, *wide[3:]), "slow": (1.6, 1.9, 1.7, 1.8, 1.5, 2.0, 1.65), "same": wide}

    def name_of(repro: str) -> str:
        return repro.partition("-")[0]

    def engines_of(cell: Cell) -> Sequence[float]:  # of the old version there is one from before
        count = often[-1][0]
        return times[name_of(cell.repro.id)][:count] if cell.version.name == NEW else wide[: count + 1]

    def perform(context: Context, survey: Survey, how: Options) -> Result:
        models = context.selection.repros
        often.append((how.rebuilds, context.controls, sorted(map(name_of, models))))
        cells = (cell for cell in survey.cells if cell.repro.id in models)
        return Result(entries=tuple(timed(cell, engines_of(cell)) for cell in cells), served=frozenset())

    monkeypatch.setattr("trtmatrix.run.perform.perform", perform)
    models = [f"--models={saved(mlp(), tmp_path / f'{name}.onnx')}" for name in times]
    words = [f"--matrix={ROOT / 'matrix.yaml'}", *files_of(tmp_path, ROOT / "repros")[1:], *models]
    code = run(["upgrade", f"--from={OLD}", f"--to={NEW}", "--gpu=H200", "--json", *words])
    told = json.loads(capsys.readouterr().out)
    assert often == [(3, True, ["chance", "same", "slow"]), (8, False, ["chance", "slow"])], "controls once"
    beyond = {name_of(line["repro"]): line["beyond_limit"] for line in told["performance"]}
    assert (code, beyond) == (ExitCode.DONT, {"chance": False, "same": False, "slow": True})
    assert {model["name"] for model in told["models"] if model["decision"] == "don't"} == {"slow"}


# Many models in one report: each answers for itself, the worst decides, a baseline or JUnit is a gate.
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
    texts = [render(upgrade) for render in (render_markdown, render_page)]
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


MARKS: dict[str, Any] = {"": {}, "!": {"beyond_limit": True}, "?": {"more_engines": True}}


@pytest.mark.parametrize("mark", MARKS)
def test_the_speed_that_decides_stands_in_a_model_s_row(mark: str) -> None:
    upgrade, one = answer(model("m", "good3", "good3")), Spread(median=1.0, low=1.0, high=1.0, count=3)
    facts: dict[str, Any] = {
        "repro": "m",
        "case": "c",
        "unit": "ms",
        "before": one,
        "after": one,
        "told_apart": False,
    }
    plain = PerformanceLine(measure="latency", ratio=1.5, **facts)
    graph = PerformanceLine(measure="end-to-end latency with a CUDA graph", ratio=1.2, **facts, **MARKS[mark])
    (row,) = model_table(replace(upgrade, performance=(plain, graph)), spread=False).rows
    assert row[4] == (f"1.20× graph {mark}" if mark else "~1.50×")
    upgrade = replace(upgrade, performance=(replace(plain, told_apart=True),))
    assert model_table(upgrade, spread=False).rows[0][4] == "1.50×", "~ is what chance may do"


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
    assert "DON'T  (exit code 0: no worse than accepted)" in render_screen(passed, 80)


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
    perhaps = Entries([timed(OLD_CELL, (1.0, 1.3, 0.9)), timed(NEW_CELL, (1.6, 1.7, 2.1))])
    softer, base = answer(replace(quick, entries=perhaps)), accepted(tmp_path, replace(quick, entries=slow))
    assert (softer.decision, compare_with(softer, base).new) == (ENOUGH, ())
    assert [item.what for item in softer.lacking] == [
        "more engines of your model: it is perhaps slower or larger"
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "no report of upgrade"), ("no JSON", "no report of upgrade"),
        ('{"schema": 3, "product": "tensorrt", "gpu": "NVIDIA H200"}', "its schema is 3, here it is 5"),
        ('{"schema": 5, "product": "tensorrt", "gpu": "NVIDIA L4", "performance": [], "models": [], '
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
