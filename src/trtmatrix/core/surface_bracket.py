"""The difference of two versions of which one has no surface: that of the nearest known ones around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from trtmatrix.core.api import ApiChange, ChangeKind, Surface
from trtmatrix.core.change_table import ChangeTable, Replacement, lies_between, release
from trtmatrix.core.surface_diff import ORDER, TRTEXEC, compare_flags, compare_surfaces


@dataclass(frozen=True, kw_only=True)
class Bracket:
    """Two surfaces that hold all that changes in a move between two versions, and maybe more.

    ``exact_before``: ``before`` is the surface of ``moved_from`` itself; ``exact_after`` the same of the end.
    """

    before: Surface
    after: Surface
    moved_from: str
    moved_to: str
    exact_before: bool
    exact_after: bool

    @property
    def lacking(self) -> str:
        """Which surface is missing and what stands in for it, in words; nothing where both are there."""
        parts = [
            f"no surface of {wanted} is known: {has.version} stands in for it"
            for wanted, has, exact in (
                (self.moved_from, self.before, self.exact_before),
                (self.moved_to, self.after, self.exact_after),
            )
            if not exact
        ]
        return "; ".join(parts)


def compare_bracket(bracket: Bracket, table: ChangeTable) -> tuple[ApiChange, ...]:
    """Return what changes in a move, or may: what lies between the surfaces around it is labelled so.

    Where the table says in which release a name went, that decides: what had gone before the move is left
    out, what goes only later is deprecated, not removed.
    """
    changes = compare_surfaces(bracket.before, bracket.after, table)
    if bracket.exact_before and bracket.exact_after:
        return changes
    settled = [
        found
        for change in changes
        if not change.name.startswith(f"{TRTEXEC} ")
        for found in _settled(change, bracket, table.of(change.name))
    ]
    settled += compare_flags(bracket.moved_from, bracket.moved_to, table)
    return tuple(sorted(settled, key=lambda change: (ORDER.index(change.kind), change.name)))


def is_open(change: ApiChange, bracket: Bracket) -> bool:
    """Say whether a change may lie outside of the move: nothing tells in which release it was made."""
    return bool(bracket.lacking) and _label(bracket) in change.note


def _settled(change: ApiChange, bracket: Bracket, kept: Replacement | None) -> Iterator[ApiChange]:
    """Yield a change as far as it is known to lie within the move."""
    low, high = bracket.moved_from, bracket.moved_to
    since = _since(change, kept)
    if not since or release(low) > release(high):
        yield replace(change, note=_joined(_label(bracket), change.note))
    elif lies_between(since, low, high):
        yield replace(change, note=_joined(f"in {since}", change.note))
    elif release(since) > release(high) and change.kind is not ChangeKind.DEPRECATED:
        note = f"{change.kind.value} in {since}, which is after {high}"
        yield replace(change, kind=ChangeKind.DEPRECATED, note=_joined(note, change.note))


def _since(change: ApiChange, kept: Replacement | None) -> str:
    """Return the release in which a change was made, as the table or the docstring says; or nothing."""
    if change.kind is ChangeKind.DEPRECATED:
        told = re.search(r"[Dd]eprecated (?:in TensorRT|since) (\d+\.\d+)", change.note)
        return told[1] if told else kept.deprecated if kept is not None else ""
    if change.kind is ChangeKind.ADDED or kept is None:
        return ""
    return kept.removed


def _label(bracket: Bracket) -> str:
    """Say between which releases a change lies: ``"by 10.0.1"``, ``"after 8.6.1"``."""
    if not bracket.exact_after and bracket.exact_before:
        return f"by {bracket.after.version}; {bracket.moved_to} itself was not read"
    if not bracket.exact_before and bracket.exact_after:
        return (
            f"after {bracket.before.version}, by {bracket.after.version}; {bracket.moved_from} was not read"
        )
    return f"after {bracket.before.version}, by {bracket.after.version}; neither version was read"


def _joined(*texts: str) -> str:
    return "; ".join(text for text in texts if text)
