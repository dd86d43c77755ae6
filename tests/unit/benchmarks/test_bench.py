"""The benchmark of the verdicts: its intervals, its page, its goals, and the engines that it makes up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from bench import outcomes
from bench.groups import Group, read_groups
from bench.outcomes import RIGHT, Maker
from bench.rates import MOST, interval, rate, render_rates
from bench.verdicts import Judged, judge_group, missed_goals, noise_of
from numpy.typing import NDArray

from trtmatrix.authoring.arithmetic import ENSEMBLE
from trtmatrix.suite.model import Verdict

Array = NDArray[Any]

WRONG_SCALE = "controls:graph=wrong-scale precision=tf32"
SAMPLED = (
    "deformable-plugin:batch=2 beyond=0.0 channels=32 heads=8 levels=33x47 points=4 precision=fp32 "
    "queries=300"
)
BLIND = (
    WRONG_SCALE,
    SAMPLED,
    "flash-attention:batch=8 head_size=64 heads=8 keys=512 mask=none precision=fp32 queries=512",
    "gemm-mha-v2:batch=2 head_size=64 heads=8 length=17 mask=none precision=fp16",
)
SEED = 5000
"""Neither the calibration's nor the benchmark's own."""


@cache
def groups() -> dict[str, Group]:
    return {group.key: group for group in read_groups()}


def make_judged(label: str = RIGHT, size: float = 0.0, verdict: str = "PASS", **fields: Any) -> Judged:
    return Judged(
        **{
            "repro": "sdpa-scale", "precision": "tf32", "key": "sdpa-scale:precision=tf32", "seed": SEED,
            "label": label, "member": "tf32-late", "size": size, "error": max(size, 0.9), "known": False,
            "usable": False, "mute": False, "verdict": verdict, "reason": "as made up", **fields,
        }
    )  # fmt: skip


# Clopper and Pearson's intervals of 95%, as tables of them and R's binom.test give them.
@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [
        (0, 30, 0.0, 0.1157033),
        (30, 30, 1 - 0.1157033, 1.0),
        (5, 10, 0.1870860, 0.8129140),
        (1, 10, 0.0025286, 0.4450161),
        (0, 1200, 0.0, 0.0030693),
        (0, 0, 0.0, 1.0),
    ],
)
def test_intervals_are_those_of_clopper_and_pearson(hits: int, count: int, low: float, high: float) -> None:
    assert interval(hits, count) == pytest.approx((low, high), abs=1e-6)


def test_intervals_of_one_side_and_of_many_outcomes() -> None:
    assert interval(0, 30, risk=0.1)[1] == pytest.approx(0.0950, abs=1e-4)
    low, high = interval(1000, 2000)
    assert low < 0.5 < high
    assert high - low == pytest.approx(2 * 1.96 * (0.25 / 2000) ** 0.5, rel=0.02)


def test_a_rate_is_written_with_its_interval() -> None:
    assert rate(0, 30) == "0 (0% to 11.6%)"
    assert rate(5, 10) == "5 (18.7% to 81.3%)"


def sections(page: str) -> dict[str, str]:
    """Return a page's text by heading."""
    parts = page.split("\n## ")
    return {part.partition("\n")[0].lstrip("# "): part.partition("\n")[2] for part in parts}


def cells(table: str, name: str) -> list[str]:
    """Return the cells of a table's row."""
    (row,) = (line for line in table.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in row.strip("|").split("|")]


def rendered(*judged: Judged) -> dict[str, str]:
    return sections(render_rates([asdict(one) for one in judged], 8.0))


