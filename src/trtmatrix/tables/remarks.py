"""What needs attention: surprises, what has no verdict or says nothing, facts that images contradict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trtmatrix.judge.advice import advise
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.judge import observed_differences
from trtmatrix.judge.words import EVIDENCE_MEANINGS, full_words
from trtmatrix.suite.model import Basis, Verdict
from trtmatrix.suite.outcome import Evidence, Outcome
from trtmatrix.tables.table import one_line


def expected_words(entry: Entry) -> str:
    """Return the verdict that was expected and who says so."""
    expectation, verdict = entry.expectation, entry.expected.value
    if expectation is None:
        control = entry.cell.case.control
        basis = f"{control.value} control" if control else Basis.ASSUMED.value
        return f"{verdict} ({basis})"
    of = f" of {expectation.on}" if expectation.on else ""
    source = f": {one_line(expectation.source)}" if expectation.source else ""
    return f"{verdict} ({expectation.basis.value}{of}{source})"


@dataclass(frozen=True, kw_only=True)
class Surprise:
    """A cell whose verdict is not the expected one, what the verdict rests on, and what to do about it."""

    cell: str
    expected: str
    seen: str
    why: str
    advice: str

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.cell}: expected {self.expected}, seen {self.seen}: {self.why} → {self.advice}"


def find_surprises(entries: Sequence[Entry]) -> tuple[Surprise, ...]:
    """Return every surprise, in the order of the entries."""
    return tuple(_surprise(entry, entry.outcome) for entry in entries if entry.surprise and entry.outcome)


def _surprise(entry: Entry, outcome: Outcome) -> Surprise:
    seen = full_words(outcome)
    if entry.evidence is Evidence.RECORDED:
        seen += f", {EVIDENCE_MEANINGS[entry.evidence]}"
    figure = f"{entry.cell.repro.figure.label} {entry.figure}" if entry.figure else "no figure"
    return Surprise(
        cell=str(entry.cell.id), expected=expected_words(entry), seen=seen,
        why=one_line(_without_count(outcome) or figure), advice=advise(entry),
    )  # fmt: skip


def _without_count(outcome: Outcome) -> str:
    """Return an outcome's reason, without what the words of a flaky verdict say already."""
    return outcome.reason.removeprefix(f"{outcome.failed} of {outcome.builds} builds fail: ")


@dataclass(frozen=True, kw_only=True)
class Unanswered:
    """Cells without an answer for one cause and reason; ``example`` is the id of one."""

    count: int
    cause: str
    reason: str
    example: str

    def __str__(self) -> str:
        """Return them as one line."""
        why = ": ".join(part for part in (self.cause, self.reason) if part)
        cells = f"cell {self.example}" if self.count == 1 else f"for example {self.example}"
        return f"{self.count} × {why} ({cells})"


def find_unanswered(entries: Sequence[Entry]) -> tuple[Unanswered, ...]:
    """Group what ran without a verdict by cause and reason, the commonest first."""
    return _group(entry for entry in entries if _is(entry, Verdict.NO_VERDICT))


def find_silent(entries: Sequence[Entry]) -> tuple[Unanswered, ...]:
    """Group what says nothing, against expectation, by its reason, the commonest first."""
    return _group(e for e in entries if _is(e, Verdict.INVALID) and e.expected is not Verdict.INVALID)


def _is(entry: Entry, verdict: Verdict) -> bool:
    ran = entry.evidence in {Evidence.MEASURED, Evidence.RECORDED}
    return ran and entry.outcome is not None and entry.outcome.verdict is verdict


def _group(entries: Iterable[Entry]) -> tuple[Unanswered, ...]:
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if (outcome := entry.outcome) is not None:
            cause = outcome.cause.value if outcome.cause else outcome.verdict.value
            groups.setdefault((cause, one_line(outcome.reason)), []).append(entry)
    found = [
        Unanswered(count=len(mine), cause=cause, reason=reason, example=str(mine[0].cell.id))
        for (cause, reason), mine in groups.items()
    ]
    return tuple(sorted(found, key=lambda item: -item.count))


def find_overruled(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return a line for each cell of which a shared process said something else than is believed."""
    return tuple(f"{entry.cell.id}: {entry.overruled}" for entry in entries if entry.overruled)


def find_contradicted(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return a line for each fact of matrix.yaml that a measured record contradicts."""
    lines: dict[str, None] = {}
    for entry in entries:
        if entry.record is None or entry.evidence is not Evidence.MEASURED:
            continue
        version = entry.cell.version
        for name, (pinned, seen) in observed_differences(entry.record, version).items():
            line = f"{version.name}: {name} is {seen}, matrix.yaml says {pinned}"
            lines[one_line(line)] = None
    return tuple(lines)


def find_remarks(entries: Sequence[Entry]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield all that needs attention: a title and a line each; nothing of what there is none of."""
    remarks: tuple[tuple[str, Sequence[str]], ...] = (
        ("Surprises", [str(item) for item in find_surprises(entries)]),
        ("Says nothing", [str(item) for item in find_silent(entries)]),
        ("No verdict", [str(item) for item in find_unanswered(entries)]),
        ("Set aside", find_overruled(entries)),
        ("Facts of matrix.yaml that images contradict", find_contradicted(entries)),
    )
    return ((title, lines) for title, lines in remarks if lines)
