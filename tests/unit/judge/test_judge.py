"""The judge: total over every way to end, and NaN never passes."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from builders import make_case, make_cell, make_record, make_repro, make_version

from trtmatrix.judge.judge import judge
from trtmatrix.judge.noise import parse_calibration
from trtmatrix.judge.record import ENDS, Record, write_number
from trtmatrix.suite.matrix import Fact
from trtmatrix.suite.model import Cause, Known, Outcome, Verdict
from trtmatrix.suite.repros import Case
from trtprobe.answer import measure_all

V107 = make_version("10.7.0", library="10.7.0.23")


def judged(case: Case | None = None, library: Any = None, **record: Any) -> Outcome:
    case = case or make_case()
    observed = {} if library is None else {"library": library}
    return one(make_record(make_cell(case=case), observed=observed, **record), case)


def one(record: Record, case: Case, version: Any = V107) -> Outcome:
    return judge([record], case, version, make_repro(case))


def measurements(outputs: dict[str, dict[str, float]], **scalars: float) -> dict[str, Any]:
    written = {name: {k: write_number(v) for k, v in values.items()} for name, values in outputs.items()}
    return {"outputs": written, "scalars": {k: write_number(v) for k, v in scalars.items()}}


@pytest.mark.parametrize("ended", ENDS)
@pytest.mark.parametrize("bug_is", [frozenset(), frozenset(Cause)], ids=["plain", "bug"])
def test_every_way_to_end_has_one_outcome(ended: str, bug_is: frozenset[Cause]) -> None:
    outcome = judged(make_case(bug_is=bug_is), ended=ended, detail="why")
    match ended:
        case "ran":
            assert outcome == Outcome(verdict=Verdict.PASS, builds=1)
        case "built":
            assert outcome == Outcome(verdict=Verdict.BUILT, reason="why")
        case _ if bug_is:
            assert outcome == Outcome(verdict=Verdict.FAIL, reason=f"{ended}: why")
        case _:
            assert outcome == Outcome(verdict=Verdict.NO_VERDICT, cause=Cause(ended), reason="why")


@pytest.mark.parametrize(
    ("remark", "verdict", "reason"),
    [
        ("fused", Verdict.PASS, ""), ("plain", Verdict.FAIL, "right, but plain, not fused"),
        ("?", Verdict.INVALID, "right, but it cannot be seen whether fused"),
        ("", Verdict.INVALID, "right, but it cannot be seen whether fused"),
    ],
)  # fmt: skip
def test_the_remark_decides_where_the_numbers_pass(remark: str, verdict: Verdict, reason: str) -> None:
    case = make_case(remarks=frozenset({"fused"}))
    right = {**measurements({"y": {"sum_abs": 1.0}}), "remark": remark}
    wrong = {**measurements({"y": {"sum_abs": 1e6}}), "remark": remark}
    failed = int(verdict is Verdict.FAIL)
    expected = Outcome(verdict=verdict, reason=reason, builds=1, failed=failed)
    assert judged(case, measurements=right) == expected
    assert judged(case, measurements=wrong).reason == "sum_abs 1e+06 > 690"
    assert judged(measurements=right).verdict is Verdict.PASS, "any will do where none is asked for"
    record = make_record(make_cell(case=case, version="onnxruntime-1.31.1"))
    outcome = one(record, case, make_version("onnxruntime-1.31.1"))
    assert outcome == Outcome(verdict=Verdict.PASS), "nothing is built there"


def test_some_causes_are_trouble_with_the_machinery() -> None:
    expected = {"interrupted", "launcher failed", "probe failed", "version mismatch", "image missing"}
    assert {cause.value for cause in Cause if cause.is_machinery} == expected


@pytest.mark.parametrize("count", [1, 12, math.nan, math.inf])
def test_nan_where_the_reference_is_finite_fails_below_every_limit(count: float) -> None:
    outputs = {"y": {"sum_abs": 0.0, "count": 12, "nan_unexpected": count}}
    outcome = judged(measurements=measurements(outputs))
    assert outcome.verdict is Verdict.FAIL
    assert "NaN or infinite where the reference is finite" in outcome.reason


@pytest.mark.parametrize(
    ("pinned", "known", "seen", "agrees"),
    [
        ("10.7.0.23", Known.READ, "10.7.0.23", True), ("10.7.0.23", Known.READ, "10.7.0", True),
        ("10.7.0.23", Known.READ, "10.7.0.24", False), ("10.7.0.23", Known.RECALLED, "10.7.0.24", True),
        ("10.7.0.23", Known.INFERRED, "10.7.1.23", False), ("9.2.0.5", Known.READ, "9.2.0.post12.dev5", True),
    ],
)  # fmt: skip
def test_another_library_gives_no_verdict(pinned: str, known: Known, seen: str, agrees: bool) -> None:
    fact = Fact(value=pinned, known=known, source="a")
    version = replace(make_version("10.7.0"), library=fact)
    record = make_record(make_cell(), observed={"library": seen})
    outcome = one(record, make_case(), version)
    assert (outcome.cause is Cause.VERSION_MISMATCH) is not agrees
    assert outcome.verdict is (Verdict.PASS if agrees else Verdict.NO_VERDICT)


RIGHT, WRONG = 175.0, 1373.0


@pytest.mark.parametrize(
    ("engines", "verdict", "builds", "failed"),
    [
        ([(RIGHT, RIGHT, RIGHT)], Verdict.PASS, 3, 0), ([(WRONG,) * 3, (WRONG,)], Verdict.FAIL, 4, 4),
        ([(RIGHT,) * 3, (WRONG,)], Verdict.FLAKY, 4, 1), ([(RIGHT, WRONG)], Verdict.FLAKY, 2, 1),
    ],
)  # fmt: skip
def test_every_engine_of_every_comparable_record_counts(
    engines: list[tuple[float, ...]], verdict: Verdict, builds: int, failed: int
) -> None:
    cell = make_cell()
    runs = (f"20250102t030405-0000000{i}" for i in range(9))
    records = [make_record(cell, first, others=more, run=run)
               for run, (first, *more) in zip(runs, engines, strict=False)]  # fmt: skip
    outcome = judge(records, cell.case, cell.version, cell.repro)
    assert (outcome.verdict, outcome.builds, outcome.failed) == (verdict, builds, failed)


def test_the_newest_decides_whether_there_is_a_verdict() -> None:
    cell = make_cell()
    crashed, old = make_record(cell, ended="crashed", run="20250102t030406-00000000"), make_record(cell)
    assert judge([crashed, old], cell.case, cell.version, cell.repro).cause is Cause.CRASHED
    outcome = judge([old, crashed], cell.case, cell.version, cell.repro)
    assert (outcome.verdict, outcome.builds) == (Verdict.PASS, 1), "what did not run is no engine"


@pytest.mark.parametrize(("value", "verdict", "failed"), [(RIGHT, Verdict.PASS, 0), (WRONG, Verdict.FAIL, 3)])
def test_processes_count_as_engines(value: float, verdict: Verdict, failed: int) -> None:
    outcome = judged(value=value, processes=3)
    assert (outcome.verdict, outcome.builds, outcome.failed) == (verdict, 3, failed)


@pytest.mark.parametrize(("rel_l2", "verdict"), [(4e-3, Verdict.PASS), (8.1e-3, Verdict.FAIL)])
def test_an_older_record_is_judged_by_the_calibrated_floor(rel_l2: float, verdict: Verdict) -> None:
    noise = {"precision": "tf32", "outputs": {"y": {"tf32": 1e-3}}}
    data = {"schema": 1, "seeds": 21, "cases": {"k": {"noise": noise, "envelope": {}}}}
    cell = make_cell(case=make_case(limits={}, noise_key="k"))
    rest = (cell.case, cell.version, cell.repro)
    old, calibration = make_record(cell, rel_l2=rel_l2), parse_calibration(data)
    assert judge([old], *rest, calibration).verdict is verdict
    assert judge([old], *rest).verdict is Verdict.INVALID
    own = make_record(cell, rel_l2=rel_l2, noise={**noise, "outputs": {"y": {"tf32": 0.1}}})
    assert judge([own], *rest, calibration).verdict is Verdict.PASS, "its own counts"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"by": "", "why_not": "no kernel of Strange"}, "; no reference: no kernel of Strange"),
        ({"by": "it", "silent": ["y"]}, "; y: its reference has no element but zeros, NaN and infinity"),
        ({"by": "it", "why_not": "opset 9"}, "; no noise floor: opset 9"),
        ({}, "compared with each other only"),
    ],
)
def test_what_says_nothing_for_want_of_a_floor_says_why(told: dict[str, Any], words: str) -> None:
    case = make_case(limits={}, keep=True)
    outcome = judged(case, rel_l2=0.5, noise={"outputs": {}, "precision": "fp32", "reference": told})
    assert outcome.verdict is Verdict.INVALID
    assert words in outcome.reason


# An output of another shape than its reference: a failure and no trouble, believed in time.


SAID = "shape (1, 1, 1), the reference has (2, 24, 1)"
SCALAR = "shape (2,), the reference has ()"
SHAPES = "ms: wrong shape: (1, 1, 1) instead of (2, 24, 1); v.s1: wrong shape: (2,) instead of ()"
MISSHAPEN = "wrong shape: (1, 1, 1) instead of (2, 24, 1)"
CELL = make_cell(case=make_case())


@pytest.mark.parametrize(
    ("ended", "detail", "reason"),
    [
        ("probe failed", f"build 2 of 3: raised ValueError: {SAID}", MISSHAPEN),
        ("probe failed", f"ms: {SAID}; v.s1: {SCALAR}", SHAPES),
        ("probe failed", "raised ValueError: shape (1,), the defect lost has (2,)", ""),
        ("crashed", f"raised ValueError: {SAID}", ""),
    ],
)  # fmt: skip
def test_shapes_are_read_from_what_the_probe_says(ended: str, detail: str, reason: str) -> None:
    record = make_record(CELL, ended=ended, detail=detail)
    outcome = judge([record], CELL.case, CELL.version, CELL.repro)
    if reason:
        assert (outcome.verdict, outcome.cause, outcome.reason) == (Verdict.FAIL, None, reason)
    else:
        assert (outcome.verdict, outcome.cause) == (Verdict.NO_VERDICT, Cause(ended))


def test_the_probe_names_every_output_of_another_shape_and_measures_the_others() -> None:
    reference = {"ms": np.ones((2, 24, 1)), "v.s1": np.ones(()), "y": np.ones(3)}
    files: Any = SimpleNamespace(reference=reference, defects={})
    odd: list[str] = []
    found = measure_all({"ms": np.ones((1, 1, 1)), "v.s1": np.ones(2), "y": np.ones(3)}, files, odd)
    assert list(found["outputs"]) == ["y"]
    record = make_record(CELL, ended="probe failed", detail="; ".join(odd))
    assert judge([record], CELL.case, CELL.version, CELL.repro).reason == SHAPES
