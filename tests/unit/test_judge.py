"""The judge: total over every way to end, and NaN never passes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from builders import make_case, make_cell, make_record, make_version
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.core.config import Fact
from trtmatrix.core.judge import figure_text, judge, measured, observed_differences, short
from trtmatrix.core.model import Case, Cause, Figure, Known, Outcome, Verdict
from trtmatrix.core.record import BUILT, ENDS, RAN, Record, write_number

V107 = make_version("10.7.0", library="10.7.0.23")
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


def judged(case: Case | None = None, library: Any = None, **record: Any) -> Outcome:
    case = case or make_case()
    observed = {} if library is None else {"library": library}
    return judge(make_record(make_cell(case=case), observed=observed, **record), case, V107)


def measurements(outputs: dict[str, dict[str, float]], **scalars: float) -> dict[str, Any]:
    written = {name: {k: write_number(v) for k, v in values.items()} for name, values in outputs.items()}
    return {"outputs": written, "scalars": {k: write_number(v) for k, v in scalars.items()}}


@pytest.mark.parametrize("ended", ENDS)
@pytest.mark.parametrize("bug_is", [frozenset(), frozenset(Cause)], ids=["plain", "bug"])
def test_every_way_to_end_has_one_outcome(ended: str, bug_is: frozenset[Cause]) -> None:
    outcome = judged(make_case(bug_is=bug_is), ended=ended, detail="why")
    match ended:
        case "ran":
            assert outcome == Outcome(verdict=Verdict.PASS)
        case "built":
            assert outcome == Outcome(verdict=Verdict.BUILT, reason="why")
        case _ if bug_is:
            assert outcome == Outcome(verdict=Verdict.FAIL, reason=f"{ended}: why")
        case _:
            assert outcome == Outcome(verdict=Verdict.NO_VERDICT, cause=Cause(ended), reason="why")


REMARKS = [
    ("fused", Verdict.PASS, ""),
    ("plain", Verdict.FAIL, "right, but plain, not fused"),
    ("?", Verdict.INVALID, "right, but it cannot be seen whether fused"),
    ("", Verdict.INVALID, "right, but it cannot be seen whether fused"),
]


@pytest.mark.parametrize(("remark", "verdict", "reason"), REMARKS)
def test_the_remark_decides_where_the_numbers_pass(remark: str, verdict: Verdict, reason: str) -> None:
    case = make_case(remarks=frozenset({"fused"}))
    right = {**measurements({"y": {"sum_abs": 1.0}}), "remark": remark}
    assert judged(case, measurements=right) == Outcome(verdict=verdict, reason=reason)
    wrong = {**measurements({"y": {"sum_abs": 1e6}}), "remark": remark}
    assert judged(case, measurements=wrong).reason == "sum_abs 1e+06 > 690"
    assert judged(make_case(), measurements=right).verdict is Verdict.PASS, (
        "any will do where none is asked for"
    )


def test_only_tensorrt_is_asked_for_a_remark() -> None:
    case = make_case(remarks=frozenset({"fused"}))
    record = make_record(make_cell(case=case, version="onnxruntime-1.31.1"))
    assert judge(record, case, make_version("onnxruntime-1.31.1")).verdict is Verdict.PASS


def test_the_remark_stands_before_the_figure() -> None:
    figure = Figure(measure="speedup", label="x")
    seen = {**measurements({}, speedup=3.14159), "remark": "fused"}
    assert figure_text(make_record(make_cell(), measurements=seen), figure) == "fused 3.14"
    assert figure_text(make_record(make_cell(), measurements={**seen, "scalars": {}}), figure) == "fused"
    assert figure_text(make_record(make_cell(), measurements={**seen, "remark": ""}), figure) == "3.14"


@pytest.mark.parametrize("cause", Cause)
def test_trouble_with_the_machinery_is_never_pass_or_fail(cause: Cause) -> None:
    assert judged(ended=cause.value).verdict is Verdict.NO_VERDICT
    expected = {"interrupted", "launcher failed", "probe failed", "version mismatch", "image missing"}
    assert cause.is_machinery is (cause.value in expected)


@given(
    st.dictionaries(st.sampled_from("yz"), st.dictionaries(st.sampled_from(("sum_abs", "max_abs")), NUMBERS)),
    st.dictionaries(st.sampled_from(("own", "sum_abs")), NUMBERS),
    st.dictionaries(st.sampled_from(("sum_abs", "max_abs", "own")), st.floats(-10, 10)),
    st.integers(0, 3),
)
def test_pass_means_that_every_limit_holds_and_nothing_is_nan(
    outputs: dict[str, dict[str, float]], scalars: dict[str, float], limits: dict[str, float], bad: int
) -> None:
    for values in outputs.values():
        values["nan_unexpected"] = bad
    record = make_record(make_cell(), measurements=measurements(outputs, **scalars))
    outcome = judge(record, make_case(limits=limits), V107)
    known = {name: measured(record, name) for name in limits}
    if outcome.verdict is Verdict.PASS:
        assert limits
        assert not (bad and outputs)
        assert all(value is not None and value <= limits[name] for name, value in known.items())
    elif outcome.verdict is Verdict.INVALID:
        assert not limits or None in known.values()
    else:
        assert outcome.verdict is Verdict.FAIL
        above = [value is not None and not value <= limits[name] for name, value in known.items()]
        assert any(above) or (bad and outputs)
    assert (outcome.verdict is Verdict.PASS) == (not outcome.reason)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (0.0, Verdict.PASS), (690.0, Verdict.PASS), (math.nextafter(690.0, 700.0), Verdict.FAIL),
        (math.nan, Verdict.FAIL), (math.inf, Verdict.FAIL),
    ],
)  # fmt: skip
def test_the_rule_is_measured_at_most_limit(value: float, verdict: Verdict) -> None:
    assert judged(value=value).verdict is verdict


def test_a_nan_in_one_output_of_many_fails() -> None:
    outputs = {"a": {"sum_abs": 1.0}, "b": {"sum_abs": math.nan}, "c": {"sum_abs": 1.0}}
    assert judged(measurements=measurements(outputs)).verdict is Verdict.FAIL


@pytest.mark.parametrize("count", [1, 12, math.nan, math.inf])
def test_nan_where_the_reference_is_finite_fails_below_every_limit(count: float) -> None:
    outputs = {"y": {"sum_abs": 0.0, "count": 12, "nan_unexpected": count}}
    outcome = judged(measurements=measurements(outputs))
    assert outcome.verdict is Verdict.FAIL
    assert "NaN or infinite where the reference is finite" in outcome.reason


def test_a_limit_that_was_not_measured_is_no_pass() -> None:
    outcome = judged(make_case(limits={"sum_abs": 690.0, "own": 1.0}))
    assert outcome.verdict is Verdict.INVALID
    assert "did not measure own" in outcome.reason


def test_a_case_without_limits_says_nothing() -> None:
    assert judged(make_case(limits={})).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("pinned", "known", "seen", "agrees"),
    [
        ("10.7.0.23", Known.READ, "10.7.0.23", True),
        ("10.7.0.23", Known.READ, "10.7.0", True),
        ("10.7.0.23", Known.READ, "10.7.0.24", False),
        ("10.7.0.23", Known.RECALLED, "10.7.0.24", True),
        ("10.7.0.23", Known.INFERRED, "10.7.0.24", True),
        ("10.7.0.23", Known.INFERRED, "10.7.1.23", False),
        ("10.7.0.23", Known.MEASURED, "10.10.0", False),
        ("10.1.0", Known.READ, "10.10.0", False),
        ("9.2.0.5", Known.READ, "9.2.0.post12.dev5", True),
        ("10.7.0", Known.THIRD_PARTY, "8.6.1", False),
    ],
)
def test_another_library_than_the_pinned_one_gives_no_verdict(
    pinned: str,
    known: Known,
    seen: str,
    agrees: bool,
) -> None:
    fact = Fact(value=pinned, known=known, source="a")
    version = make_version("10.7.0").model_copy(update={"library": fact})
    record = make_record(make_cell(), observed={"library": seen})
    outcome = judge(record, make_case(), version)
    assert (outcome.cause is Cause.VERSION_MISMATCH) is not agrees
    assert outcome.verdict is (Verdict.PASS if agrees else Verdict.NO_VERDICT)


@pytest.mark.parametrize("ended", ENDS)
def test_a_mismatch_outweighs_every_way_to_end(ended: str) -> None:
    outcome = judged(make_case(bug_is=frozenset(Cause)), library="10.8.0", ended=ended)
    assert outcome.cause is Cause.VERSION_MISMATCH


@pytest.mark.parametrize("library", [None, 7, ["10.8.0"]])
def test_a_library_that_was_not_observed_is_no_mismatch(library: object) -> None:
    assert judged(library=library).verdict is Verdict.PASS


def test_facts_that_the_image_contradicts_are_told() -> None:
    version = make_version("10.7.0", python="3.12", torch="2.6.0a0+df5bbc09d1", cuda="12.6.3")
    seen = {"python": "3.10.12", "torch": "2.6.0a0+df5bbc09d1", "cuda": None, "library": "10.7.0"}
    record = make_record(make_cell(version=version), observed=seen)
    assert observed_differences(record, version) == {"python": ("3.12", "3.10.12")}


def test_the_cases_own_number_comes_before_the_outputs() -> None:
    record = make_record(make_cell(), measurements=measurements({"y": {"wrong": 9.0}}, wrong=3.0))
    assert measured(record, "wrong") == 3.0
    assert measured(record, "nothing") is None


@given(st.floats(0, 1e300, allow_subnormal=False))
def test_a_figure_has_six_characters_at_most_and_keeps_its_size(value: float) -> None:
    assert len(short(value)) <= 6
    assert float(short(value)) == pytest.approx(value, rel=0.06 if 1e-9 <= value < 1e99 else 0.5)


@given(NUMBERS)
def test_every_number_has_a_figure(value: float) -> None:
    assert math.isnan(float(short(value))) == math.isnan(value)
    assert math.isinf(float(short(value))) or math.isfinite(value) or math.isnan(value)


@pytest.mark.parametrize("ended", ENDS)
def test_only_what_ran_has_a_figure(ended: str) -> None:
    record: Record = make_record(make_cell(), 175.2, ended=ended)
    text = figure_text(record, Figure(measure="sum_abs", label="sum"))
    assert text == ("175" if ended == RAN else "")
    assert BUILT in ENDS
