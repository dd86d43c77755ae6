"""How a case stands at one version: a word for its evidence, and what two such words decide. Pure."""

from __future__ import annotations

from enum import Enum

from trtmatrix.judge.confirm import CONFIRMING_BUILDS
from trtmatrix.suite.model import Cause, Verdict
from trtmatrix.suite.outcome import Evidence
from trtmatrix.upgrade.report import Change, Side, Weight


class Standing(str, Enum):
    """What is known of a case at one version."""

    GOOD = "right"
    FEW = "right, of fewer engines than are wanted"
    SAID_GOOD = "reported to be right"
    BAD = "wrong"
    SAID_BAD = "reported to be wrong"
    BROKEN = "it could not be built, crashed, took too long or too much memory"
    UNSUPPORTED = "the version does not support it"
    BUILT = "built, not run"
    VOID = "it ran, and can say nothing"
    DOUBTED = "it ran, and a control beside it came out wrong"
    ABSENT = "it cannot be tried at this version: a component is missing, or the GPU is not supported"
    UNKNOWN = "no evidence, or trouble with the machinery"


_BROKEN = frozenset({Cause.BUILD_FAILED, Cause.CRASHED, Cause.TIME_OUT, Cause.OUT_OF_GPU_MEMORY})
_ABSENT = frozenset({Cause.COMPONENT_MISSING, Cause.UNSUPPORTED_GPU})


def standing_of(side: Side) -> Standing:
    """Return the word for a side's evidence."""
    if side.absent:
        return Standing.ABSENT
    reported = side.evidence is Evidence.REPORTED
    match side.verdict:
        case None:
            return Standing.UNKNOWN
        case Verdict.PASS:
            enough = not side.counted or side.builds >= CONFIRMING_BUILDS
            return Standing.SAID_GOOD if reported else Standing.GOOD if enough else Standing.FEW
        case Verdict.FAIL | Verdict.FLAKY:
            return Standing.SAID_BAD if reported else Standing.BAD
        case Verdict.INVALID:
            return Standing.DOUBTED if side.doubted else Standing.VOID
        case Verdict.BUILT:
            return Standing.BUILT
        case Verdict.NO_VERDICT:
            return _of_cause(side.cause)


def _of_cause(cause: Cause | None) -> Standing:
    if cause is Cause.UNSUPPORTED_BY_VERSION:
        return Standing.UNSUPPORTED
    if cause in _BROKEN:
        return Standing.BROKEN
    return Standing.ABSENT if cause in _ABSENT else Standing.UNKNOWN


_WAS_BAD = frozenset({Standing.BAD, Standing.SAID_BAD, Standing.BROKEN, Standing.UNSUPPORTED})
_HAD_BUILT = frozenset(
    {
        Standing.GOOD, Standing.FEW, Standing.SAID_GOOD, Standing.BUILT, Standing.VOID, Standing.DOUBTED,
    }
)  # fmt: skip


def weigh(before: Standing, after: Standing) -> tuple[Change, Weight]:
    """Return what a finding's case does to the decision, for any two standings: the whole table.

    A case that is bad after counts against the move unless it was bad before: nobody loses by that. A right
    one counts for it only on enough engines. Nothing known, or only reported, is lacking.
    """
    match after:
        case Standing.GOOD:
            return _improved(before), Weight.FOR
        case Standing.FEW | Standing.SAID_GOOD:
            return _improved(before), Weight.LACKING
        case Standing.BAD | Standing.SAID_BAD:
            return _REGRESSED if before not in _WAS_BAD else _STILL_BAD
        case Standing.BROKEN:
            if before in _WAS_BAD:
                return _STILL_BAD
            # What cannot be tried before can never be told to have been so already; what was not tried, can.
            return _UNKNOWN if before is Standing.UNKNOWN else _REGRESSED
        case Standing.UNSUPPORTED:
            if before in _HAD_BUILT:
                return _REGRESSED
            if before in {Standing.BAD, Standing.SAID_BAD}:
                return _STILL_BAD
            return _UNKNOWN if before is Standing.UNKNOWN else _SILENT
        case Standing.VOID | Standing.ABSENT:
            return _SILENT
        case Standing.BUILT | Standing.DOUBTED | Standing.UNKNOWN:
            return _UNKNOWN


def weigh_own(before: Standing, after: Standing) -> tuple[Change, Weight]:
    """Return what a case of the user's own model does: as :func:`weigh`, but silence about it is lacking.

    A version that cannot take the model is out, whatever was before; a model that is wrong at both is no
    worse off, and no reason to go either.
    """
    if after in {Standing.BROKEN, Standing.UNSUPPORTED}:
        change = Change.UNCHANGED_BAD if before in _WAS_BAD else Change.REGRESSED
        return change, Weight.AGAINST
    change, weight = weigh(before, after)
    return (change, Weight.LACKING) if change is Change.SAYS_NOTHING else (change, weight)


_REGRESSED = (Change.REGRESSED, Weight.AGAINST)
_STILL_BAD = (Change.UNCHANGED_BAD, Weight.NOTE)
_UNKNOWN = (Change.UNKNOWN, Weight.LACKING)
_SILENT = (Change.SAYS_NOTHING, Weight.NOTE)


def _improved(before: Standing) -> Change:
    return Change.FIXED if before in _WAS_BAD else Change.UNCHANGED_GOOD


HEAVIEST = (Weight.AGAINST, Weight.LACKING, Weight.WORKAROUND, Weight.FOR, Weight.NOTE)
"""Which weight decides, where there are several."""

WORST = (
    Change.REGRESSED, Change.UNCHANGED_BAD, Change.FIXED, Change.UNCHANGED_GOOD, Change.UNKNOWN,
    Change.SAYS_NOTHING,
)  # fmt: skip
"""Which change a finding is told by, where its cases differ: the worst that is known, then what is not."""
