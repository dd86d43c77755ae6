"""In which order a run does its work, and what of it goes together. Pure."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from trtmatrix.judge.entry import Stored
from trtmatrix.judge.record import Record
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import CellId, Gpu
from trtmatrix.suite.plan import Launch

Seconds = Mapping[CellId, float]
"""How long each cell is thought to take."""

PRECISION = re.compile(r" ?\bprecision=\S+")


def estimate_seconds(cells: Sequence[Cell], stored: Iterable[Stored]) -> dict[CellId, float]:
    """Return how long each cell took when it was last run, on whatever GPU.

    Where that is not known: as long as those of which it is, on the average; 1 s where nothing is known.
    """
    known = _known_seconds(cells, stored)
    usual = sum(known.values()) / len(known) if known else 1.0
    return {cell.id: known.get(_row(cell.id), usual) for cell in cells}


def known_cells(cells: Sequence[Cell], stored: Iterable[Stored]) -> frozenset[CellId]:
    """Return the cells of which it is known how long they took, on whatever GPU."""
    known = _known_seconds(cells, stored)
    return frozenset(cell.id for cell in cells if _row(cell.id) in known)


def _known_seconds(cells: Sequence[Cell], stored: Iterable[Stored]) -> dict[tuple[str, str, str], float]:
    """Return the seconds from start to end of the newest record of each row that has both."""
    wanted = {_row(cell.id) for cell in cells}
    newest: dict[tuple[str, str, str], Record] = {}
    for record in (item.record for item in stored):
        row = _row(record.cell)
        if row in wanted and (row not in newest or _age(record) > _age(newest[row])):
            newest[row] = record
    found = {}
    for row, record in newest.items():
        with contextlib.suppress(ValueError, TypeError):
            moments = (record.started, record.finished)
            started, finished = (datetime.fromisoformat(each.replace("Z", "+00:00")) for each in moments)
            found[row] = max(0.0, (finished - started).total_seconds())
    return found


def _row(cell: CellId) -> tuple[str, str, str]:
    return cell.repro, cell.case, cell.version


def _age(record: Record) -> tuple[str, str]:
    return record.started, record.run


def order_launches(
    launches: Iterable[Launch], seconds: Seconds, is_here: Callable[[Launch], bool]
) -> list[Launch]:
    """Return launches in the order in which they start: what is here already, then the longest first."""
    return sorted(launches, key=lambda launch: (not is_here(launch), -_total(launch.cells, seconds)))


def join_images(launches: Sequence[Launch]) -> list[Launch]:
    """Return launches in their order, but those of an image that must be had first one after another.

    So what is had can go again before the next is had.
    """
    wanted = [had_first(launch) or str(number) for number, launch in enumerate(launches)]
    places = {image: number for number, image in reversed(list(enumerate(wanted)))}
    return [launches[n] for n in sorted(range(len(launches)), key=lambda n: places[wanted[n]])]


def had_first(launch: Launch) -> str | None:
    """Return the image that must be pulled for a launch, or for the base of its own; None where none must."""
    origin = launch.version.origin
    if not isinstance(origin, ImageOrigin) or not launch.lacks_image:
        return None
    return origin.build.base if origin.build is not None else origin.image


def _total(cells: Iterable[Cell], seconds: Seconds) -> float:
    return sum(seconds.get(cell.id, 1.0) for cell in cells)


def equal_boards(gpu: Gpu, boards: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return the boards that can stand for a GPU: of its model, variant and driver; at least itself."""
    facts = (gpu.slug, gpu.variant, gpu.driver)
    return tuple(b for b in boards if (b.slug, b.variant, b.driver) == facts) or (gpu,)


def split_launch(launch: Launch, parts: int, seconds: Seconds) -> list[Launch]:
    """Return a launch as at most so many, each about equally long and with whole repros where that goes.

    Cells of one repro stay together as far as no part becomes much longer than the others by it.
    """
    parts = min(parts, len(launch.cells))
    if parts <= 1:
        return [launch]
    longest = _total(launch.cells, seconds) / parts
    chunks = sorted(_chunks(launch.cells, longest / 2, seconds), key=lambda chunk: -_total(chunk, seconds))
    shares: list[list[Cell]] = [[] for _ in range(parts)]
    for chunk in chunks:  # the longest that is left goes to who has least
        min(shares, key=lambda share: (_total(share, seconds), len(share))).extend(chunk)
    place = {cell.id: number for number, cell in enumerate(launch.cells)}
    return [launch.of(sorted(share, key=lambda cell: place[cell.id])) for share in shares if share]


def _chunks(cells: Sequence[Cell], longest: float, seconds: Seconds) -> list[list[Cell]]:
    """Cut cells into stretches of one repro, of one cell or not longer than this."""
    chunks: list[list[Cell]] = []
    for cell in cells:
        last = chunks[-1] if chunks else []
        fits = last and last[0].repro.id == cell.repro.id
        if fits and _total([*last, cell], seconds) <= longest:
            last.append(cell)
        else:
            chunks.append([cell])
    return chunks


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
