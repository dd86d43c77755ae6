"""The table behind a decision: every standing before against every standing after, written out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trtmatrix.suite.model import Cause, Evidence, Verdict
from trtmatrix.upgrade.findings import Standing, standing_of, weigh, weigh_own
from trtmatrix.upgrade.report import Change, Side, Weight

CHANGES = {
    "R": Change.REGRESSED, "B": Change.UNCHANGED_BAD, "F": Change.FIXED, "G": Change.UNCHANGED_GOOD,
    "?": Change.UNKNOWN, "-": Change.SAYS_NOTHING,
}  # fmt: skip
WEIGHTS = {"!": Weight.AGAINST, "?": Weight.LACKING, "+": Weight.FOR, ".": Weight.NOTE}

# Columns: before. Rows: after. Each cell: the change, then the weight.
TABLE = """
            GOOD FEW SAID_GOOD BAD SAID_BAD BROKEN UNSUPPORTED BUILT VOID DOUBTED ABSENT UNKNOWN
GOOD        G+   G+  G+        F+  F+       F+     F+          G+    G+   G+      G+     G+
FEW         G?   G?  G?        F?  F?       F?     F?          G?    G?   G?      G?     G?
SAID_GOOD   G?   G?  G?        F?  F?       F?     F?          G?    G?   G?      G?     G?
BAD         R!   R!  R!        B.  B.       B.     B.          R!    R!   R!      R!     R!
SAID_BAD    R!   R!  R!        B.  B.       B.     B.          R!    R!   R!      R!     R!
BROKEN      R!   R!  R!        B.  B.       B.     B.          R!    R!   R!      R!     ??
UNSUPPORTED R!   R!  R!        B.  B.       -.     -.          R!    R!   R!      -.     ??
BUILT       ??   ??  ??        ??  ??       ??     ??          ??    ??   ??      ??     ??
VOID        -.   -.  -.        -.  -.       -.     -.          -.    -.   -.      -.     -.
DOUBTED     ??   ??  ??        ??  ??       ??     ??          ??    ??   ??      ??     ??
ABSENT      -.   -.  -.        -.  -.       -.     -.          -.    -.   -.      -.     -.
UNKNOWN     ??   ??  ??        ??  ??       ??     ??          ??    ??   ??      ??     ??
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


def test_ones_own_model_is_never_passed_over() -> None:
    for before, after, change, weight in rows():
        mine = weigh_own(before, after)
        if after in {Standing.BROKEN, Standing.UNSUPPORTED}:
            assert mine[1] is Weight.AGAINST, (before, after)
        else:
            silent = change is Change.SAYS_NOTHING
            assert mine == (change, Weight.LACKING if silent else weight), (before, after)


SIDE = Side(version="10.8.0", verdict=Verdict.PASS, evidence=Evidence.MEASURED, builds=3)


@pytest.mark.parametrize(
    ("changes", "standing"),
    [
        ({}, Standing.GOOD),
        ({"evidence": Evidence.RECORDED}, Standing.GOOD),
        ({"builds": 2}, Standing.FEW),
        ({"builds": 0, "counted": False}, Standing.GOOD),
        ({"evidence": Evidence.REPORTED}, Standing.SAID_GOOD),
        ({"verdict": Verdict.FAIL, "builds": 1}, Standing.BAD),
        ({"verdict": Verdict.FLAKY}, Standing.BAD),
        ({"verdict": Verdict.FAIL, "evidence": Evidence.REPORTED}, Standing.SAID_BAD),
        ({"verdict": Verdict.INVALID}, Standing.VOID),
        ({"verdict": Verdict.INVALID, "doubted": True}, Standing.DOUBTED),
        ({"verdict": Verdict.BUILT}, Standing.BUILT),
        ({"verdict": None, "evidence": Evidence.NONE}, Standing.UNKNOWN),
        ({"verdict": None, "evidence": Evidence.NONE, "absent": True}, Standing.ABSENT),
    ],
)
def test_standing_of(changes: dict[str, object], standing: Standing) -> None:
    assert standing_of(replace(SIDE, **changes)) is standing  # type: ignore[arg-type] # as the table says


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
