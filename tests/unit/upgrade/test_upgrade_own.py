"""The user's own model and code in a decision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from upgrades import FLOOR, NEW, OLD, answer, ask, entries_for, own

from trtmatrix.api.types import ApiChange, ApiSection, ApiUse, Certainty, ChangeKind
from trtmatrix.judge.differences import Difference
from trtmatrix.judge.noise import HIDES, NO_FLOOR, NO_FLOOR_OF
from trtmatrix.model.outcomes import CheckOutcome, Integers
from trtmatrix.model.static_check import NodeAt, NodeGroup, StaticCheck
from trtmatrix.suite.repros import Effect
from trtmatrix.upgrade.decide import decide
from trtmatrix.upgrade.model_section import with_nodes
from trtmatrix.upgrade.question import Own
from trtmatrix.upgrade.render import render_screen, render_text
from trtmatrix.upgrade.report import Decision, SampleFigure, Upgrade, Weight

PASSED = CheckOutcome(script="accept.py", passed=True, figure=0.5, label="IoU")
REFUSED = CheckOutcome(script="accept.py", passed=False)
RAISED = CheckOutcome(script="accept.py", passed=None, error="KeyError: 'y'")


@pytest.mark.parametrize(
    ("mine", "decision"),
    [
        (own("good3", "good3"), Decision.GO), (own("unknown", "good3"), Decision.GO),
        (own("good3", "unknown"), Decision.NOT_ENOUGH), (own("good3", "void"), Decision.NOT_ENOUGH),
        (own("good3", "bad3"), Decision.DONT), (own("unknown", "unsupported by this version"), Decision.DONT),
        (own("bad3", "bad3"), Decision.NOT_ENOUGH), (own("crashed", "time-out"), Decision.DONT),
        (own("missing", "missing"), Decision.NOT_ENOUGH), (own("good3", "built"), Decision.NOT_ENOUGH),
        (own("good3", "good3", NO_FLOOR), Decision.GO),  # its outputs are the reference's own numbers
        (own("good3", "good3", NO_FLOOR, PASSED), Decision.GO),
        (own("good3", "good3", NO_FLOOR, RAISED), Decision.NOT_ENOUGH),
        (own("good3", "good3", FLOOR, REFUSED), Decision.DONT),
        (own("good3", "good3", FLOOR, RAISED), Decision.NOT_ENOUGH),
        (own("void", "void", NO_FLOOR, PASSED), Decision.NOT_ENOUGH),  # one build
    ],
)  # fmt: skip
def test_the_model_speaks_for_itself(mine: Own, decision: Decision) -> None:
    assert answer(mine).decision is decision


def difference(output: str, max_abs: float, *, integers: bool) -> Difference:
    return Difference(
        output=output, max_abs=max_abs, mean_abs=max_abs, rel_l2=max_abs, worst_sample=0, samples=1,
        integers=integers,
    )  # fmt: skip


SAME, OTHER = difference("idx", 0.0, integers=True), difference("idx", 1.0, integers=True)
FLOATS = difference("y", 0.0, integers=False)


TIES = Integers(output="idx", version=NEW, count=9, differ=3, beyond=0)
WORSE, BEFORE = replace(TIES, beyond=1), replace(TIES, version=OLD)
FIGURE = SampleFigure(
    output="y", version=NEW, unit="floors", median=0, p90=0, worst=3.0, worst_sample=0, samples=1
)
NEAR, FAR, RELATIVE = FIGURE, replace(FIGURE, worst=5.0), replace(FIGURE, worst=0.1, unit="relative L2 error")
HIDDEN = f"the noise floor 1 is above 0.1: {HIDES}"
BOTH, GO, ENOUGH = (SAME, FLOATS), Decision.GO, Decision.NOT_ENOUGH


@pytest.mark.parametrize(
    ("differences", "figure", "reason", "integers", "decision"),
    [
        # what is equal at both versions: the move does not change it
        ((SAME,), None, NO_FLOOR, (), GO), ((OTHER,), None, NO_FLOOR, (), ENOUGH),
        ((FLOATS,), None, NO_FLOOR, (), ENOUGH), (BOTH, None, NO_FLOOR_OF, (), ENOUGH),
        (BOTH, NEAR, NO_FLOOR_OF, (), GO), (BOTH, FAR, NO_FLOOR_OF, (), ENOUGH),
        (BOTH, NEAR, "the noise floor 0.5 is above 0.1", (), ENOUGH),
        # a tie's floor is as large as the integer and hides all: what noise explains is found without it
        (BOTH, NEAR, HIDDEN, (TIES,), GO), (BOTH, FAR, HIDDEN, (TIES,), ENOUGH),
        (BOTH, RELATIVE, HIDDEN, (TIES,), ENOUGH),  # it is the floor of y that hides
        (BOTH, NEAR, HIDDEN, (WORSE, replace(WORSE, version=OLD)), ENOUGH),
        (BOTH, NEAR, HIDDEN, (WORSE, BEFORE), Decision.DONT),
        (BOTH, NEAR, HIDDEN, (replace(TIES, beyond=2), BEFORE), Decision.DONT),
        (BOTH, NEAR, HIDDEN, (), ENOUGH),  # nobody has held them against the reference
    ],
)  # fmt: skip
def test_integers_are_evidence_where_they_are_equal_or_ties(
    differences: Any, figure: SampleFigure | None, reason: str, integers: Any, decision: Decision
) -> None:
    """Of a model that says nothing for a reason."""
    mine = own("void", "void", differences=differences)
    (line,) = mine.section.cases
    line = replace(line, after=replace(line.after, reason=reason, builds=3))
    parts = {"cases": (line,), "samples": (figure,) if figure else (), "integers": integers}
    upgrade = answer(replace(mine, section=replace(mine.section, **parts)))
    assert upgrade.decision is decision
    told = any("idx: equal at both versions" in reason.text for reason in upgrade.reasons)
    assert told is (decision is GO and not integers)


@pytest.mark.parametrize(
    ("finding", "decision"),
    [
        ("unknown", Decision.GO), ("good1", Decision.GO), ("said good", Decision.GO),
        ("bad1", Decision.DONT), ("said bad", Decision.DONT),
    ],
)  # fmt: skip
def test_beside_a_model_only_what_is_bad_of_the_findings_counts(finding: str, decision: Decision) -> None:
    assert answer(own("good3", "good3"), finding).decision is decision
    assert answer(own("good3", "unknown"), "good3").decision is Decision.NOT_ENOUGH, "they never speak for it"
    assert answer(own("bad3", "bad3"), "good3").decision is Decision.NOT_ENOUGH


def change(kind: ChangeKind) -> ApiChange:
    return ApiChange(name="ICudaEngine.num_bindings", kind=kind, replacement="num_io_tensors", source="notes")


def use(kind: ChangeKind, certainty: Certainty, line: int = 7) -> ApiUse:
    return ApiUse(file="run.py", line=line, change=change(kind), certainty=certainty, text="e.num_bindings")


SEEN = ApiSection(code=("src",), files=3)
GONE = use(ChangeKind.REMOVED, Certainty.SURE)


@pytest.mark.parametrize(
    ("section", "decision"),
    [
        (SEEN, Decision.GO), (replace(SEEN, unread=(("a.py", "line 3"),)), Decision.GO),
        (replace(SEEN, uses=(use(ChangeKind.REMOVED, Certainty.POSSIBLE),)), Decision.GO),
        (replace(SEEN, uses=(use(ChangeKind.DEPRECATED, Certainty.SURE),)), Decision.GO),
        (replace(SEEN, uses=(GONE,)), Decision.GO_WITH_WORKAROUNDS),
        (ApiSection(code=("src",)), Decision.NOT_ENOUGH),
        (ApiSection(lacking="no surface of 9.3.0"), Decision.NOT_ENOUGH),
    ],
)  # fmt: skip
def test_code_that_uses_what_is_gone_must_be_changed_first(section: ApiSection, decision: Decision) -> None:
    entries = entries_for({"sdpa": "good3"}, {"sdpa": "good3"})
    upgrade = decide(ask(entries, api=section, code=(Path("src"),)))
    assert upgrade.decision is decision
    assert not any(spot.startswith("Your own code") for spot in upgrade.not_looked_at)
    first = "change your code first (exit code 11), the first line in run.py:7"
    assert (upgrade.exit_code == 11) is (first in told(upgrade)) is (GONE in section.uses)
    assert (upgrade.summary == "Go, once your code is changed.") is (GONE in section.uses)


def test_a_model_that_ran_and_says_nothing_wants_an_acceptance_not_another_run() -> None:
    (lacking, *_) = answer(own("void", "void")).lacking
    assert lacking.command.endswith("--to 10.8.0 --check accept.py")
    (lacking, *_) = answer(own("good3", "unknown")).lacking
    assert lacking.command.startswith("nox -s upgrade -- --from 10.7.0 --to 10.8.0")


SOURCE = "https://github.com/NVIDIA/TensorRT/issues/3447"


def at(version: str, known: str = "reported", depends: str = "") -> NodeAt:
    return NodeAt(version=version, effect=Effect.WRONG, known=known, source=SOURCE, depends=depends)


def looked_at(mine: Own, *found: NodeAt) -> Own:
    """The same model, of whose two Mul this is known."""
    group = NodeGroup(
        repro="transpose-constant", upstream="NVIDIA/TensorRT#3447", operator="Mul", nodes=("/a", "/b"),
        what="a constant factor", instead="leave the Transposes out", at=found,
    )  # fmt: skip
    check = StaticCheck(
        model="my.onnx", opset=17, nodes=9, versions=(OLD, NEW), rules=24, silent=(),
        groups=(group,) if found else (),
    )  # fmt: skip
    return Own(section=with_nodes(mine.section, check, OLD, NEW), entries=mine.entries)


def told(upgrade: Upgrade) -> str:
    return " ".join(render_text(upgrade).split())


UNSEEN, GOOD = own("good3", "unknown"), own("good3", "good3")


@pytest.mark.parametrize(
    ("found", "weight", "words"),
    [
        ((at(NEW),), Weight.AGAINST, f"new at {NEW}"),
        ((at(OLD, "assumed"), at(NEW, "measured")), Weight.AGAINST, f"new at {NEW}"),
        ((at(OLD), at(NEW, "read")), Weight.NOTE, f"broken in both {OLD} and {NEW}"),
        ((at(OLD),), Weight.NOTE, f"nothing known at {NEW}"),
        ((at(NEW, "assumed"),), Weight.NOTE, f"feared at {NEW}"),
        ((at(NEW, depends="a value is beyond 256"),), Weight.NOTE, f"feared at {NEW}"),
    ],
)
def test_what_becomes_known_to_fail_counts(found: tuple[NodeAt, ...], weight: Weight, words: str) -> None:
    upgrade = answer(looked_at(UNSEEN, *found))
    assert upgrade.decision is (Decision.DONT if weight is Weight.AGAINST else Decision.NOT_ENOUGH)
    (reason,) = (reason for reason in upgrade.reasons if "Mul ×2 (/a, /b)" in reason.text)
    assert (reason.topic, reason.weight) == ("your model", weight)
    assert words in reason.text
    assert "instead: leave the Transposes out" in reason.text
    assert [source.title for source in reason.sources] == ["NVIDIA/TensorRT#3447"]


def test_a_model_that_ran_rightly_is_the_better_witness() -> None:
    upgrade = answer(looked_at(GOOD, at(NEW)))
    assert upgrade.decision is Decision.GO
    assert [r.weight for r in upgrade.reasons if "Mul ×2" in r.text] == [Weight.NOTE]


def test_the_report_and_its_screen_say_so() -> None:
    upgrade = answer(looked_at(UNSEEN, at(NEW)))
    assert f"nodes: 9 nodes held against 24 rules: {OLD}: nothing known against it" in told(upgrade)
    assert "against Mul ×2 (/a, /b): a constant" in told(upgrade)
    screen = render_screen(upgrade, 80)
    assert "against     your model: Mul ×2 (/a, /b): a constant factor; new at" in screen
    both = answer(looked_at(UNSEEN, at(OLD), at(NEW)))
    screen = " ".join(render_screen(both, 80).split())
    assert f"your model: Mul ×2 (/a, /b): a constant factor; broken in both {OLD} and {NEW}" in screen
    assert f"{OLD}, {NEW}: nothing known against it" in told(answer(looked_at(UNSEEN)))
