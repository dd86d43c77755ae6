"""The answer from small sets of evidence, with a model and code of one's own."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import H200, make_case, make_expectation, make_repro, make_version
from hypothesis import assume, given
from hypothesis import strategies as st
from judge.test_published import entries as published
from shown import PATIENT
from upgrades import FLOOR, NEW, OLD, PLAIN, answer, ask, entries_for, entry, own

from trtmatrix.api.types import ApiChange, ApiSection, ApiUse, ChangeKind
from trtmatrix.judge.differences import Difference
from trtmatrix.judge.noise import HIDES, NO_FLOOR, NO_FLOOR_OF
from trtmatrix.model.outcomes import CheckOutcome, Integers
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.model.static_check import NodeAt, NodeGroup, StaticCheck
from trtmatrix.plan.context import ProjectOptions
from trtmatrix.suite.model import Basis, Cause, Evidence, Verdict
from trtmatrix.suite.repros import Effect, Workaround
from trtmatrix.upgrade.decide import ASKED, EXPLAINED, JUDGED, MENDED, OTHERS, decide
from trtmatrix.upgrade.document import render_markdown
from trtmatrix.upgrade.findings import Entries, Standing, make_findings, standing_of, weigh
from trtmatrix.upgrade.model_section import with_nodes
from trtmatrix.upgrade.question import NOT_RUN, Own
from trtmatrix.upgrade.report import Change, Decision, SampleFigure, Side, Upgrade, Weight
from trtmatrix.upgrade.screen import render_screen

CODES = dict(zip(Decision, (0, 10, 11, 12), strict=True))


def moved(before: dict[str, str], after: dict[str, str]) -> Upgrade:
    return decide(ask(entries_for(before, after)))


@pytest.mark.parametrize(
    ("before", "sdpa", "explicit", "decision"),
    [
        ("good3", "good3", "unknown", Decision.GO),
        ("good3", "good3", "bad3", Decision.GO),  # a work-around that was never seen right is no finding
        ("good3", "good1", "good3", Decision.NOT_ENOUGH),
        ("good3", "said good", "good3", Decision.NOT_ENOUGH),
        ("good3", "void", "good3", Decision.NOT_ENOUGH),
        ("good3", "bad1", "unknown", Decision.DONT),
        ("good3", "flaky", "unknown", Decision.DONT),
        ("good3", "build failed", "unknown", Decision.DONT),
        ("bad3", "bad3", "good3", Decision.NOT_ENOUGH),  # no worse, and nothing speaks for it
        ("good3", "bad3", "good3", Decision.GO_WITH_WORKAROUNDS),
        ("good3", "bad3", "good1", Decision.DONT),
        ("good3", "bad3", "bad3", Decision.DONT),
    ],
)
def test_one_finding(before: str, sdpa: str, explicit: str, decision: Decision) -> None:
    upgrade = moved({"sdpa": before}, {"sdpa": sdpa, "explicit": explicit})
    assert (upgrade.decision, upgrade.exit_code) == (decision, CODES[decision])
    assert upgrade.summary
    if decision is Decision.NOT_ENOUGH and any(r.weight is Weight.LACKING for r in upgrade.reasons):
        assert upgrade.lacking
        assert all(item.command for item in upgrade.lacking)


def test_a_work_around_that_is_lost_counts_against_the_move() -> None:
    upgrade = moved({"sdpa": "good3", "explicit": "good3"}, {"sdpa": "good3", "explicit": "bad3"})
    assert upgrade.decision is Decision.DONT
    (finding,) = upgrade.findings
    assert [line.case for line in finding.cases] == ["explicit", "sdpa"]


def test_a_measured_regression_with_a_work_around_is_told_beside_cases_that_nobody_tried() -> None:
    was, will = {"sdpa": "good3", "other": "good3"}, {"sdpa": "bad3", "explicit": "good3"}
    repro = make_repro(make_case("sdpa"), make_case("other"), make_case("explicit"))
    upgrade = decide(ask(entries_for(was, will, replace(repro, workarounds=PLAIN.workarounds))))
    assert upgrade.decision is Decision.GO_WITH_WORKAROUNDS
    (finding,) = upgrade.findings
    assert [(line.case, line.weight) for line in finding.cases] == [
        ("sdpa", Weight.WORKAROUND), ("other", Weight.LACKING),
    ]  # fmt: skip
    assert finding.why.startswith("sdpa ")


def test_a_work_around_helps_the_cases_alone_that_it_is_for() -> None:
    was, will = {"sdpa": "good3", "other": "good3"}, {"sdpa": "bad3", "other": "bad3", "explicit": "good3"}
    ways = (Workaround(what="write it out", case="explicit", cases=("sd*",)),)
    repro = make_repro(make_case("sdpa"), make_case("other"), make_case("explicit"), workarounds=ways)
    upgrade = decide(ask(entries_for(was, will, repro)))
    assert upgrade.decision is Decision.DONT
    (finding,) = upgrade.findings
    other, sdpa = finding.cases
    assert (other.case, other.weight) == ("other", Weight.AGAINST)
    assert other.why.endswith("; no work-around for it has passed")
    assert (sdpa.case, sdpa.weight) == ("sdpa", Weight.WORKAROUND)
    assert sdpa.why.endswith("; what helps: write it out (explicit passed)")
    assert finding.why.endswith("; no work-around for other has passed")


def test_what_helps_against_the_lost_layout_is_what_ran_in_the_same_form() -> None:
    """By the published records; what ran in another type or operator alone says so."""
    mine = [entry for entry in published() if entry.cell.repro.id == "transpose-constant"]
    (finding,) = make_findings(Entries(mine), "8.5.3.1", "8.6.0")
    helps = {
        line.case: line.why.partition("what helps: ")[2]
        for line in finding.cases if line.weight is Weight.WORKAROUND
    }  # fmt: skip
    assert len(helps) == 19
    assert all(helps.values())
    assert "control-inputs-int32-102" in helps["constant-int32-210"]
    assert "control-inputs-float-102" in helps["constant-float-210"]
    for case in ("constant-half-102", "add-float-102", "subtract-float-210"):
        assert "an input, shown for Mul in float32 (control-inputs-float-102" in helps[case]
    assert "onehot-input" in helps["onehot-identity"]
    assert not re.search("Transposes|control-inputs", helps["onehot-identity"])
    assert "control-inputs-int32-102 passed" in finding.why


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("slow", "slow", "1 case right but not fused at both"),
        ("said bad", "said bad", "1 case right but not fused at both, 1 reported not to be fused"),
        ("slow", "good3", "1 case now fused"), ("good3", "slow", "; 1 case right but not fused any more;"),
        ("unknown", "slow", "; 1 case right but not fused;"), ("slow", "bad3", "; 1 case worse;"),
        ("unsupported by this version", "good3", "1 case new (not supported at 10.7.0)"),
        ("unsupported by this version", "bad3", "1 case bad (not supported at 10.7.0)"),
        ("bad3", "good3", "1 case fixed"),
    ],
)  # fmt: skip
def test_a_finding_says_what_is_slow_and_what_is_new(before: str, after: str, words: str) -> None:
    remarks = frozenset({"fused"} if before == "said bad" else ())
    repro = replace(PLAIN, cases=(make_case("sdpa", remarks=remarks), *PLAIN.cases[1:]))

    def known(what: str) -> str:
        return "bad3" if what == "slow" else what

    entries = entries_for({"sdpa": known(before)}, {"sdpa": known(after)}, repro)
    for place, what in enumerate((before, after)):
        outcome = entries[place].outcome
        if what == "slow" and outcome is not None:
            outcome = replace(outcome, reason="right, but plain, not fused")
            entries[place] = replace(entries[place], outcome=outcome)
    (finding,) = decide(ask(entries)).findings
    assert words in f"{finding.why};"
    assert ("wrong" in finding.cases[0].why) is (after == "bad3")


def test_what_speaks_for_the_move_is_said_first() -> None:
    cases = {"sdpa": "good3", "other": "bad3"}
    upgrade = decide(ask(entries_for(cases, cases, make_repro(make_case("sdpa"), make_case("other")))))
    assert [r.text for r in upgrade.reasons if r.weight is Weight.FOR] == ["1 case right, 1 bad at both"]


def test_the_screen_has_every_work_around_for_what_got_worse() -> None:
    ways = tuple(
        Workaround(what=f"{what} the constant in the graph, which was shown for Mul in float32", case=case)
        for what, case in (("leave out", "explicit"), ("make an input of", "other"))
    )
    repro = make_repro(make_case("sdpa"), make_case("explicit"), make_case("other"), workarounds=ways)
    after = {"sdpa": "bad3", "explicit": "good3", "other": "good3"}
    screen = render_screen(decide(ask(entries_for({"sdpa": "good3"}, after, repro))), 80)
    (why,) = re.findall("what helps: (.*)\\[", " ".join(screen.split()))
    assert why == f"{ways[0].what} (explicit passed); or {ways[1].what} (other passed) "


@pytest.mark.parametrize("mine", [(), (own("good3", "good3"),)])
def test_early_access_is_said_beside_the_answer(mine: tuple[Own, ...]) -> None:
    after = replace(make_version(NEW), note="early access, from PyPI")
    models = (Path("models.yaml"),) if mine else ()
    entries = entries_for({"sdpa": "good3"}, {"sdpa": "good3"})
    question = ask(entries, after=after, owns=mine, models=models)
    assert decide(question).summary.endswith(f" {NEW} is early access.")


def test_a_control_that_came_out_wrong_takes_the_words_away() -> None:
    right = {"sdpa": "good3", "control": "bad3"}
    assert moved(right, right).decision is Decision.GO
    wrong = moved(right, {**right, "control": "good3"})
    assert wrong.decision is Decision.NOT_ENOUGH
    (line,) = wrong.findings[0].cases
    assert (line.change, "control" in line.why) == (Change.UNKNOWN, True)
    assert "--rerun" in wrong.lacking[0].command
    assert moved(right, {"sdpa": "bad3", "control": "good3"}).decision is Decision.NOT_ENOUGH


def test_what_a_repro_assumes_is_no_evidence_and_is_told() -> None:
    fear = make_expectation(Verdict.FAIL, f"=={NEW}", "sdpa", basis=Basis.ASSUMED)
    repro = make_repro(make_case("sdpa"), expectations=(fear,))
    upgrade = decide(ask(entries_for({"sdpa": "good3"}, {}, repro)))
    assert upgrade.decision is Decision.NOT_ENOUGH
    assert "expected to fail: sdpa-scale" in upgrade.summary
    assert any(reason.known == "assumed" for reason in upgrade.reasons)
    hope = replace(fear, verdict=Verdict.PASS)
    hoped = decide(ask(entries_for({}, {}, make_repro(make_case("sdpa"), expectations=(hope,)))))
    assert "feared" not in hoped.summary


def test_a_report_of_no_version_in_particular_is_no_evidence_of_this_one() -> None:
    everywhere = make_expectation(Verdict.PASS, "", "sdpa", basis=Basis.MEASURED, source="", on="NVIDIA H200")
    repro = make_repro(make_case("sdpa"), expectations=(everywhere,))
    entries = [entry(repro, "sdpa", version, "said good") for version in (OLD, NEW)]
    (line,) = decide(ask(entries)).findings[0].cases
    assert (line.after.evidence, line.change) == (Evidence.NONE, Change.UNKNOWN)


def commands(was: dict[str, str], will: dict[str, str], **question: Any) -> list[str]:
    return [item.command for item in decide(ask(entries_for(was, will), **question)).lacking]


def test_commands_for_what_is_lacking() -> None:
    assert commands({"sdpa": "good3"}, {"sdpa": "good1"}) == [
        "nox -s matrix -- --trt 10.8.0 --gpu H200 --repro sdpa-scale --rebuilds 3"
    ], "a pass of one build is to be seen again at the target alone"
    project = ProjectOptions(matrix=Path("my matrix.yaml"))
    first, *_ = commands({}, {}, gpu_word="RTX 6000 Ada", project=project)
    assert first == (
        "nox -s matrix -- --trt 10.7.0,10.8.0 --gpu 'RTX 6000 Ada' --repro sdpa-scale --rebuilds 3 "
        "--matrix 'my matrix.yaml'"
    )
    compute = {"min": "9.5", "max": "12.0", "known": "read", "source": "notes"}
    assert commands({}, {}, after=make_version(NEW, compute=compute)) == [], "this GPU is not supported there"


COMMAND = "nox -s matrix -- --trt tensorrt-rtx-1.4,tensorrt-rtx-1.7 --repro sdpa-scale"


@pytest.mark.parametrize(("what", "lacking"), [("built", [""]), ("unknown", ["", COMMAND])])
def test_built_is_no_pass_of_another_product_and_no_command_helps(what: str, lacking: list[str]) -> None:
    repro, names = make_repro(make_case("sdpa")), ("tensorrt-rtx-1.4", "tensorrt-rtx-1.7")
    entries = [entry(repro, "sdpa", name, what, replace(H200, slug="cpu")) for name in names]
    upgrade = decide(ask(entries, *names, gpu_word=""))
    assert upgrade.decision is Decision.NOT_ENOUGH
    assert [item.command for item in upgrade.lacking] == lacking


# The table behind a decision: every standing before against every standing after, written out.
CHANGES = {
    "R": Change.REGRESSED, "N": Change.BAD_AFTER, "B": Change.UNCHANGED_BAD, "F": Change.FIXED,
    "G": Change.UNCHANGED_GOOD, "?": Change.UNKNOWN, "-": Change.SAYS_NOTHING,
}  # fmt: skip
WEIGHTS = {"!": Weight.AGAINST, "?": Weight.LACKING, "+": Weight.FOR, ".": Weight.NOTE}

# Columns: before. Rows: after. Each cell: the change, then the weight.
TABLE = """
            GOOD FEW SAID_GOOD BAD SAID_BAD BROKEN UNSUPPORTED BUILT VOID DOUBTED ABSENT UNKNOWN
