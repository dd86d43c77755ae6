"""The script's short judge says what the full one says: of every published record, and of random numbers."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from builders import make_case, make_cell, make_entry
from hypothesis import given
from hypothesis import strategies as st
from test_numbers import FLOOR, MEMBERS, make_build, make_noise, make_subject
from test_published import judged, published

from trtmatrix.core.bundle.expected import as_found, make_expected, make_rules
from trtmatrix.core.compare import Entry
from trtmatrix.core.judge import judge_engine, subject_of
from trtmatrix.core.model import Cause, Control, Product, Verdict
from trtmatrix.core.numbers import Subject
from trtmatrix.core.record import RAN, Measured
from trtmatrix.effects.calibration import read_calibration
from trtmatrix.standalone.judging import judge_build
from trtmatrix.standalone.telling import CAME_BACK, CANNOT_SAY, NOT_THERE, conclude

ANY = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, 0.5, 1.0, 3.9, 4.0, 5.8, 7.9, 8.0, 300.0]),
)
C = st.one_of(ANY, st.floats(-0.1, 0.1), st.floats(0.85, 1.15))


@cache
def entries() -> tuple[Entry, ...]:
    return judged(published())


def engines() -> Iterator[tuple[Entry, Measured, Subject]]:
    for entry in entries():
        for record in (record for record in entry.records if record.ended == RAN):
            subject = subject_of(record, entry.cell.case, entry.cell.repro, read_calibration())
            yield from ((entry, build, subject) for build in record.builds)


def short(build: Measured, subject: Subject) -> tuple[str, str]:
    """What the script's judge says, over JSON as the script has it."""
    rules = json.loads(json.dumps(make_rules(subject)))
    verdict, way, _ = judge_build(as_found(build), rules)
    return verdict, way


def test_both_judges_agree_on_every_published_engine() -> None:
    seen: Counter[str] = Counter()
    for entry, build, subject in engines():
        full = judge_engine(build, subject)
        verdict, way = short(build, subject)
        assert verdict == full.verdict.value, f"{entry.cell.id}: {full.reason}"
        assert bool(way) is (full.verdict is Verdict.FAIL)
        seen[way or verdict] += 1
    assert seen["PASS"] >= 400, seen
    assert seen["known defect: lost-scale"] >= 20, seen
    assert {"remark: plain", "own limit: wrong", "INVALID"} <= set(seen), seen


def test_a_recorded_failure_comes_back_from_its_own_records() -> None:
    seen: Counter[Any] = Counter()
    for entry in entries():
        assert entry.outcome is not None
        assert entry.record is not None
        expected = json.loads(json.dumps(make_expected(entry, read_calibration(), {}), allow_nan=False))
        for record in entry.records:
            engines = [{"measurements": as_found(build)} for build in record.builds]
            result = {"ended": record.ended, "detail": record.detail, "builds": engines}
            code, verdict, why = conclude(result, expected)
            if len(entry.records) == 1 and entry.outcome.verdict in {Verdict.FAIL, Verdict.PASS}:
                assert verdict == entry.outcome.verdict.value, f"{entry.cell.id}: {why}"
                assert code == (CAME_BACK if verdict == "FAIL" else NOT_THERE), f"{entry.cell.id}: {why}"
            seen[verdict, code] += 1
    assert seen["FAIL", CAME_BACK] >= 60, seen
    assert seen["PASS", NOT_THERE] >= 200, seen
    assert set(seen) <= {
        ("FAIL", CAME_BACK), ("PASS", NOT_THERE), ("INVALID", CANNOT_SAY), ("NO VERDICT", CANNOT_SAY),
    }  # fmt: skip


def test_every_recorded_figure_is_within_its_range() -> None:
    for entry in entries()[::5]:
        expected = make_expected(entry, read_calibration(), {})
        assert all(float(low) <= float(high) for low, high in expected["figures"].values()), entry.cell.id
        if entry.record is not None and entry.record.ended == RAN:
            assert expected["figures"]


@st.composite
def builds(draw: st.DrawFn) -> Measured:
    outputs = {
        name: {
            "count": 4, "nan": 0, "inf": 0, "zeros": draw(st.integers(0, 4)), "share_zeros": 0.5,
            "nan_unexpected": draw(st.sampled_from([0, 0, 0, 2])), "sum_abs": draw(ANY),
            **({"rel_l2": draw(ANY) * FLOOR} if draw(st.booleans()) else {}),
        }
        for name in draw(st.sets(st.sampled_from(["y", "z"])))
    }  # fmt: skip
    signs = {"c": draw(C), "explained": draw(st.floats(0, 1))}
    scalars = draw(st.dictionaries(st.sampled_from(["beyond", "wrong", "sum_abs"]), ANY))
    return Measured(
        outputs=outputs, scalars=scalars, remark=draw(st.sampled_from(["", "?", "fused", "plain"])),
        signatures={"lost-scale": {"y": signs}} if draw(st.booleans()) else {},
    )  # fmt: skip


