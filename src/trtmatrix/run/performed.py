"""What came of a plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from trtmatrix.judge.record import Record
from trtmatrix.suite.plan import Excluded


@dataclass(kw_only=True)
class Performed:
    """What came of a plan: records written, and cells whose launch could not be made ready."""

    records: list[Record] = field(default_factory=list)
    not_ready: list[Excluded] = field(default_factory=list)