def test_the_page_has_every_section() -> None:
    mute = make_judged(verdict="INVALID", mute=True, key="sdpa-scale:amplitude=1000.0", error=77.0)
    page = rendered(
        make_judged(error=1.25),
        make_judged(repro="controls", precision="fp16", verdict="INVALID"),
        make_judged("lost-scale", 0.7, "FAIL", known=True, usable=True),
        make_judged("lost-scale", 12, "FAIL", known=True, usable=True),
        make_judged("lost-mask", 2, known=True),
        make_judged("zeroed tile", 0.2),
        make_judged("zeroed tile", 3, key="k:small"),
        make_judged("rows swapped", 5, key="k:large"),
        make_judged("rows swapped", 2.9, key="k:tiny"),
        mute,
        replace(mute, label="lost-scale", size=5.0, verdict="PASS"),
    )
    opening = page["How often the judge is wrong"]
    assert "9 outcomes of engines made up on a CPU, 2 right and 7 with a defect" in opening
    assert "2 of cases that say nothing, all INVALID or PASS: `sdpa-scale:amplitude=1000.0`" in opening, (
        "they are told of apart"
    )
    assert cells(page["Right engines"], "all")[1:] == [
        "2", "0 (0% to 84.2%)", "1 (1.26% to 98.7%)", "1 (1.26% to 98.7%)",
    ]  # fmt: skip
    assert cells(page["Right engines"], "controls fp16")[1] == "1"
    assert "The largest error of a right engine: 1.25 noise floors." in page["Right engines"]
    known = page["Known defects, by their size in noise floors"]
    assert [cells(known, name)[1] for name in ("0 to 0.5", "0.5 to 1", "10 and more", "all")] == list("0112")
    others = page["All other defects, by their size in noise floors"]
    assert "from 8 floors on" in others
    assert [cells(others, name)[1] for name in ("0 to 0.5", "1 to 3", "3 to 10", "all")] == list("1225")
    assert cells(page["Defects by kind"], "rows swapped")[1:3] == ["2", "0 (0% to 84.2%)"]
    missed = page["What was missed from 3 floors on"]
    assert "2 outcomes, the largest defects first." in missed
    assert missed.index("k:large") < missed.index("k:small")
    assert "k:tiny" not in missed
    assert "amplitude" not in missed


def test_a_page_without_faults_says_so_and_a_long_list_is_cut() -> None:
    page = rendered(make_judged(), make_judged("zeroed tile", 30, "FAIL"))
    assert "say nothing" not in page["How often the judge is wrong"]
    assert page["What was missed from 3 floors on"].strip() == "Nothing."
    many = rendered(*[make_judged("zeroed tile", 3 + i, key=f"k:{i}.") for i in range(MOST + 2)])
    missed = many["What was missed from 3 floors on"]
    assert f"{MOST + 2} outcomes" in missed
    assert f"k:{MOST + 1}." in missed
    assert "k:1." not in missed


def test_each_goal_that_is_missed_is_named() -> None:
    good = [
        make_judged(),
        make_judged(verdict="INVALID"),
        make_judged("zeroed tile", 9.9),
        make_judged("zeroed tile", 10, "FAIL"),
        make_judged("lost-scale", 0.4, known=True, usable=True),
        make_judged("lost-scale", 0.6, known=True),
        make_judged("zeroed tile", 500, "INVALID", mute=True),
    ]
    assert missed_goals(good) == []
    told = ": sdpa-scale:precision=tf32 seed 5000"
    for bad, words in [
        (
            make_judged(verdict="FAIL"),
            f"a right engine fails{told} right by tf32-late: 0 floors, FAIL as made",
        ),
        (make_judged(verdict="FAIL", mute=True), "a right engine fails"),
        (make_judged("zeroed tile", 10), f"a defect of 10 floors is not found{told} zeroed tile by"),
        (make_judged("zeroed tile", 10, "INVALID"), "a defect of 10 floors is not found"),
        (
            make_judged("lost-scale", 0.5, known=True, usable=True),
            f"a known defect of half a floor is not found{told} lost-scale by tf32-late: 0.5 floors, PASS",
        ),
    ]:
        (only,) = missed_goals([*good, bad])
        assert only.startswith(words)


@pytest.mark.parametrize("key", BLIND)
def test_a_small_blind_run_misses_no_goal(key: str) -> None:
    judged = judge_group(groups()[key], [SEED], 4)
    assert len(judged) == 8
    right = [one for one in judged if one.label == RIGHT]
    assert [one.size for one in right] == [0.0] * 4
    assert {one.verdict for one in right} == {Verdict.PASS.value}
    assert len({one.member for one in right}) > 1
    wrong = [one for one in judged if one.label != RIGHT]
    assert all(one.size > 0 for one in wrong)
    assert Verdict.FAIL.value in {one.verdict for one in wrong}
    assert any(one.known and one.usable for one in wrong)
    assert not any(one.mute for one in judged)
    assert missed_goals(judged) == []