@st.composite
def subjects(draw: st.DrawFn) -> Subject:
    limits = draw(st.dictionaries(st.sampled_from(["wrong", "sum_abs"]), st.floats(0, 10)))
    tolerance = draw(st.sampled_from([{}, {}, {"atol": 0.1, "rtol": 0.1}]))
    case: dict[str, Any] = {
        "limits": {**limits, **({"beyond": 0.0} if tolerance else {})}, "tolerance": tolerance,
        "remarks": draw(st.sampled_from([frozenset(), frozenset({"fused"})])), "keep": draw(st.booleans()),
        "useful": draw(st.sampled_from([1e-9, 0.1])),
        "defects": draw(st.sampled_from([(), ("lost-scale",)])),
    }  # fmt: skip
    if draw(st.booleans()):
        case.update(control=Control.NEGATIVE, defect="lost-scale")
    noise = make_noise(draw(st.sampled_from([1.0, 4.0, 8.0])), bound=draw(st.sampled_from([0.001, 0.2, 0.9])))
    outputs = draw(st.sampled_from([{"y": MEMBERS}, {"y": MEMBERS, "z": MEMBERS}, {"y": {"fp32": 0.0}}]))
    subject = replace(
        make_subject(replace(noise, outputs=outputs), **case), product=draw(st.sampled_from(Product))
    )
    return replace(subject, noise=None) if draw(st.integers(0, 4)) == 0 else subject


@given(builds(), subjects())
def test_both_judges_agree_on_random_engines(build: Measured, subject: Subject) -> None:
    full = judge_engine(build, subject)
    assert short(build, subject)[0] == full.verdict.value, full.reason


SIZES = (0.0, 3.99, 4.0, 4.01, 5.8, 7.99, 8.0, 8.01, 12.0, 300.0, math.inf, math.nan)
SHARES = (0.0, 0.9, 1.1, 1.9, 2.1, -2.1, 45.0, 50.0, 55.0, 60.0, math.nan)


@pytest.mark.parametrize("product", Product)
@pytest.mark.parametrize("control", [None, Control.NEGATIVE])
def test_both_judges_agree_at_every_edge(product: Product, control: Control | None) -> None:
    """Errors in noise floors, and c as a multiple of its bound, 0.02: 50 is the defect as it is known."""
    subject = replace(make_subject(control=control, defect="lost-scale" if control else ""), product=product)
    floor = make_rules(subject)["outputs"]["y"]["floor"]
    for size, share in itertools.product(SIZES, SHARES):
        build = make_build(size * floor / FLOOR, c=0.02 * share, explained=0.5)
        assert short(build, subject)[0] == judge_engine(build, subject).verdict.value, (size, share)


@pytest.mark.parametrize("ended", ["build failed", "crashed", "time-out"])
def test_an_ending_that_is_the_bug_comes_back_only_as_such(ended: str) -> None:
    case = make_case(limits={}, bug_is=frozenset({Cause(ended)}))
    entry = make_entry(make_cell(case=case), ended=ended, detail="why")
    expected = make_expected(entry, read_calibration(), {"model.onnx": "0"})
    result: dict[str, Any] = {"ended": ended, "detail": "again", "measurements": {}}
    assert conclude(result, expected) == (CAME_BACK, "FAIL", f"ended: {ended}; {ended}: again")
    code, verdict, why = conclude({**result, "ended": "component missing"}, expected)
    assert (code, verdict) == (CANNOT_SAY, "NO VERDICT")
    assert "component missing" in why


def test_another_failure_is_not_this_one_and_one_of_several_engines_is_enough() -> None:
    entry = make_entry(make_cell(case=make_case(limits={"sum_abs": 1.0})), 5.0)
    expected = make_expected(entry, read_calibration(), {})
    values = {"count": 12, "nan_unexpected": 0}

    def of(**own: float) -> dict[str, Any]:
        outputs = {"y": {**values, **own}}
        return {"measurements": {"outputs": outputs, "scalars": {}, "signatures": {}, "remark": ""}}

    right, wrong, other = of(sum_abs=0.5), of(sum_abs=7.0), of(sum_abs=0.5, nan_unexpected=3)
    ran = {"ended": "ran", "detail": ""}
    assert conclude({**ran, **wrong}, expected)[:2] == (CAME_BACK, "FAIL")
    assert conclude({**ran, **right}, expected)[:2] == (NOT_THERE, "PASS")
    assert conclude({**ran, **wrong, "builds": [right, wrong]}, expected)[:2] == (CAME_BACK, "FLAKY")
    code, _, why = conclude({**ran, **other}, expected)
    assert code == CANNOT_SAY
    assert "another failure than the recorded one (own limit: sum_abs)" in why


def test_a_cell_without_a_record_has_no_expectation() -> None:
    entry = replace(make_entry(), record=None)
    with pytest.raises(ValueError, match="has no record"):
        make_expected(entry, read_calibration(), {})
