"""Which verdicts are seen again, alone, before they are believed; and that this ends."""

from collections.abc import Sequence
from typing import Any

import pytest
from builders import make_case, make_cell, make_control, make_expectation, make_record, make_repro

from trtmatrix.judge.compare import CONFIRMING_BUILDS, DECIDING_BUILDS, assess, sample_cells
from trtmatrix.judge.record import BUILT, Record
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Cause, CellId, Control, Verdict
from trtmatrix.suite.repros import Expectation

PLAIN = make_cell()
EXPECTED_TO_FAIL = make_cell(make_repro(expectations=(make_expectation(Verdict.FAIL),)))
EXPECTED_TO_SAY_NOTHING = make_cell(make_repro(expectations=(make_expectation(Verdict.INVALID),)))
NEGATIVE = make_cell(case=make_control())
POSITIVE = make_cell(case=make_case("matmul", control=Control.POSITIVE))
ON_CPU = make_cell(version="onnxruntime-1.31.1")

RIGHT, WRONG = 175.0, 9999.0
SAYS: dict[Verdict, dict[str, Any]] = {
    Verdict.PASS: {"value": RIGHT}, Verdict.FAIL: {"value": WRONG}, Verdict.BUILT: {"ended": BUILT},
    Verdict.FLAKY: {"value": WRONG, "others": (RIGHT,)}, Verdict.NO_VERDICT: {"ended": "interrupted"},
    Verdict.INVALID: {"measurements": {"outputs": {}, "scalars": {}}},
}  # fmt: skip
"""What a record must hold for a verdict."""


def seen(cell: Cell, *fields: dict[str, Any]) -> list[Record]:
    """Records, the newest first, with runs r0, r1, … from the oldest."""
    last = len(fields) - 1
    return [make_record(cell, **{"run": f"r{last - i}", **more}) for i, more in enumerate(fields)]


def wanted(cell: Cell, records: Sequence[Record]) -> int:
    return assess(cell, records).wanted


DOUBTFUL = {
    "plain": (PLAIN, {Verdict.FAIL}), "expected to fail": (EXPECTED_TO_FAIL, {Verdict.FAIL, Verdict.PASS}),
    "expected to say nothing": (EXPECTED_TO_SAY_NOTHING, {Verdict.FAIL, Verdict.PASS}),
    "negative control": (NEGATIVE, {Verdict.PASS}), "positive control": (POSITIVE, {Verdict.FAIL}),
    "ONNX Runtime": (ON_CPU, set[Verdict]()),
}  # fmt: skip


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("name", DOUBTFUL)
def test_a_failure_and_a_pass_that_was_not_expected_are_seen_again(name: str, verdict: Verdict) -> None:
    cell, doubtful = DOUBTFUL[name]
    records = seen(cell, SAYS[verdict])
    assert assess(cell, records).verdict is verdict
    assert wanted(cell, records) == (3 if verdict in doubtful else 0)


SHARED: dict[str, Any] = {"worker": {"number": 0, "position": 2}}
FIRST: dict[str, Any] = {"worker": {"number": 1, "position": 0}}
ALONE: dict[str, Any] = {"worker": {"number": 2, "position": 0, "alone": True}}

DOUBTED_CAUSES = {
    Cause.OUT_OF_GPU_MEMORY, Cause.OUT_OF_HOST_MEMORY, Cause.TIME_OUT, Cause.BUILD_FAILED, Cause.CRASHED,
    Cause.PROBE_FAILED,
}  # fmt: skip


@pytest.mark.parametrize("version", ["10.7.0", "onnxruntime-1.31.1", "tensorrt-rtx-1.4"])
@pytest.mark.parametrize("cause", Cause)
def test_an_end_in_a_shared_process_is_doubted_where_that_may_be_why(cause: Cause, version: str) -> None:
    cell = make_cell(version=version)
    engines = 1 if cause in DOUBTED_CAUSES else 0
    assert wanted(cell, [make_record(cell, ended=cause.value, **SHARED)]) == engines
    assert wanted(cell, [make_record(cell, ended=cause.value, **FIRST)]) == 0


BELIEVED_IN_COMPANY = {  # expectation, control → the verdicts that are believed in a shared process
    (None, None): {Verdict.PASS},
    (Verdict.FAIL, None): set[Verdict](),
    (Verdict.INVALID, None): {Verdict.INVALID},
    (None, Control.POSITIVE): {Verdict.PASS},
    (None, Control.NEGATIVE): {Verdict.FAIL},
    (Verdict.PASS, Control.NEGATIVE): {Verdict.PASS},
}


def expectation_of(verdict: Verdict, cell: Cell) -> Expectation:
    return make_expectation(verdict, "", product=cell.version.product)


