"""Failures that are not steady: numbers from memory that nothing wrote, other ones in each engine. Pure.

A failure is unsteady where engines that are built alike are wrong in the same output, and

- in several ways: NaN in one, wrong numbers or zeros in another; or
- by relative L2 errors of which the largest is ``ORDERS`` times the least, or more; or
- by an error above ``ABSURD``, unless the engines agree on it, or there is but one: a wrong formula gives
  the same numbers each time, of some size; what memory held before has any.

What such a failure gives in one run says nothing of the next, so that it comes back by any of these ways.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from trtmatrix.common.short import short
from trtmatrix.judge.failing import Kind, Manner

GARBAGE = frozenset({Kind.NOT_FINITE, Kind.ZEROS, Kind.WRONG})
"""What memory that nothing wrote gives."""

ORDERS = 100.0
ABSURD = 1e4

AGREE = 1.02
"""Engines whose errors differ by no more give the same numbers."""

LEAST = 0.1
"""A relative error below is no garbage where garbage is wanted: some of the right numbers are nearly all."""

WORDS = "garbage that differs from run to run"


def is_unsteady(found: Sequence[Manner]) -> bool:
    """Whether the failures of a cell's engines are of that kind; that of a single one never is."""
    kinds = {manner.kind for manner in found}
    if not found or not kinds <= GARBAGE or not set.intersection(*({*m.outputs} for m in found)):
        return False
    if len(kinds) > 1:
        return True
    errors = sorted(e for manner in found for e in manner.errors if math.isfinite(e) and e > 0)
    return bool(errors) and errors_vary(errors)


def errors_vary(errors: Sequence[float]) -> bool:
    """Whether relative L2 errors, finite and above 0, are those of an unsteady failure."""
    least, largest = min(errors), max(errors)
    if largest >= ORDERS * least:
        return True
    return largest > ABSURD and not errors_agree(errors)


def errors_agree(errors: Sequence[float]) -> bool:
    """Whether relative L2 errors, of which there are some, are those of the same numbers each time.

    A single engine agrees with itself: nothing says that its numbers differ from run to run.
    """
    return max(errors) <= AGREE * min(errors)


def describe_garbage(found: Sequence[Manner]) -> str:
    """Return in words what the engines of an unsteady failure gave."""
    counts = Counter(manner.kind for manner in found)
    kinds = ", ".join(f"{kind.value} in {count} of {len(found)}" for kind, count in counts.most_common())
    errors = [error for manner in found for error in manner.errors if math.isfinite(error)]
    sizes = " to ".join(dict.fromkeys(map(short, (min(errors), max(errors))))) if errors else ""
    return f"{WORDS} ({kinds}{f'; relative L2 error {sizes}' if sizes else ''})"


def other_garbage(wanted: Manner, found: Manner) -> str:
    """Say how a failure is not the unsteady one that is wanted; nothing where it may be.

    Any of the ways will do. Wrong numbers are as far off as such are: by ``LEAST`` at least, or by the least
    that was seen where that is less.
    """
    if found.kind not in GARBAGE:
        return f"{found.words or found.kind.value}; before: {wanted.words or WORDS}"
    after = max((math.inf if math.isnan(error) else error for error in found.errors), default=math.inf)
    least = min((error for error in wanted.errors if error > 0), default=LEAST)
    if found.kind is Kind.WRONG and after < min(LEAST, least):
        return f"relative error {short(after)}; before: {wanted.words or WORDS}"
    return ""
