"""In which order a run does its work, and what of it goes together. Pure."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter

from trtmatrix.judge.entry import Stored
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import CellId, Gpu
from trtmatrix.suite.plan import Launch

Seconds = Mapping[CellId, float]  # how long each cell is thought to take

PRECISION = re.compile(r" ?\bprecision=\S+")


def estimate_seconds(cells: Sequence[Cell], stored: Iterable[Stored]) -> dict[CellId, float]:
    """Return how long each cell took when it was last run, on whatever GPU.

    Where that is not known: as long as those of which it is, on the average; 1 s where nothing is known.
    """
    known = known_seconds(cells, stored)
    usual = sum(known.values()) / len(known) if known else 1.0
    return {cell.id: known.get(cell.id, usual) for cell in cells}


def known_seconds(cells: Sequence[Cell], stored: Iterable[Stored]) -> dict[CellId, float]:
    """Return from start to end of the newest record of each cell's row, where it has both."""

    def row(cell: CellId) -> tuple[str, str, str]:
        return cell.repro, cell.case, cell.version

    wanted = {row(cell.id) for cell in cells}
    ours = [item.record for item in stored if row(item.record.cell) in wanted]
    newest = {row(record.cell): record for record in sorted(ours, key=attrgetter("started", "run"))}
    found = {}
    for key, record in newest.items():
        with contextlib.suppress(ValueError, TypeError):
            moments = (record.started, record.finished)
            started, finished = (datetime.fromisoformat(each.replace("Z", "+00:00")) for each in moments)
            found[key] = max(0.0, (finished - started).total_seconds())
    return {cell.id: found[row(cell.id)] for cell in cells if row(cell.id) in found}


def order_launches(
    launches: Iterable[Launch], seconds: Seconds, is_here: Callable[[Launch], bool]
) -> list[Launch]:
    """Return launches in the order in which they start: what is here already, then the longest first."""
    return sorted(launches, key=lambda launch: (not is_here(launch), -_total(launch.cells, seconds)))


def _total(cells: Iterable[Cell], seconds: Seconds) -> float:
    return sum(seconds.get(cell.id, 1.0) for cell in cells)


def equal_boards(gpu: Gpu, boards: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return the boards that can stand for a GPU: of its model, variant and driver; at least itself."""
    facts = (gpu.slug, gpu.variant, gpu.driver)
    return tuple(b for b in boards if (b.slug, b.variant, b.driver) == facts) or (gpu,)


def split_launch(launch: Launch, parts: int, seconds: Seconds) -> list[Launch]:
    """Return a launch as at most so many stretches of its cells, each about equally long.

    The cells of one repro, which stand together, mostly stay so.
    """
    parts, left = min(parts, len(launch.cells)), _total(launch.cells, seconds)
    shares: list[list[Cell]] = [[]]
    for cell in launch.cells:
        taken, takes = _total(shares[-1], seconds), _total([cell], seconds)
        wanted = left / (parts - len(shares) + 1)  # an equal share of what the shares before have left
        if shares[-1] and len(shares) < parts and taken + takes / 2 > wanted:
            left -= taken
            shares.append([])
        shares[-1].append(cell)
    return [launch.of(share) for share in shares]


def group_cases(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return one cell of each case, those together that share work on the host, the largest group first.

    Cases that draw the same numbers share their reference, whatever the precision; those of a repro that
    emulates nothing may share all.
    """
    groups: dict[tuple[str, str], dict[str, Cell]] = {}
    for cell in cells:
        drawn = PRECISION.sub("", cell.case.noise_key)
        groups.setdefault((cell.repro.id, drawn), {}).setdefault(cell.case.id, cell)
    return sorted((list(group.values()) for group in groups.values()), key=len, reverse=True)
