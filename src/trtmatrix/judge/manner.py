"""In which way a cell fails: what a bundle must show again and what a smaller graph must still do. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from trtmatrix.common.short import short
from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.failing import SIZE, Kind, Manner, of_engine
from trtmatrix.judge.garbage import describe_garbage, is_unsteady, other_garbage
from trtmatrix.judge.judge import other_shapes, subject_of
from trtmatrix.judge.numbers import nan_last
from trtmatrix.judge.record import RAN, Record
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Verdict

__all__ = ["Kind", "Manner", "manner_in", "manner_of", "plain_message", "same_manner"]

WEAKER = 10.0
"""Wrong numbers whose relative error is so many times smaller are another failure: less of it is noise."""

STRONGER = 10.0
"""So many times larger it is another failure, too, where it is also above ``PLAIN``."""

PLAIN = 2.0
"""The relative L2 error of an output whose sign is lost. Up to it an error may be that of the same failure,
seen nearer to where it comes in: what is computed after it dilutes it."""

ALIKE = 0.5
"""The share of words that two errors' messages have in common, if they are the same error."""


def manner_of(entry: Entry, calibration: Calibration) -> Manner | None:
    """Return the way in which a cell fails, by its records; None where it does not fail, or has none.

    A control that says nothing (INVALID) does not fail, nor does what is only reported. Of a FLAKY cell it is
    the way of those engines that fail.
    """
    outcome = entry.outcome
    if outcome is None or outcome.verdict not in {Verdict.FAIL, Verdict.FLAKY}:
        return None
    return manner_in(entry.records, entry.cell, calibration)


def manner_in(records: Sequence[Record], cell: Cell, calibration: Calibration) -> Manner | None:
    """Return the way in which comparable records of a cell fail, the newest first; None where none does.

    Where engines fail in several ways it is that of most of them, the newest record's first among equals;
    where what they give is garbage, that of all of them.
    """
    newest = records[0] if records else None
    if newest is not None and (shapes := other_shapes(newest)):
        names = tuple(sorted(filter(None, shapes)))
        words = "; ".join(f"{name}: {said}" if name else said for name, said in sorted(shapes.items()))
        return Manner(kind=Kind.SHAPE, outputs=names, words=words)
    if newest is None or newest.ended != RAN:
        causes = {cause.value for cause in cell.case.bug_is}
        return _ended(newest) if newest is not None and newest.ended in causes else None
    found = [
        manner for record in records if record.ended == RAN
        for subject in (subject_of(record, cell.case, cell.repro, calibration),)
        for build in record.builds
        if (manner := of_engine(build, subject)) is not None
    ]  # fmt: skip
    if not found:
        return None
    (kind, what), _ = Counter((manner.kind, manner.what) for manner in found).most_common(1)[0]
    alike = _pool([manner for manner in found if (manner.kind, manner.what) == (kind, what)])
    return _unsteady(alike, found) if is_unsteady(found) else alike


def _unsteady(alike: Manner, found: Sequence[Manner]) -> Manner:
    """Return the manner of engines whose garbage differs; ``alike``: that of most of them."""
    outputs = tuple(sorted({name for manner in found for name in manner.outputs}))
    errors = tuple(error for manner in found for error in manner.errors)
    words = _about(outputs) + describe_garbage(found)
    return replace(alike, outputs=outputs, errors=errors, words=words, unsteady=True)


def _pool(alike: Sequence[Manner]) -> Manner:
    """Make one manner of those of several engines, which are of one kind; each has its words' pattern."""
    first, sizes = alike[0], tuple(size for manner in alike for size in manner.sizes)
    outputs = tuple(sorted({name for manner in alike for name in manner.outputs}))
    errors = tuple(error for manner in alike for error in manner.errors)
    return replace(
        first, outputs=outputs, sizes=sizes, errors=errors,
        words=_about(outputs) + first.words.replace(SIZE, _range_text(sizes)),
    )  # fmt: skip


