"""The answer from small sets of evidence, and the commands for what is lacking."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import H200, make_case, make_expectation, make_repro, make_version
from hypothesis import assume, given
from hypothesis import strategies as st
from shown import PATIENT
from upgrades import NEW, OLD, PLAIN, ask, entries_for, entry

from trtmatrix.plan.context import ProjectOptions
from trtmatrix.suite.model import Basis, Cause, Evidence, Verdict
from trtmatrix.suite.repros import Workaround
from trtmatrix.upgrade.decide import decide
from trtmatrix.upgrade.findings import Standing, standing_of, weigh
from trtmatrix.upgrade.report import Change, Decision, Side, Upgrade, Weight

CODES = dict(zip(Decision, (0, 10, 11, 12), strict=True))


def answer(before: dict[str, str], after: dict[str, str]) -> Upgrade:
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
    upgrade = answer({"sdpa": before}, {"sdpa": sdpa, "explicit": explicit})
    assert (upgrade.decision, upgrade.exit_code) == (decision, CODES[decision])
    assert upgrade.summary
    if decision is Decision.NOT_ENOUGH and any(r.weight is Weight.LACKING for r in upgrade.reasons):
        assert upgrade.lacking
        assert all(item.command for item in upgrade.lacking)


def test_a_work_around_that_is_lost_counts_against_the_move() -> None:
    upgrade = answer({"sdpa": "good3", "explicit": "good3"}, {"sdpa": "good3", "explicit": "bad3"})
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


def test_a_control_that_came_out_wrong_takes_the_words_away() -> None:
    right = {"sdpa": "good3", "control": "bad3"}
    assert answer(right, right).decision is Decision.GO
    wrong = answer(right, {**right, "control": "good3"})
    assert wrong.decision is Decision.NOT_ENOUGH
    (line,) = wrong.findings[0].cases
    assert (line.change, "control" in line.why) == (Change.UNKNOWN, True)
    assert "--rerun" in wrong.lacking[0].command
    assert answer(right, {"sdpa": "bad3", "control": "good3"}).decision is Decision.NOT_ENOUGH


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
