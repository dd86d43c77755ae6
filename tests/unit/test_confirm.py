"""Which verdicts are seen again before they are believed."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_case, make_cell, make_control, make_expectation, make_record, make_repro

from trtmatrix.core.confirm import count_engines, has_engines, engines_wanted
from trtmatrix.core.expand import Cell
from trtmatrix.core.model import Control, Outcome, Product, Verdict

PLAIN = make_cell()
EXPECTED_TO_FAIL = make_cell(make_repro(expectations=(make_expectation(Verdict.FAIL),)))
EXPECTED_TO_SAY_NOTHING = make_cell(make_repro(expectations=(make_expectation(Verdict.INVALID),)))
NEGATIVE = make_cell(case=make_control())
POSITIVE = make_cell(case=make_case("matmul", control=Control.POSITIVE))
ON_CPU = make_cell(version="onnxruntime-1.31.1")

DOUBTFUL = {
    "plain": (PLAIN, {Verdict.FAIL}),
    "expected to fail": (EXPECTED_TO_FAIL, {Verdict.FAIL, Verdict.PASS}),
    "expected to say nothing": (EXPECTED_TO_SAY_NOTHING, {Verdict.FAIL, Verdict.PASS}),
    "negative control": (NEGATIVE, {Verdict.PASS}),
    "positive control": (POSITIVE, {Verdict.FAIL}),
    "ONNX Runtime": (ON_CPU, set[Verdict]()),
}


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("name", DOUBTFUL)
def test_a_failure_and_a_pass_that_was_not_expected_are_seen_again(name: str, verdict: Verdict) -> None:
    cell, doubtful = DOUBTFUL[name]
    records = [make_record(cell)]
    assert engines_wanted(cell, Outcome(verdict=verdict), records) == (3 if verdict in doubtful else 0)


def build(number: int) -> dict[str, Any]:
    return {"measurements": {"outputs": {}, "scalars": {"n": float(number)}}, "engine": {}}


def builds(count: int, **more: Any) -> dict[str, Any]:
    return {"builds": [build(number) for number in range(count)], **more}


FAIL = Outcome(verdict=Verdict.FAIL)
ENOUGH: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "one engine": ([{}], False),
    "three engines of one process": ([builds(3)], False),
    "three processes": ([{"processes": 3}], False),
    "three processes, twice": ([{"processes": 3}, {"processes": 3}], True),
    "four engines": ([{}, builds(3)], True),
    "four records": ([{}] * 4, True),
    "confirmed": ([{"confirms": "r0"}, {}], True),
    "confirmed by a crash": ([{"confirms": "r0", "ended": "crashed"}, {}], True),
    "confirmation was interrupted": ([{"confirms": "r0", "ended": "interrupted"}, {}], False),
}


@pytest.mark.parametrize("name", ENOUGH)
def test_what_was_seen_often_enough_is_not_seen_again(name: str) -> None:
    fields, enough = ENOUGH[name]
    records = [make_record(PLAIN, run=f"r{number}", **more) for number, more in enumerate(fields)]
    assert engines_wanted(PLAIN, FAIL, records) == (0 if enough else 3)


def test_engines_are_counted_over_records_and_processes() -> None:
    records = [make_record(PLAIN, **fields) for fields in ({}, builds(3), {"processes": 5})]
    assert count_engines(records) == 1 + 3 + 5


@pytest.mark.parametrize(
    ("fields", "wanted", "enough"),
    [({}, 1, True), ({}, 2, False), (builds(2), 2, True), ({"ended": "crashed"}, 5, True)],
)
def test_more_engines_are_wanted_only_where_they_would_tell(
    fields: dict[str, Any], wanted: int, enough: bool
) -> None:
    assert has_engines([make_record(PLAIN, **fields)], wanted) is enough


def test_every_product_but_tensorrt_is_believed_at_once() -> None:
    cells: list[Cell] = [make_cell(version=name) for name in ("tensorrt-rtx-1.4", "onnxruntime-1.31.1")]
    assert {cell.version.product for cell in cells} == set(Product) - {Product.TENSORRT}
    assert not any(engines_wanted(cell, FAIL, [make_record(cell)]) for cell in cells)