def _about(outputs: Sequence[str]) -> str:
    more = f" and {len(outputs) - 4} more" if len(outputs) > 4 else ""
    return f"{', '.join(outputs[:4])}{more}: " if outputs else ""


def _range_text(sizes: Sequence[float]) -> str:
    known = [size for size in sizes if not math.isnan(size)]
    texts = list(dict.fromkeys(map(short, (min(known), max(known)) if known else sizes[:1])))
    return " to ".join(texts)


def _ended(record: Record) -> Manner:
    message = plain_message(record.detail)
    return Manner(kind=Kind.ENDED, what=record.ended, message=message, words=f"{record.ended}: {message}")


def plain_message(text: str) -> str:
    """Return an error's text without what differs from run to run: which build, addresses, paths, numbers.

    The numbers of errors, exit codes and signals stay.
    """
    text = re.sub(r"^build \d+ of \d+: ", "", " ".join(text.split()))
    text = re.sub(r"0x[0-9a-fA-F]+", "…", text)
    text = re.sub(r"(?<![\w.<])(?:/[\w.+-]+){2,}", "<path>", text)
    text = re.sub(r"(?<!code )(?<!Code )(?<!signal )(?<![\w.#])\d+(?:[.:]\d+)*(?![\w])", "#", text)
    return text[:500]


def same_manner(wanted: Manner, found: Manner | None) -> str:
    """Say how a failure differs from the one that is wanted, in words; nothing where it is the same.

    The same are: how it ended with the same error; NaN; zeros; the same known defect; the same measurements
    above their limits; the same remark; wrong numbers that come out in the same precision and whose relative
    error is at most ``WEAKER`` times smaller, and at most ``STRONGER`` times larger or up to ``PLAIN``. Of an
    ``unsteady`` failure any garbage is the same (:func:`trtmatrix.judge.garbage.other_garbage`). Names of
    outputs do not count: a smaller graph has others.
    """
    if found is None:
        return "it does not fail"
    differs = _difference(wanted, found)
    return f"it fails otherwise: {differs}" if differs else ""


def _difference(wanted: Manner, found: Manner) -> str:
    alike = found.kind is wanted.kind and _shares(wanted.what, found.what)
    if not (wanted.unsteady or alike):
        return f"{found.words or found.kind.value}; before: {wanted.words or wanted.kind.value}"
    return other_garbage(wanted, found) if wanted.unsteady else _extent(wanted, found)


def _extent(wanted: Manner, found: Manner) -> str:
    """Say how two steady failures of one kind differ."""
    match wanted.kind:
        case Kind.ENDED:
            same = _are_alike(wanted.message, found.message)
            return "" if same else f"{found.message}; before: {wanted.message}"
        case Kind.WRONG:
            before, after = _largest(wanted.errors), _largest(found.errors)
            known = wanted.errors and found.errors
            other = after < before / WEAKER or after > max(STRONGER * before, PLAIN)
            return f"relative error {short(after)} instead of {short(before)}" if known and other else ""
        case Kind.SHAPE | Kind.NOT_FINITE | Kind.ZEROS | Kind.DEFECT | Kind.LIMIT | Kind.REMARK:
            return ""


def _shares(wanted: str, found: str) -> bool:
    """Whether two lists of names have one in common, or are both empty."""
    return wanted == found or bool({*wanted.split(", ")} & {*found.split(", ")})


def _largest(values: Sequence[float]) -> float:
    return max(map(nan_last, values), default=0.0)


def _are_alike(ours: str, theirs: str) -> bool:
    """Whether two messages are of one error: the same codes and signals, and half of the words."""
    if ours == theirs:
        return True
    codes = [set(re.findall(r"(?:[cC]ode|signal) \d+|\bSIG[A-Z]+\b", text)) for text in (ours, theirs)]
    if codes[0] != codes[1]:
        return False
    a, b = (set(re.findall(r"[^\W\d_]+", text)) for text in (ours, theirs))
    return bool(a | b) and len(a & b) / len(a | b) >= ALIKE