def test_what_is_made_depends_on_the_seed_alone() -> None:
    group = groups()[WRONG_SCALE]
    assert judge_group(group, [SEED], 2) == judge_group(group, [SEED], 2)
    assert judge_group(group, [SEED], 2) != judge_group(group, [SEED + 1], 2)


def test_a_case_that_says_nothing_is_mute() -> None:
    group = groups()["controls:graph=matmul-softmax precision=fp32"]
    deaf = replace(group, case=replace(group.case, useful=1e-12))
    judged = judge_group(deaf, [SEED], 2)
    assert {(one.mute, one.verdict) for one in judged} == {(True, Verdict.INVALID.value)}
    assert not any(one.mute for one in judge_group(group, [SEED], 2))


@pytest.fixture(params=(WRONG_SCALE, SAMPLED), ids=("attention", "sampled"))
def maker(request: pytest.FixtureRequest) -> Maker:
    group = groups()[request.param]
    return Maker(group=group, seed=SEED, floor=noise_of(group).floor)


LOCAL = ("zeroed", "swapped", "stale")


@pytest.mark.parametrize("strength", outcomes.STRENGTHS)
@pytest.mark.parametrize("kind", LOCAL)
def test_local_defects_reach_the_strength_asked_for(
    maker: Maker, kind: str, strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "STRENGTHS", (strength,))
    member = ENSEMBLE["fp32"]["fp32"]
    y = dict(maker.group.emulate(member, seed=SEED))
    before = {name: array.copy() for name, array in y.items()}
    weaker: list[Array] = []

    def make(array: Array, extent: int) -> Array:
        weaker.append(getattr(maker, kind)(array, extent))
        return weaker[-1]

    given, exact = maker.graded(member, y, make=make)
    assert maker.size(exact) >= strength
    *weaker, _, _ = weaker
    assert all(maker.size({**exact, maker.output: array}) < strength for array in weaker), (
        "no more than asked"
    )
    name = maker.output
    put_in, seen = exact[name] - maker.right[name], given[name] - y[name]
    assert np.linalg.norm(seen) == pytest.approx(np.linalg.norm(put_in), rel=1e-2)
    assert (seen == 0)[put_in == 0].all(), "the same elements"
    assert all((y[each] == before[each]).all() for each in y), "the right output is left alone"


def extents(maker: Maker) -> Iterator[int]:
    """Yield extents from one element to all."""
    size = maker.right[maker.output].size
    width = maker.right[maker.output].shape[-1]
    yield from (1, 5, width, 3 * width, size)


def runs(changed: Array) -> Sequence[int]:
    """Return the places of the elements that are true."""
    return [int(place) for place in np.flatnonzero(changed)]


def test_a_zeroed_tile_is_a_run_of_zeros(maker: Maker) -> None:
    y = maker.right[maker.output] + 1e3
    for extent in extents(maker):
        zeros = maker.zeroed(y, extent)
        places = runs(zeros == 0)
        assert places == list(range(places[0], places[0] + extent))
        assert runs(zeros != y) == places


def test_swapped_rows_hold_what_was_there(maker: Maker) -> None:
    y = maker.right[maker.output]
    for extent in extents(maker):
        swapped = maker.swapped(y, extent)
        assert (np.sort(swapped, axis=None) == np.sort(y, axis=None)).all(), "nothing is lost"
        columns, before = (array.reshape(-1, y.shape[-1]) for array in (swapped, y))
        assert (np.sort(columns, axis=0) == np.sort(before, axis=0)).all(), "no element leaves its column"
        changed = (columns != before).any(axis=1).sum()
        assert changed == 2 if extent < y.shape[-1] else changed > 1


def test_a_stale_buffer_holds_what_another_run_wrote(maker: Maker) -> None:
    y = maker.right[maker.output]
    old = maker.group.emulate_by(maker.group.params, ENSEMBLE["fp32"]["fp32"], seed=SEED + 1)[maker.output]
    for extent in extents(maker):
        stale = maker.stale(y, extent)
        places = np.flatnonzero(stale != y)
        assert 0 < len(places) <= extent
        assert places[-1] - places[0] < extent
        np.testing.assert_allclose(stale.flat[places], old.flat[places], rtol=1e-3, atol=1e-5)
