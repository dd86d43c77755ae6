"""Measures what changes a failure: the cell again, at the same version, with one thing changed at a time.

The changed cases are a repro of their own in the cache, run by the version's own launcher like any other.
Its records lie there too: what was measured once is served, so that an archive is made twice the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trtmatrix.change_runs import ChangedRuns
from trtmatrix.changed_files import look_into
from trtmatrix.context import Context
from trtmatrix.core.bundle.changes import Change, find_equal, list_changes
from trtmatrix.core.bundle.facts import ChangeLine
from trtmatrix.core.calibration import Calibration
from trtmatrix.core.entry import Entry
from trtmatrix.core.errors import TrtMatrixError
from trtmatrix.core.manner import Manner, manner_of, same_manner
from trtmatrix.core.model import Cause, Outcome, Verdict
from trtmatrix.core.record import Record
from trtmatrix.core.table import one_line

NOT_ASKED = "not measured: --no-changes"
NO_LEVELS = "this version has no optimization levels"
LUCK = 0.05
"""A failure of some engines alone is called gone where luck alone would hide it less often than this."""

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What came of changes, by their ids: what was measured, and why others were not."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    troubles: Mapping[str, str] = field(default_factory=dict)


def measure_changes(
    context: Context, entry: Entry, calibration: Calibration, args: argparse.Namespace, tell: Tell
) -> tuple[ChangeLine, ...]:
    """Return what each change does to a cell that fails; nothing of a cell that does not.

    ``context``: with the cell's repro (of a user's model as :func:`trtmatrix.own_model.open_model` gave it).
    ``args``: ``no_changes`` leaves it at what is stored; ``memory`` and the like are a run's. What cannot be
    measured is said in its line. An interrupt goes on to the caller; what was measured by then is stored.
    """
    wanted = manner_of(entry, calibration)
    if wanted is None:
        return ()
    runs = ChangedRuns(context, entry, calibration, args)
    try:
        changes, answers = _measure(runs, entry, bool(getattr(args, "no_changes", False)), tell)
    except (TrtMatrixError, OSError) as error:
        why = one_line(f"not measured: {error}")
        return (ChangeLine(change="precision, optimization level, outputs, batch", why_not=why),)
    return tuple(_line(change, answers, entry, wanted, calibration) for change in changes)


def _measure(
    runs: ChangedRuns, entry: Entry, stored_only: bool, tell: Tell
) -> tuple[Sequence[Change], Answers]:
    """Return the changes and what came of them: by cases of the repro's own, stored, or run now."""
    cell = entry.cell
    seen, batched = look_into(runs.loaded, cell, runs.prepare())
    changes = list_changes(cell, seen)
    rest = [change for change in changes if not change.why_not and not change.as_it_is]
    equal = {change.id: find_equal(cell.repro, cell.case, change) for change in rest}
    entries = dict(runs.of_cases({name: case for name, case in equal.items() if case is not None}))
    rest = [change for change in rest if change.id not in entries]
    if not rest:
        return changes, Answers(entries=entries)
    changed = runs.open(rest, batched)
    entries.update(changed.stored())
    missing = [change for change in rest if change.id not in entries]
    if stored_only or not missing:
        return changes, Answers(entries=entries, troubles={change.id: NOT_ASKED for change in missing})
    tell(f"{cell.id}: what changes it: {', '.join(change.words for change in missing)}")
    ran, troubles = changed.run(missing)
    return changes, Answers(entries={**entries, **ran}, troubles=troubles)


def _line(
    change: Change, answers: Answers, entry: Entry, wanted: Manner, calibration: Calibration
) -> ChangeLine:
    if change.as_it_is and change.level is not None and _ignores_level(entry.record):
        return ChangeLine(change=change.words, why_not=NO_LEVELS)
    if change.as_it_is:
        return _told(f"{change.words} (as in this case)", entry, "")
    found = answers.entries.get(change.id)
    if found is None:
        why = change.why_not or answers.troubles.get(change.id, "not measured: it left no record")
        return ChangeLine(change=change.words, why_not=why)
    if _ignores_level(found.record):
        return ChangeLine(change=change.words, why_not=NO_LEVELS)
    told = _told(change.words, found, same_manner(wanted, manner_of(found, calibration)))
    lucky = _luck(entry.outcome, told.builds)
    if told.verdict is Verdict.PASS and lucky > LUCK:
        why = f"right in {told.builds or 1} builds, which luck alone gives in {100 * lucky:.0f}% of cases"
        return replace(told, fails=None, why_not=why)
    return told


def _luck(outcome: Outcome | None, builds: int) -> float:
    """Return how likely a failure of some engines alone is missed by so many: (1 − k/n)^builds."""
    if outcome is None or outcome.verdict is not Verdict.FLAKY or not outcome.builds:
        return 0.0
    return float((1 - outcome.failed / outcome.builds) ** max(1, builds))


def _told(words: str, found: Entry, differs: str) -> ChangeLine:
    """Return the line of what was measured. ``differs``: how it fails otherwise, or that it does not fail."""
    outcome = found.outcome
    if outcome is None:
        return ChangeLine(change=words, why_not="not measured: it has no verdict")
    told = ChangeLine(
        change=words, verdict=outcome.verdict, figure=found.figure, builds=outcome.builds,
        reason=one_line(outcome.reason),
    )  # fmt: skip
    match outcome.verdict:
        case Verdict.PASS:
            return replace(told, fails=False)
        case Verdict.FAIL | Verdict.FLAKY:
            return replace(told, fails=not differs, reason=one_line(differs) or told.reason)
        case Verdict.INVALID | Verdict.BUILT | Verdict.NO_VERDICT:
            return replace(told, why_not=_why_not(outcome.cause, outcome.verdict, told.reason))


def _why_not(cause: Cause | None, verdict: Verdict, reason: str) -> str:
    what = cause.value if cause else verdict.value
    return f"{what}: {reason}".rstrip(": ")


def _ignores_level(record: Record | None) -> bool:
    """Whether the builder had no level to set, though one was asked for."""
    return record is not None and "level_ignored" in record.data.get("engine", {})
