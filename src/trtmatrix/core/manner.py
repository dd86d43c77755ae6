"""In which way a cell fails: what a bundle must show again and what a smaller graph must still do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """What is wrong."""

    ENDED = "ended"
    """A build failure, crash or time-out that is the bug; ``what`` is the cause, ``message`` says it."""
    NOT_FINITE = "not finite"
    ZEROS = "zeros"
    """Outputs that are zero all over where the reference is not."""
    DEFECT = "known defect"
    """The error has a known defect's shape; ``what`` names it."""
    LIMIT = "own limit"
    """A measurement of the case's own is above its limit; ``what`` names it."""
    REMARK = "remark"
    """Right, but not compiled as the case wants it."""
    WRONG = "wrong numbers"


@dataclass(frozen=True, kw_only=True)
class Manner:
    """The way in which a cell fails.

    ``outputs``: those that are wrong. ``sizes``: of each engine that fails, the figure that ``Kind`` goes by
    (c of a defect, a measurement, else the worst output's error in noise floors), so that a spread is known.
    ``message``: an error's text without what differs from run to run (numbers, addresses, paths).
    ``words``: all that in a sentence.
    """

    kind: Kind
    what: str = ""
    outputs: tuple[str, ...] = ()
    sizes: tuple[float, ...] = ()
    message: str = ""
    words: str = ""
