"""In which order launches start, how one is split over boards, which cases are prepared together."""

from __future__ import annotations

from dataclasses import replace

from builders import H200, make_case, make_cell, make_record, make_repro, make_version
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.judge.entry import Stored
from trtmatrix.plan.order import estimate_seconds, group_cases, order_launches, split_launch
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Gpu
from trtmatrix.suite.plan import Launch

A, B, C = (make_case(name) for name in "abc")
REPRO = make_repro(A, B, C)
CELLS = [make_cell(REPRO, case) for case in REPRO.cases]


def took(cell: Cell, seconds: int, day: int = 1, **fields: object) -> Stored:
    """A stored record of a cell that took so long."""
    times = {
        "started": f"2025-01-{day:02}T00:00:00.000Z",
        "finished": f"2025-01-{day:02}T00:00:{seconds:02}.000Z",
    }
    record = make_record(cell, **times, **fields)  # type: ignore[arg-type] # fields of the record's JSON
    return Stored(record=record, local=True)


def test_a_cell_takes_as_long_as_last_time_on_any_gpu() -> None:
    elsewhere = make_cell(REPRO, A, gpu=Gpu(slug="l4", name="L4"))
    seconds = estimate_seconds(CELLS, [took(CELLS[0], 40), took(elsewhere, 10, day=2), took(CELLS[1], 30)])
    assert [seconds[cell.id] for cell in CELLS] == [10, 30, 20], "of what is not known: the average"


def launch(name: str, *cells: Cell, pull: bool = False) -> Launch:
    version = make_version(name)
    return Launch(
        version=version, gpu=H200, cells=tuple(replace(cell, version=version) for cell in cells), pull=pull
    )


def is_here(launch: Launch) -> bool:
    return not launch.pull


def test_what_is_here_starts_first_and_then_the_longest() -> None:
    small, large = launch("10.7.0", CELLS[0]), launch("10.8.0", *CELLS)
    far, farther = launch("10.9.0", *CELLS, pull=True), launch("10.6.0", CELLS[0], pull=True)
    ordered = order_launches([farther, small, far, large], {}, is_here)
    assert ordered == [large, small, far, farther]
    slow = {cell.id: 100.0 for cell in small.cells}
    assert order_launches([large, small], slow, is_here) == [small, large]


@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=40), st.integers(1, 9), st.integers(1, 4))
def test_a_split_loses_nothing_and_is_balanced(times: list[float], parts: int, repros: int) -> None:
    owners = [make_repro(make_case("x"), id=f"repro{n}") for n in range(repros)]
    cells = [make_cell(owners[n * repros // len(times)], make_case(f"c{n}")) for n in range(len(times))]
    whole = launch("10.7.0", *cells)
    seconds = {cell.id: time for cell, time in zip(whole.cells, times, strict=True)}
    split = split_launch(whole, parts, seconds)
    assert 1 <= len(split) <= min(parts, len(times)), "cells that are over at once may stay together"
    assert sorted(cell.id for part in split for cell in part.cells) == sorted(cell.id for cell in whole.cells)
    place = {cell.id: n for n, cell in enumerate(whole.cells)}
    assert all([place[c.id] for c in part.cells] == sorted(place[c.id] for c in part.cells) for part in split)
    totals = [sum(seconds[cell.id] for cell in part.cells) for part in split]
    ideal = sum(times) / min(parts, len(times))
    assert max(totals) <= (ideal + max(*times, ideal / 2)) * 1.000001


def test_cases_that_draw_the_same_numbers_go_together() -> None:
    cases = [make_case(name, noise_key=f"r:a=1 precision={name} queries=3") for name in ("tf32", "fp16")]
    alone = make_case("alone", noise_key="r:n=2 precision=fp16")
    repro = make_repro(alone, *cases)
    groups = group_cases(
        [make_cell(repro, case, version) for version in ("10.7.0", "10.8.0") for case in repro.cases]
    )
    assert [[cell.case.id for cell in group] for group in groups] == [["tf32", "fp16"], ["alone"]]
