"""A known defect's signature in an output, and which of several an error may be named by. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trtmatrix.judge.factors import CLOSER_BOUND, NAMED, VALID_BOUND


@dataclass(frozen=True, kw_only=True)
class Sign:
    """A known defect's signature in an output: c, the share of the error explained, what bounds c.

    ``size``: the defect's, in noise floors; ``c`` is None where the record does not have it; ``output``: the
    one that shows it best.
    """

    name: str
    size: float
    bound: float
    c: float | None = None
    explained: float = 0.0
    output: str = ""

    @property
    def usable(self) -> bool:
        """Whether c tells a right engine from one with the defect."""
        return self.bound <= VALID_BOUND

    @property
    def named(self) -> bool:
        """Whether c is what the defect as it is known gives."""
        return self.c is not None and NAMED[0] <= self.c <= NAMED[1]

    @property
    def beyond(self) -> bool:
        """Whether no right engine has such a c; NaN is beyond all bounds."""
        return self.usable and self.c is not None and not abs(self.c) <= CLOSER_BOUND * self.bound

    @property
    def doubtful(self) -> bool:
        """Whether c is somewhat larger than in a right engine."""
        return self.usable and self.c is not None and not abs(self.c) <= self.bound

    @property
    def residual(self) -> float:
        """The error (its square, as a share of the whole) that is left when the defect is taken away once."""
        if not self.c:
            return math.inf
        return 1 - 2 * self.explained / self.c + self.explained / self.c**2


def name_signs(signs: Sequence[Sign]) -> list[Sign]:
    """Return the known defects that an error may be named by, the best first."""
    named = sorted((sign for sign in signs if sign.usable and sign.named), key=lambda sign: sign.residual)
    return [sign for sign in named if sign.residual <= 2 * named[0].residual + 0.02]


def best_sign(signs: Sequence[Sign]) -> Sign | None:
    """Return the known defect that explains most of an error, if no right engine has so much of it."""
    seen = [sign for sign in signs if sign.c is not None and sign.usable]
    best = max(seen, key=lambda sign: sign.explained, default=None)
    return best if best is not None and best.doubtful else None