@pytest.mark.parametrize("version", ["10.7.0", "onnxruntime-1.31.1"])
@pytest.mark.parametrize("verdict", [v for v in Verdict if v is not Verdict.NO_VERDICT])
@pytest.mark.parametrize("given", BELIEVED_IN_COMPANY)
def test_in_a_shared_process_only_what_had_to_come_is_believed(
    given: tuple[Verdict | None, Control | None], verdict: Verdict, version: str
) -> None:
    expected, control = given
    case = make_case(control=control)
    said = () if expected is None else (expectation_of(expected, make_cell(version=version)),)
    cell = make_cell(make_repro(case, expectations=said), version=version)
    believed = verdict in BELIEVED_IN_COMPANY[given] | {Verdict.BUILT}
    engines = CONFIRMING_BUILDS if version == "10.7.0" else 1
    assert wanted(cell, [make_record(cell, **SAYS[verdict], **SHARED)]) == (0 if believed else engines)


WRONG_IN_COMPANY: dict[str, Any] = {"value": WRONG, **SHARED}
NONE_OF_THREE: dict[str, Any] = {"value": RIGHT, "others": (RIGHT,) * 2, "confirms": "r0", **ALONE}
ONE_OF_THREE: dict[str, Any] = {**NONE_OF_THREE, "others": (RIGHT, WRONG)}
ALL_OF_THREE: dict[str, Any] = {"value": WRONG, "others": (WRONG,) * 2, "confirms": "r0", **ALONE}
ALL_OF_EIGHT: dict[str, Any] = {"value": RIGHT, "others": (RIGHT,) * 7, "confirms": "r0", **ALONE}

STORIES: dict[str, tuple[list[dict[str, Any]], int, set[str]]] = {  # the newest first; the runs set aside
    "one engine": ([{"value": WRONG}], 3, set()),
    "three engines of one process": ([{"value": WRONG, "others": (WRONG,) * 2}], 3, set()),
    "four engines": ([{"value": WRONG}, {"value": WRONG, "others": (WRONG,) * 2}], 0, set()),
    "confirmed": ([{"value": WRONG, "confirms": "r0"}, {"value": WRONG}], 0, set()),
    "confirmed by a crash": ([{"value": WRONG}, {"confirms": "r0", "ended": "crashed"}], 0, set()),
    "doubted": ([WRONG_IN_COMPANY], CONFIRMING_BUILDS, set()),
    "seen again": ([ALL_OF_THREE, WRONG_IN_COMPANY], 0, {"r0"}),
    "seen again by one": ([ONE_OF_THREE, WRONG_IN_COMPANY], 0, {"r0"}),
    "contradicted": ([NONE_OF_THREE, WRONG_IN_COMPANY], DECIDING_BUILDS, {"r0"}),
    "decided": ([ALL_OF_EIGHT, NONE_OF_THREE, WRONG_IN_COMPANY], 0, {"r0"}),
    "a crash that is not seen again": (
        [{"confirms": "r0", **ALONE}, {"ended": "crashed", **SHARED}], DECIDING_BUILDS, {"r0"},
    ),
    "after many alone, three will do": (
        [{**NONE_OF_THREE, "confirms": "r3"}, WRONG_IN_COMPANY, ALL_OF_EIGHT, NONE_OF_THREE,
         WRONG_IN_COMPANY], 0, {"r0", "r3"},
    ),
    "not what passed in company": (
        [{**ALL_OF_THREE, "confirms": "r1"}, WRONG_IN_COMPANY, SHARED], 0, {"r1"},
    ),
    "an older doubt that was never tried": (
        [{**NONE_OF_THREE, "confirms": "r1"}, SHARED, WRONG_IN_COMPANY], DECIDING_BUILDS, {"r0", "r1"},
    ),
    "not what was made alone": ([NONE_OF_THREE, {"value": WRONG, **FIRST}], 0, set()),
    "not where the machinery failed": (
        [{"confirms": "r0", "ended": "launcher failed", **ALONE}, WRONG_IN_COMPANY], 0, set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
def test_what_is_not_seen_again_alone_is_set_aside_and_decided_by_eight_more_once(name: str) -> None:
    fields, engines, aside = STORIES[name]
    records = seen(PLAIN, *fields)
    found = assess(PLAIN, records)
    assert (found.wanted, {record.run for record in found.set_aside}) == (engines, aside)
    assert list(found.records) == [record for record in records if record.run not in aside]


@pytest.mark.parametrize(("cells", "sampled"), [(9, 0), (10, 1), (50, 1), (51, 2), (178, 4)])
def test_one_in_fifty_of_a_large_run_must_pass_in_a_fresh_process_too(cells: int, sampled: int) -> None:
    every = [CellId(repro="r", case=f"c{n}", version="10.7.0", gpu="l4") for n in range(cells)]
    assert len(sample_cells(every, b"seed")) == sampled
    assert cells < 50 or sample_cells(every, b"seed") != sample_cells(every, b"other")
