"""The user's own model and code in a decision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from upgrades import FLOOR, NEW, answer, ask, entries_for, own

from trtmatrix.api.types import ApiChange, ApiSection, ApiUse, Certainty, ChangeKind
from trtmatrix.judge.differences import Difference
from trtmatrix.judge.noise import NO_FLOOR, NO_FLOOR_OF
from trtmatrix.model.outcomes import CheckOutcome
from trtmatrix.upgrade.decide import decide
from trtmatrix.upgrade.question import Own
from trtmatrix.upgrade.report import Decision, SampleFigure

PASSED = CheckOutcome(script="accept.py", passed=True, figure=0.5, label="IoU")
REFUSED = CheckOutcome(script="accept.py", passed=False)
RAISED = CheckOutcome(script="accept.py", passed=None, error="KeyError: 'y'")


@pytest.mark.parametrize(
    ("mine", "decision"),
    [
        (own("good3", "good3"), Decision.GO),
        (own("unknown", "good3"), Decision.GO),
        (own("good3", "unknown"), Decision.NOT_ENOUGH),
        (own("good3", "void"), Decision.NOT_ENOUGH),
        (own("good3", "bad3"), Decision.DONT),
        (own("unknown", "unsupported by this version"), Decision.DONT),
        (own("bad3", "bad3"), Decision.NOT_ENOUGH),
        (own("good3", "good3", NO_FLOOR), Decision.GO),  # its outputs are the reference's own numbers
        (own("good3", "good3", NO_FLOOR, PASSED), Decision.GO),
        (own("good3", "good3", NO_FLOOR, RAISED), Decision.NOT_ENOUGH),
        (own("good3", "good3", FLOOR, REFUSED), Decision.DONT),
        (own("good3", "good3", FLOOR, RAISED), Decision.NOT_ENOUGH),
        (own("void", "void", NO_FLOOR, PASSED), Decision.NOT_ENOUGH),  # one build
    ],
)
def test_the_model_speaks_for_itself(mine: Own, decision: Decision) -> None:
    assert answer(mine).decision is decision


def difference(output: str, max_abs: float, *, integers: bool) -> Difference:
    return Difference(
        output=output, max_abs=max_abs, mean_abs=max_abs, rel_l2=max_abs, worst_sample=0, samples=1,
        integers=integers,
    )  # fmt: skip


SAME, OTHER = difference("idx", 0.0, integers=True), difference("idx", 1.0, integers=True)
FLOATS = difference("y", 0.0, integers=False)


@pytest.mark.parametrize(
    ("differences", "floors", "reason", "decision"),
    [
        ((SAME,), None, NO_FLOOR, Decision.GO),
        ((OTHER,), None, NO_FLOOR, Decision.NOT_ENOUGH),
        ((FLOATS,), None, NO_FLOOR, Decision.NOT_ENOUGH),
        ((SAME, FLOATS), None, NO_FLOOR_OF, Decision.NOT_ENOUGH),
        ((SAME, FLOATS), 3.0, NO_FLOOR_OF, Decision.GO),
        ((SAME, FLOATS), 5.0, NO_FLOOR_OF, Decision.NOT_ENOUGH),
        ((SAME, FLOATS), 3.0, "the noise floor 0.5 is above 0.1", Decision.NOT_ENOUGH),
    ],
)
def test_integers_that_are_equal_at_both_versions_are_evidence(
    differences: tuple[Difference, ...], floors: float | None, reason: str, decision: Decision
) -> None:
    """What says nothing against the reference says this much: the move does not change it."""
    mine = own("void", "void", differences=differences)
    line = replace(mine.section.cases[0], after=replace(mine.section.cases[0].after, reason=reason, builds=3))
    figure = SampleFigure(
        output="y", version=NEW, unit="floors", median=0, p90=0, worst=floors or 0, worst_sample=0, samples=1
    )
    section = replace(mine.section, cases=(line,), samples=(figure,) if floors else ())
    upgrade = answer(replace(mine, section=section))
    assert upgrade.decision is decision
    told = any("idx: equal at both versions" in reason.text for reason in upgrade.reasons)
    assert told is (decision is Decision.GO)


@pytest.mark.parametrize(
    ("finding", "decision"),
    [
        ("unknown", Decision.GO),
        ("good1", Decision.GO),
        ("said good", Decision.GO),
        ("bad1", Decision.DONT),
        ("said bad", Decision.DONT),
    ],
)
def test_beside_a_model_what_is_unknown_of_the_findings_is_a_note_and_what_is_bad_counts(
    finding: str, decision: Decision
) -> None:
    assert answer(own("good3", "good3"), finding).decision is decision


def test_the_findings_alone_never_speak_for_a_model() -> None:
    assert answer(own("good3", "unknown"), "good3").decision is Decision.NOT_ENOUGH
    assert answer(own("bad3", "bad3"), "good3").decision is Decision.NOT_ENOUGH


def change(kind: ChangeKind) -> ApiChange:
    return ApiChange(name="ICudaEngine.num_bindings", kind=kind, replacement="num_io_tensors", source="notes")


def use(kind: ChangeKind, certainty: Certainty, line: int = 7) -> ApiUse:
    return ApiUse(file="run.py", line=line, change=change(kind), certainty=certainty, text="e.num_bindings")


@pytest.mark.parametrize(
    ("section", "decision"),
    [
        (ApiSection(code=("src",), files=3), Decision.GO),
        (
            ApiSection(code=("src",), files=3, uses=(use(ChangeKind.REMOVED, Certainty.POSSIBLE),)),
            Decision.GO,
        ),
        (ApiSection(code=("src",), files=3, uses=(use(ChangeKind.DEPRECATED, Certainty.SURE),)), Decision.GO),
        (
            ApiSection(code=("src",), files=3, uses=(use(ChangeKind.REMOVED, Certainty.SURE),)),
            Decision.GO_WITH_WORKAROUNDS,
        ),
        (ApiSection(code=("src",), files=3, unread=(("a.py", "line 3"),)), Decision.GO),
        (ApiSection(code=("src",)), Decision.NOT_ENOUGH),
        (ApiSection(lacking="no surface of 9.3.0"), Decision.NOT_ENOUGH),
    ],
)
def test_code_that_uses_what_is_gone_must_be_changed_first(section: ApiSection, decision: Decision) -> None:
    entries = entries_for({"sdpa": "good3"}, {"sdpa": "good3"})
    upgrade = decide(ask(entries, api=section, code=(Path("src"),)))
    assert upgrade.decision is decision
    assert not any(spot.startswith("Your own code") for spot in upgrade.not_looked_at)


def test_a_model_that_ran_and_says_nothing_wants_an_acceptance_not_another_run() -> None:
    (lacking, *_) = answer(own("void", "void")).lacking
    assert lacking.command.endswith("--to 10.8.0 --check accept.py")
    (lacking, *_) = answer(own("good3", "unknown")).lacking
    assert lacking.command.startswith("nox -s upgrade -- --from 10.7.0 --to 10.8.0")
