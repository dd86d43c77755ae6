"""What was looked at and how it stands: the words of doctor and of preflight. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class Level(str, Enum):
    """How a finding stands."""

    GOOD = "ok"
    LACKING = "--"
    TROUBLE = "!!"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at; ``remedy`` is what to type or do.

    ``prevents``: what cannot be done because of it, in words; nothing where all can. ``rule``: the id of the
    rule that it comes of, nothing where it comes of none.
    """

    level: Level
    what: str
    found: str
    remedy: str = ""
    prevents: str = ""
    rule: str = ""


def finding_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the findings for a terminal."""
    for item in findings:
        yield f"[{item.level.value}] {item.what}: {item.found}"
        if item.prevents:
            yield f"     prevents {item.prevents}"
        if item.remedy:
            yield f"     -> {item.remedy}"