GOOD        G+   G+  G+        F+  F+       F+     F+          G+    G+   G+      G+     G+
FEW         G?   G?  G?        F?  F?       F?     F?          G?    G?   G?      G?     G?
SAID_GOOD   G?   G?  G?        F?  F?       F?     F?          G?    G?   G?      G?     G?
BAD         R!   R!  R!        B.  B.       B.     B.          N!    N!   N!      N!     N!
SAID_BAD    R!   R!  R!        B.  B.       B.     B.          N!    N!   N!      N!     N!
BROKEN      R!   R!  R!        B.  B.       B.     B.          N!    N!   N!      -.     ??
UNSUPPORTED R!   R!  R!        B.  B.       -.     -.          N!    N!   N!      -.     ??
BUILT       ??   ??  ??        ??  ??       ??     ??          ??    ??   ??      -.     ??
VOID        -.   -.  -.        -.  -.       -.     -.          -.    -.   -.      -.     -.
DOUBTED     ??   ??  ??        ??  ??       ??     ??          ??    ??   ??      -.     ??
ABSENT      -.   -.  -.        -.  -.       -.     -.          -.    -.   -.      -.     -.
UNKNOWN     ??   ??  ??        ??  ??       ??     ??          ??    ??   ??      -.     ??
"""


def rows() -> list[tuple[Standing, Standing, Change, Weight]]:
    head, *lines = [line.split() for line in TABLE.strip().splitlines()]
    return [
        (Standing[before], Standing[after], CHANGES[cell[0]], WEIGHTS[cell[1]])
        for after, *cells in lines
        for before, cell in zip(head, cells, strict=True)
    ]


def test_every_combination_has_its_change_and_weight() -> None:
    assert {row[:2] for row in rows()} == {(before, after) for before in Standing for after in Standing}
    assert [row for row in rows() if weigh(*row[:2]) != row[2:]] == []


SIDE = Side(version="10.8.0", verdict=Verdict.PASS, evidence=Evidence.MEASURED, builds=3)

CAUSES = {
    Cause.UNSUPPORTED_GPU: Standing.ABSENT, Cause.UNSUPPORTED_BY_VERSION: Standing.UNSUPPORTED,
    Cause.COMPONENT_MISSING: Standing.ABSENT, Cause.OUT_OF_GPU_MEMORY: Standing.BROKEN,
    Cause.TIME_OUT: Standing.BROKEN, Cause.BUILD_FAILED: Standing.BROKEN, Cause.CRASHED: Standing.BROKEN,
}  # fmt: skip


@pytest.mark.parametrize("cause", Cause)
def test_trouble_with_the_machinery_is_no_evidence(cause: Cause) -> None:
    side = replace(SIDE, verdict=Verdict.NO_VERDICT, cause=cause)
    assert standing_of(side) is CAUSES.get(cause, Standing.UNKNOWN)
    assert not (cause.is_machinery and cause in CAUSES)


# What holds of a decision whatever the evidence: bad news never helps, and nothing comes of nothing.
REPROS = tuple(
    make_repro(
        make_case("a"), make_case("b"), make_case("help"), id=name,
        workarounds=(Workaround(what="the other way", case="help"),),
    )
    for name in ("one", "two")
)  # fmt: skip
CASES = ("a", "b", "help")
STATES = st.sampled_from((
    "good3", "good1", "bad3", "bad1", "flaky", "said good", "said bad", "missing", "void", "unknown",
    "build failed", "unsupported by this version", "time-out", "interrupted", "crashed", "built",
))  # fmt: skip
KNOWLEDGE = st.fixed_dictionaries(dict.fromkeys(CASES, STATES))
KNOWN_OF_BOTH = st.lists(KNOWLEDGE, min_size=len(REPROS), max_size=len(REPROS))
BAD = st.sampled_from(("bad3", "bad1", "flaky", "said bad"))
CAN_BE_WRONG = {"good3", "good1", "said good", "unknown", "interrupted", "built"}
"""Before bad news comes: what is missing or says nothing is no news at all when it speaks."""

Known = list[dict[str, str]]


def decided(before: Known, after: Known) -> Decision:
    entries = [e for i, repro in enumerate(REPROS) for e in entries_for(before[i], after[i], repro)]
    return decide(ask(entries)).decision


@PATIENT
@given(KNOWN_OF_BOTH, KNOWN_OF_BOTH, st.data())
def test_bad_news_at_the_target_never_helps(before: Known, after: Known, data: st.DataObject) -> None:
    """From don't nothing leads away, to go nothing leads; what was lacking may become a work-around alone."""
    which = data.draw(st.integers(0, len(REPROS) - 1))
    case = data.draw(st.sampled_from(CASES))
    assume(after[which][case] in CAN_BE_WRONG)
    was = decided(before, after)
    worse = [dict(known) for known in after]
    worse[which][case] = data.draw(BAD)
    now = decided(before, worse)
    if was is Decision.DONT:
        assert now is Decision.DONT
    assert was is Decision.GO or now is not Decision.GO


