"""Figures of the same case at both versions: spread, clocks, and when two may be told apart."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from bench import latency
from builders import make_case, make_cell, make_entry, make_record, make_repro
from upgrades import NEW, OLD, ask, entries_for, own

from trtmatrix.judge.entry import Entry
from trtmatrix.judge.record import record_from
from trtmatrix.suite.cells import Cell
from trtmatrix.upgrade.decide import decide
from trtmatrix.upgrade.findings import Entries
from trtmatrix.upgrade.performance import make_performance, rank_p_value
from trtmatrix.upgrade.render import render_text
from trtmatrix.upgrade.report import Decision, PerformanceLine, Spread, Weight

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
    assert f"SM 1980 MHz → {clock} MHz" in line.clocks or clock == 1980


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


@pytest.mark.parametrize(("megabytes", "seconds", "beyond"), [(0.01, 0.1, False), (10.0, 10.0, True)])
def test_a_size_and_a_build_time_must_cost_something(megabytes: float, seconds: float, beyond: bool) -> None:
    def engines(cell: Cell, times: float) -> Entry:
        size = int(times * megabytes * 2**20)
        more: dict[str, Any] = {"engine_bytes": size, "device_memory_bytes": size}
        return timed(cell, ONE, build_seconds=times * seconds, **more)

    _, *lines = compare(engines(OLD_CELL, 1), engines(NEW_CELL, 2))
    assert [line.measure for line in lines] == ["build time", "engine size", "device memory"]
    assert [(line.told_apart, line.beyond_limit) for line in lines] == [(True, beyond)] * 3


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
    told = " ".join(render_text(upgrade).split())
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
    assert f"1 not comparable: {NEW}: no CUDA graph: a loop" in " ".join(render_text(upgrade).split())


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
    assert "not comparable, most sdpa-scale/" in upgrade.summary
    assert "(3.00× as much): clocks under load not recorded" in upgrade.summary


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
