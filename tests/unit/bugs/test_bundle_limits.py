"""The limits that an archive's script is given say what the judge says; constants are written as they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from judge.test_numbers import FLOOR, make_build, make_noise, make_subject

from trtmatrix.bugs.script import Limits, limits_of
from trtmatrix.judge.numbers import judge_build
from trtmatrix.suite.model import Verdict

CODES = {Verdict.FAIL: 1, Verdict.PASS: 0, Verdict.INVALID: 125}


def said(limits: Limits, floors: float, c: float) -> int:
    """What the script makes of an error in noise floors and of a known defect's share."""
    words = set()
    for key, (right, wrong) in limits.items():
        off = abs(c) if " in " in key else floors * FLOOR
        words.add("right" if off <= right else "unclear" if off < wrong else "WRONG")
    return 1 if "WRONG" in words else 125 if "unclear" in words else 0


@given(
    st.sampled_from([0.5, 3.9, 4.1, 7.9, 8.1, 30.0]) | st.floats(0, 60),
    st.sampled_from([0.0, 0.019, 0.021, 0.039, 0.041, 1.0, -1.0]) | st.floats(-2, 2),
    st.sampled_from([2.0, 8.0, 100.0]), st.sampled_from([0.001, 0.2, 5.0]),
)  # fmt: skip
def test_they_say_what_the_judge_says(floors: float, c: float, size: float, bound: float) -> None:
    subject = make_subject(make_noise(size, bound=bound))
    outcome = judge_build(make_build(floors, c, 0.5), subject)
    code = said(limits_of(subject, {"y": "y"}), floors, c)
    if code != CODES[outcome.verdict]:  # what no GPU has shown yet passes the judge alone
        assert (code, outcome.verdict) == (125, Verdict.PASS)
        assert outcome.reason.startswith("fits tf32-truncated")


def test_with_a_tolerance_of_the_users_own_it_alone_decides() -> None:
    subject = make_subject(tolerance={"atol": 1e-3, "rtol": 0.0}, limits={"beyond": 0.0})
    assert limits_of(subject, {"y": "y"}) == {"y": (1.0, 1.0)}
