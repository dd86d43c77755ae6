"""Which boards the cells of one table were measured on, and how those of different ones are marked. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from trtmatrix.common.counting import counted
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.record import Record
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


Facts = tuple[str, str]
"""Driver and variant."""


def find_kinds(entries: Iterable[Entry]) -> tuple[BoardKind, ...]:
    """Return the kinds of boards that the cells of one GPU rest on: that of most cells, then by driver."""
    groups: dict[Facts, list[Entry]] = defaultdict(list)
    for entry in entries:
        if (facts := facts_of(entry)) is not None:
            groups[facts].append(entry)
    newest = sorted(groups, key=lambda facts: (_numbers(facts[0]), *facts), reverse=True)
    most = max(newest, key=lambda facts: len(groups[facts]), default=None)
    ordered = [facts for facts in newest if facts == most] + [facts for facts in newest if facts != most]
    return tuple(_kind(number, facts, groups[facts]) for number, facts in enumerate(ordered))


def facts_of(entry: Entry) -> Facts | None:
    """Return driver and variant of the board that an entry's record is of; None where it names no GPU."""
    gpu: Mapping[str, Any] = entry.record.gpu if entry.record is not None else {}
    if not gpu.get("name"):
        return None
    return _plain(str(gpu.get("driver") or "")), _plain(str(gpu.get("variant") or ""))


@lru_cache(maxsize=256)
def _plain(text: str) -> str:
    """Return a fact on one line; records may come from anywhere."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:60]


def _numbers(driver: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]{1,9}", driver))


def _kind(number: int, facts: Facts, entries: Sequence[Entry]) -> BoardKind:
    records = [record for entry in entries for record in entry.records or _only(entry.record)]
    hosts, boards = ([str(r.gpu.get(name) or "") for r in records] for name in ("host", "uuid_sha256"))
    return BoardKind(
        mark=f"{BOARD_MARK}{_letters(number)}" if number else "", driver=facts[0], variant=facts[1],
        cells=len(entries), hosts=len(set(hosts)) if all(hosts) else 0,
        boards=len({board for board in boards if board}),
    )  # fmt: skip


def _only(record: Record | None) -> tuple[Record, ...]:
    return () if record is None else (record,)


def _letters(number: int) -> str:
    """Return b, c, … of a kind; numbers where letters do not do."""
    return "abcdefghijklmnopqrstuvwxyz"[number] if number < 26 else str(number)


def mark_boards(entries: Sequence[Entry], kinds: Sequence[BoardKind]) -> tuple[Entry, ...]:
    """Return the entries of one GPU, those marked that are not of the first kind of boards."""
    marks = {(kind.driver, kind.variant): kind.mark for kind in kinds if kind.mark}
    if not marks:
        return tuple(entries)

    def mark(entry: Entry) -> str:
        facts = facts_of(entry)
        return marks.get(facts, "") if facts is not None else ""

    return tuple(replace(entry, board=found) if (found := mark(entry)) else entry for entry in entries)


def kind_lines(kinds: Sequence[BoardKind]) -> list[str]:
    """Return what is said above a table's cells: nothing where all are of one kind, and of one host."""
    if len(kinds) > 1:
        return [
            "cells of boards that differ: a difference between them may be the driver's, not the version's",
            *(f"{kind.mark or 'no mark'}: {kind.words}" for kind in kinds),
        ]
    return [f"all with {kind.words}" for kind in kinds if kind.hosts > 1]
