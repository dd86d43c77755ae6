"""Which boards the cells of one table were measured on, and how those of different ones are marked. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase

from trtmatrix.common.words import counted
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.words import BOARD_MARK


@dataclass(frozen=True, kw_only=True)
class BoardKind:
    """Boards that are alike in driver and variant, and what of a table was measured on them.

    ``mark``: what its cells are marked with, empty for those of which most cells are. ``hosts``: of how many
    hosts its records say that they are; 0 where not all say it. ``boards``: by the hashes of their UUIDs.
    """

    mark: str
    driver: str
    variant: str
    cells: int
    hosts: int
    boards: int

    @property
    def words(self) -> str:
        """Return what it is and how much of the table: ``driver 570.86.15, 140 GiB: 6 cells, 2 hosts``."""
        what = ", ".join(part for part in (f"driver {self.driver or 'unknown'}", self.variant) if part)
        counts = [counted(self.cells, "cell")]
        if self.hosts or self.boards:
            counts.append(counted(self.hosts, "host") if self.hosts else counted(self.boards, "board"))
        return f"{what}: {', '.join(counts)}"


def find_kinds(entries: Iterable[Entry]) -> tuple[BoardKind, ...]:
    """Return the kinds of boards that the cells of one GPU rest on: that of most cells, then by driver."""
    groups: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        if (facts := _facts_of(entry)) is not None:
            groups[facts].append(entry)
    newest = sorted(
        groups, key=lambda f: ([int(n) for n in re.findall("[0-9]{1,9}", f[0])], *f), reverse=True
    )
    most = max(newest, key=lambda facts: len(groups[facts]), default=None)
    ordered = sorted(newest, key=lambda facts: facts != most)
    return tuple(_kind(number, facts, groups[facts]) for number, facts in enumerate(ordered))


def _facts_of(entry: Entry) -> tuple[str, str] | None:
    """Return driver and variant of the board that an entry's record is of; None where it names no GPU.

    Records may come from anywhere: only what can be printed on a line is kept.
    """
    gpu = entry.record.gpu if entry.record is not None else {}
    if not gpu.get("name"):
        return None
    driver, variant = (
        " ".join("".join(c if c.isprintable() else " " for c in str(gpu.get(name) or "")).split())[:60]
        for name in ("driver", "variant")
    )
    return driver, variant


def _kind(number: int, facts: tuple[str, str], entries: Sequence[Entry]) -> BoardKind:
    records = [r for entry in entries for r in entry.records or (entry.record,) if r is not None]
    hosts, boards = ({str(r.gpu.get(name) or "") for r in records} for name in ("host", "uuid_sha256"))
    letter = ascii_lowercase[number] if number < len(ascii_lowercase) else str(number)
    return BoardKind(
        mark=f"{BOARD_MARK}{letter}" if number else "", driver=facts[0], variant=facts[1], cells=len(entries),
        hosts=0 if "" in hosts else len(hosts), boards=len(boards - {""}),
    )  # fmt: skip


def mark_boards(entries: Sequence[Entry], kinds: Sequence[BoardKind]) -> tuple[Entry, ...]:
    """Return the entries of one GPU, those marked that are not of the first kind of boards."""
    marks = {(kind.driver, kind.variant): kind.mark for kind in kinds[1:]}
    if not marks:
        return tuple(entries)
    found = ((entry, marks.get(_facts_of(entry) or ("", ""), "")) for entry in entries)
    return tuple(replace(entry, board=mark) if mark and entry.record else entry for entry, mark in found)


def kind_lines(kinds: Sequence[BoardKind]) -> list[str]:
    """Return what is said above a table's cells: nothing where all are of one kind, and of one host."""
    if len(kinds) > 1:
        return [
            "cells of boards that differ: a difference between them may be the driver's, not the version's",
            *(f"{kind.mark or 'no mark'}: {kind.words}" for kind in kinds),
        ]
    return [f"all with {kind.words}" for kind in kinds if kind.hosts > 1]
