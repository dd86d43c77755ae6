"""The words of the hand-kept table: what to write instead of names, changed behaviour, trtexec's flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trtmatrix.core.api import Behaviour, ChangeKind
from trtmatrix.core.surfacefile import numbers_of


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """What to write instead of names. ``deprecated`` and ``removed`` are releases, or nothing.

    They are kept where NVIDIA's documents say them and the bindings' docstrings do not; ``source`` and
    ``url`` are of what ``write`` says.
    """

    names: tuple[str, ...]
    write: str = ""
    note: str = ""
    deprecated: str = ""
    removed: str = ""
    source: str = ""
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class FlagChange:
    """What happens at ``since`` to an option of trtexec, written with its dashes."""

    flag: str
    kind: ChangeKind
    since: str
    write: str = ""
    note: str = ""
    source: str = ""
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class ChangeTable:
    """All of the table."""

    replacements: Mapping[str, Replacement] = field(default_factory=dict)
    """By each of their names."""
    behaviours: tuple[Behaviour, ...] = ()
    flags: tuple[FlagChange, ...] = ()

    def of(self, name: str) -> Replacement | None:
        """Return what is kept of a name, or else of the class that it is a member of."""
        return self.replacements.get(name) or self.replacements.get(name.rpartition(".")[0])


def release(version: str) -> tuple[int, ...]:
    """Return a release as numbers that compare: ``"10"`` and ``"10.0.0"`` are equal."""
    numbers = numbers_of(version)
    while numbers and numbers[-1] == 0:
        numbers = numbers[:-1]
    return numbers


def lies_between(since: str, before: str, after: str) -> bool:
    """Whether a move from ``before`` up to ``after`` meets what is so since a release."""
    return release(before) < release(since) <= release(after)