# The user's own model and code in a decision.
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


def use(kind: ChangeKind, why: str = "", line: int = 7) -> ApiUse:
    return ApiUse(file="run.py", line=line, change=change(kind), why=why, text="e.num_bindings")


SEEN = ApiSection(code=("src",), files=3)
GONE = use(ChangeKind.REMOVED)


@pytest.mark.parametrize(
    ("section", "decision"),
    [
        (SEEN, Decision.GO), (replace(SEEN, unread=(("a.py", "line 3"),)), Decision.GO),
        (replace(SEEN, uses=(use(ChangeKind.REMOVED, "guarded"),)), Decision.GO),
        (replace(SEEN, uses=(use(ChangeKind.DEPRECATED),)), Decision.GO),
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


CHECKED, EXPLAIN = ModelOptions(check=Path("accept.py")), ModelOptions(model=Path("m.onnx"), explain=True)
NOT_CHECKED = replace(RAISED, error="accept.py was not run: at 10.8.0 none were kept")
AGAIN = "nox -s upgrade -- --from 10.7.0 --to 10.8.0"


@pytest.mark.parametrize(
    ("mine", "model", "what", "command"),
    [
        (own("void", "void"), ModelOptions(), JUDGED, f"{AGAIN} --check accept.py"),
        (own("good3", "unknown"), ModelOptions(), ASKED, AGAIN),
        (own("good3", "good1"), ModelOptions(), ASKED, AGAIN),  # another engine, not an acceptance
        (own("void", "void", check=RAISED), CHECKED, MENDED, f"{AGAIN} --check accept.py"),
        (own("void", "void", check=RAISED), ModelOptions(), MENDED, AGAIN),  # a list of models names it
        (own("void", "void", check=NOT_CHECKED), CHECKED, ASKED, f"{AGAIN} --check accept.py"),
        (own("built", "built"), ModelOptions(), NOT_RUN, ""),
        (own("bad3", "bad3"), ModelOptions(), EXPLAINED, f"{AGAIN} --explain"),
        (own("good3", "bad3"), ModelOptions(), EXPLAINED, f"{AGAIN} --explain"),
        (own("bad3", "bad3"), EXPLAIN, OTHERS, "nox -s matrix -- --model m.onnx --gpu H200"),
        (own("good3", "crashed"), EXPLAIN, OTHERS, "nox -s matrix -- --model m.onnx --gpu H200"),
    ],
)
def test_what_to_do_next_about_a_model(mine: Own, model: ModelOptions, what: str, command: str) -> None:
    upgrade = decide(ask(entries_for({}, {}), owns=(mine,), model=model))
    own_steps = upgrade.lacking[: len(upgrade.lacking) - 1]  # the last is of the findings
    assert [(item.what, item.command) for item in own_steps] == [(what, command)]
    assert command or what in " ".join(render_screen(upgrade, 80).split()), "it is all that there is to say"
    many = decide(ask(entries_for({}, {}), owns=(mine,), models=(Path("models.yaml"),)))
    assert (what is OTHERS) or [item.what for item in many.lacking] == [what]


def test_a_model_that_is_wrong_at_both_versions_is_said_to_be() -> None:
    refused = own("crashed", "crashed")
    refused = replace(refused, section=replace(refused.section, reference="none: refused"))
    for mine, words in (
        (own("bad3", "bad3"), "wrong at both versions"),
        (own("crashed", "bad3"), f"not right at {NEW} either"),
    ):
        assert answer(mine, "good3").summary == f"Not enough evidence: your model is {words}."
    mistaken = decide(ask(entries_for({}, {}), owns=(refused,), model=ModelOptions(model=Path("m.onnx"))))
    assert "your model has a mistake to mend" in mistaken.summary
    assert not any("m.onnx" in item.command for item in mistaken.lacking[:-1]), (
        "no other version would take it"
    )


SOURCE = "https://github.com/NVIDIA/TensorRT/issues/3447"


def at(version: str, known: str = "reported", depends: str = "") -> tuple[str, NodeAt]:
    return version, NodeAt(effect=Effect.WRONG, known=known, source=SOURCE, depends=depends)


def looked_at(mine: Own, *found: tuple[str, NodeAt]) -> Own:
    """The same model, of whose two Mul this is known."""
    group = NodeGroup(
        repro="transpose-constant", operator="Mul", nodes=("/a", "/b"),
        what="a constant factor", instead="leave the Transposes out", at=dict(found),
    )  # fmt: skip
    check = StaticCheck(
        model="my.onnx", opset=17, nodes=9, versions=(OLD, NEW), rules=24, silent=(), untested=(),
        groups=(group,) if found else (),
    )  # fmt: skip
    return Own(section=with_nodes(mine.section, check, OLD, NEW), entries=mine.entries)


def told(upgrade: Upgrade) -> str:
    return re.sub(r"[\\*]", "", " ".join(render_markdown(upgrade).split()))


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
def test_what_becomes_known_to_fail_counts(found: Any, weight: Weight, words: str) -> None:
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
    assert "against: Mul ×2 (/a, /b): a constant" in told(upgrade)
    screen = render_screen(upgrade, 80)
    assert "against     your model: Mul ×2 (/a, /b): a constant factor; new at" in screen
    both = answer(looked_at(UNSEEN, at(OLD), at(NEW)))
    screen = " ".join(render_screen(both, 80).split())
    assert f"your model: Mul ×2 (/a, /b): a constant factor; broken in both {OLD} and {NEW}" in screen
    assert f"{OLD}, {NEW}: nothing known against it" in told(answer(looked_at(UNSEEN)))
