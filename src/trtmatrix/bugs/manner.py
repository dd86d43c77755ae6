"""In which way a cell fails: what a bundle must show again and what a smaller graph must still do. Pure.

Absurd numbers come from memory that nothing wrote and are others in each engine: such a failure comes back
with any numbers.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum

from trtmatrix.common.text import short
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.factors import FAIL_FACTOR
from trtmatrix.judge.judge import (
    Subject,
    above_limits,
    judge_build,
    judge_engine,
    nan_last,
    other_shapes,
    read_floors,
    subject_of,
    unexpected_in,
)
from trtmatrix.judge.noise import Calibration
from trtmatrix.judge.record import RAN, Measured
from trtmatrix.suite.model import Verdict
from trtmatrix.suite.repros import BEYOND

WEAKER = STRONGER = 10.0
"""Wrong numbers whose relative error is so many times smaller are another failure: less of it is noise. So
many times larger it is another one, too, where it is also above ``PLAIN``."""

PLAIN = 2.0
"""The relative L2 error of an output whose sign is lost. Up to it an error may be that of the same failure,
seen nearer to where it comes in: what is computed after it dilutes it."""

ALIKE = 0.5
"""The share of words that two errors' messages have in common, if they are the same error."""

ABSURD = 1e4
"""A relative error above is garbage: what memory held before."""

LEAST = 0.1
"""A relative error below is no garbage where garbage is wanted: some of the right numbers are nearly all."""


class Kind(str, Enum):
    """What is wrong."""

    ENDED = "ended"
    """A build failure, crash or time-out that is the bug; ``what`` is the cause."""
    SHAPE = "another shape"
    """An output has another shape than its reference."""
    NOT_FINITE = "not finite"
    ZEROS = "zeros"
    """Outputs that are zero all over where the reference is not."""
    OWN = "own measure"
    """A measurement of the run's own is above its limit, or what it saw is not wanted; ``what`` names it."""
    WRONG = "wrong numbers"


_FROM_MEMORY = frozenset({Kind.NOT_FINITE, Kind.ZEROS, Kind.WRONG})
"""What memory that nothing wrote gives."""


@dataclass(frozen=True, kw_only=True)
class Manner:
    """The way in which a cell fails.

    ``what``: see :class:`Kind`. ``errors``: of each engine that fails, the relative L2 error of the worst
    output. ``words``: all that in a sentence, as the judge says it.
    """

    kind: Kind
    what: str = ""
    words: str = ""
    errors: tuple[float, ...] = ()

    @property
    def is_garbage(self) -> bool:
        """Whether its numbers are absurd: other ones may come out each time."""
        return self.kind in _FROM_MEMORY and any(ABSURD < error < math.inf for error in self.errors)


def manner_of(entry: Entry, calibration: Calibration) -> Manner | None:
    """Return the way in which a cell fails, by its records; None where it does not fail, or has none.

    A control that says nothing (INVALID) does not fail, nor does what is only reported. Where engines fail in
    several ways it is that of most of them, the newest record's first among equals.
    """
    outcome = entry.outcome
    if outcome is None or outcome.verdict not in {Verdict.FAIL, Verdict.FLAKY} or not entry.records:
        return None
    newest = entry.records[0]
    if other_shapes(newest):
        return Manner(kind=Kind.SHAPE, words=outcome.reason)
    if newest.ended != RAN:
        return Manner(kind=Kind.ENDED, what=newest.ended, words=outcome.reason)
    found: list[Manner] = []
    for record in (record for record in entry.records if record.ended == RAN):
        subject = subject_of(record, entry.cell, calibration)
        found += filter(None, (_of_engine(build, subject) for build in record.builds))
    if not found:
        return None
    commonest, _ = Counter((manner.kind, manner.what) for manner in found).most_common(1)[0]
    alike = [manner for manner in found if (manner.kind, manner.what) == commonest]
    errors = tuple(error for manner in alike for error in manner.errors)
    return replace(alike[0], words=outcome.reason, errors=errors)


def _of_engine(build: Measured, subject: Subject) -> Manner | None:
    """Return how one engine fails, None where it does not; in the order in which the judge decides."""
    if judge_engine(build, subject).verdict is not Verdict.FAIL:
        return None
    floors = read_floors(build, subject)
    sizes = floors or {name: float(v["rel_l2"]) for name, v in build.outputs.items() if "rel_l2" in v}
    worst = max(sorted(sizes), key=lambda output: nan_last(sizes[output]), default="")
    wrong = [output for output in floors if not floors[output] < FAIL_FACTOR] or [worst]
    given = {output: build.outputs.get(output, {}) for output in wrong}
    zeros = [n for n, v in given.items() if 0 < v.get("count", 0) == v.get("zeros") and v.get("rel_l2", 0)]
    own = sorted({*above_limits(build, subject.case)} - {BEYOND})
    kind, what, outputs = Kind.WRONG, "", wrong
    if unexpected := unexpected_in(build):
        kind, outputs = Kind.NOT_FINITE, [*unexpected]
    elif own or judge_build(build, subject).verdict is not Verdict.FAIL:
        kind, what, outputs = Kind.OWN, ", ".join(own) or build.remark, []
    elif zeros:
        kind, outputs = Kind.ZEROS, zeros
    looked_at = [values for name, values in build.outputs.items() if name in (outputs or build.outputs)]
    errors = [float(values["rel_l2"]) for values in looked_at if "rel_l2" in values]
    return Manner(kind=kind, what=what, errors=(max(errors, key=nan_last),) if errors else ())


def same_manner(wanted: Manner, found: Manner) -> str:
    """Say how a failure differs from the one that is wanted, in words; nothing where it is the same.

    The same are: how it ended with the same error; NaN; zeros; the same measure of the
    run's own; wrong numbers whose relative error is at most ``WEAKER`` times smaller, and at most
    ``STRONGER`` times larger or up to ``PLAIN``. Of garbage any other is the same that is off by ``LEAST`` at
    least. Names of outputs do not count: a smaller graph has others.
    """
    differs = ""
    before, after = (max(map(nan_last, manner.errors), default=0.0) for manner in (wanted, found))
    is_far = after < before / WEAKER or after > max(STRONGER * before, PLAIN)
    if wanted.is_garbage and found.kind in _FROM_MEMORY:
        if found.kind is Kind.WRONG and after < LEAST:
            differs = f"relative error {short(after)}; before: {wanted.words}"
    elif (found.kind, found.what) != (wanted.kind, wanted.what):
        differs = f"{found.words or found.kind.value}; before: {wanted.words or wanted.kind.value}"
    elif wanted.kind is Kind.ENDED and not _are_alike(wanted.words, found.words):
        differs = f"{found.words}; before: {wanted.words}"
    elif wanted.kind is Kind.WRONG and is_far and wanted.errors and found.errors:
        differs = f"relative error {short(after)} instead of {short(before)}"
    return f"it fails otherwise: {differs}" if differs else ""


def _are_alike(ours: str, theirs: str) -> bool:
    """Whether two messages are of one error: the same codes and signals, and half of the words."""
    codes = [set(re.findall(r"(?:[cC]ode|signal) \d+|\bSIG[A-Z]+\b", text)) for text in (ours, theirs)]
    a, b = (set(re.findall(r"[^\W\d_]+", text)) for text in (ours, theirs))
    return ours == theirs or (codes[0] == codes[1] and len(a & b) >= ALIKE * max(1, len(a | b)))
