"""What holds of a decision whatever the evidence: bad news never helps, and nothing comes of nothing."""

from __future__ import annotations

from collections.abc import Mapping

from builders import make_case, make_repro
from hypothesis import assume, given
from hypothesis import strategies as st
from shown import PATIENT
from upgrades import ask, entries_for

from trtmatrix.suite.repros import Workaround
from trtmatrix.upgrade.decide import decide
from trtmatrix.upgrade.report import Decision

REPROS = tuple(
    make_repro(
        make_case("a"), make_case("b"), make_case("help"), id=name,
        workarounds=(Workaround(what="the other way", case="help"),),
    )
    for name in ("one", "two")
)  # fmt: skip
CASES = ("a", "b", "help")
STATES = st.sampled_from(
    (
        "good3", "good1", "bad3", "bad1", "flaky", "said good", "said bad", "missing", "void", "unknown",
        "build failed", "unsupported by this version", "time-out", "interrupted", "crashed", "built",
    )
)  # fmt: skip
KNOWLEDGE = st.fixed_dictionaries(dict.fromkeys(CASES, STATES))
BOTH = st.lists(KNOWLEDGE, min_size=len(REPROS), max_size=len(REPROS))
BAD = st.sampled_from(("bad3", "bad1", "flaky", "said bad"))
CAN_BE_WRONG = {"good3", "good1", "said good", "unknown", "interrupted", "built"}
"""Before bad news comes: what is missing or says nothing is no news at all when it speaks."""

Known = list[dict[str, str]]


def decided(before: Known, after: Known) -> Decision:
    entries = [e for i, repro in enumerate(REPROS) for e in entries_for(before[i], after[i], repro)]
    return decide(ask(entries)).decision


@PATIENT
@given(BOTH, BOTH, st.data())
def test_bad_news_at_the_target_never_makes_the_answer_better(
    before: Known, after: Known, data: st.DataObject
) -> None:
    """From don't nothing leads away, to go nothing leads; what was lacking may become a work-around alone."""
    which = data.draw(st.integers(0, len(REPROS) - 1))
    case = data.draw(st.sampled_from(CASES))
    assume(after[which][case] in CAN_BE_WRONG)
    was = decided(before, after)
    worse = [dict(known) for known in after]
    worse[which][case] = data.draw(BAD)
    now = decided(before, worse)
    allowed: Mapping[Decision, set[Decision]] = {
        Decision.GO: set(Decision),
        Decision.GO_WITH_WORKAROUNDS: set(Decision) - {Decision.GO},
        Decision.NOT_ENOUGH: set(Decision) - {Decision.GO},
        Decision.DONT: {Decision.DONT},
    }
    assert now in allowed[was]
