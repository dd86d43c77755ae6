"""What is said beside the tables: counts by product, surprises, causes, facts contradicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trtmatrix.core.compare import Entry, expected_verdict
from trtmatrix.core.judge import observed_differences
from trtmatrix.core.model import Basis, Evidence, Exclusion, Outcome, Product, Verdict
from trtmatrix.core.table import one_line
from trtmatrix.core.words import EVIDENCE_MEANINGS, PRODUCT_NAMES, full_words, marked, outcome_word

NOT_ATTEMPTED = "not tried yet"
_DOCTOR = frozenset(
    {
        Exclusion.NO_ENGINE,
        Exclusion.NO_GPU_ACCESS,
        Exclusion.DRIVER_TOO_OLD,
        Exclusion.IMAGE_NOT_PULLED,
        Exclusion.IMAGE_NOT_BUILT,
        Exclusion.NOT_READY,
    }
)


@dataclass(frozen=True, kw_only=True)
class NotRun:
    """Cells that were not run, for one reason."""

    count: int
    why: Exclusion | None
    text: str


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The cells of one product. ``cells`` is the sum of the five kinds that follow it.

    ``measured``: run here, with numbers to judge; ``built``: parsed and built only;
    ``without_verdict``: attempted here in vain; ``recorded``: run elsewhere or before a change;
    ``not_run``: none of these. ``words`` counts the shown words, with their marks.
    """

    product: Product
    cells: int
    measured: int
    built: int
    without_verdict: int
    recorded: int
    not_run: int
    executed: int
    served: int
    surprises: int
    words: tuple[tuple[str, int], ...]
    reasons: tuple[NotRun, ...]


def count_products(entries: Sequence[Entry]) -> tuple[Counts, ...]:
    """Count each product's cells; TensorRT is always counted, the others where they have cells."""
    return tuple(
        _count(product, mine)
        for product in Product
        if (mine := [entry for entry in entries if entry.cell.version.product is product])
        or product is Product.TENSORRT
    )


def _count(product: Product, entries: Sequence[Entry]) -> Counts:
    here = [entry.outcome for entry in entries if entry.evidence is Evidence.MEASURED]
    verdicts = Counter(outcome.verdict for outcome in here if outcome is not None)
    not_run = [e for e in entries if e.evidence in {Evidence.REPORTED, Evidence.NONE}]
    built, vain = verdicts[Verdict.BUILT], verdicts[Verdict.NO_VERDICT]
    return Counts(
        product=product, cells=len(entries), measured=len(here) - built - vain, built=built,
        without_verdict=vain, recorded=len(entries) - len(here) - len(not_run),
        not_run=len(not_run),
        executed=sum(entry.executed for entry in entries),
        served=sum(e.evidence is Evidence.MEASURED and not e.executed for e in entries),
        surprises=sum(entry.surprise for entry in entries),
        words=_count_words(entries), reasons=_reasons(not_run),
    )  # fmt: skip


def _count_words(entries: Sequence[Entry]) -> tuple[tuple[str, int], ...]:
    """Count the words of what ran, measured before recorded, the commonest first."""
    found: Counter[str] = Counter()
    for evidence in (Evidence.MEASURED, Evidence.RECORDED):
        found += Counter(
            marked(entry, outcome_word(entry.outcome))
            for entry in entries
            if entry.evidence is evidence and entry.outcome is not None
        )
    return tuple(sorted(found.items(), key=lambda item: (item[0].startswith("["), -item[1])))


def _reasons(entries: Sequence[Entry]) -> tuple[NotRun, ...]:
    found = Counter(_reason(entry) for entry in entries)
    return tuple(NotRun(count=count, why=why, text=text) for (why, text), count in found.most_common())


def _reason(entry: Entry) -> tuple[Exclusion | None, str]:
    excluded = entry.excluded
    if excluded is None:
        return None, NOT_ATTEMPTED
    if excluded.why is Exclusion.COMPONENT_MISSING and excluded.detail:
        return excluded.why, one_line(excluded.detail)
    return excluded.why, excluded.why.value


def headline(counts: Counts) -> str:
    """Return the line that always counts: ``0 TensorRT cells measured, 131 not run: …``."""
    cells = "cell" if counts.measured == 1 else "cells"
    parts = [f"{counts.measured} {PRODUCT_NAMES[counts.product]} {cells} measured"]
    if counts.product is not Product.TENSORRT and counts.built and not counts.measured:
        cells = "cell" if counts.built == 1 else "cells"
        parts = [f"{counts.built} {PRODUCT_NAMES[counts.product]} {cells} parsed and built"]
    elif counts.built:
        parts.append(f"{counts.built} parsed and built")
    if counts.without_verdict:
        parts.append(f"{counts.without_verdict} without a verdict")
    if counts.recorded:
        parts.append(f"{counts.recorded} recorded elsewhere or before a change")
    if counts.not_run:
        parts.append(f"{counts.not_run} not run: {_reason_words(counts.reasons)}")
    return ", ".join(parts)


def _reason_words(reasons: Sequence[NotRun]) -> str:
    """Return the counted reasons; the first that ``doctor`` has a remedy for says so."""
    curable = next((reason for reason in reasons if reason.why in _DOCTOR), None)
    return ", ".join(
        f"{reason.count} {reason.text}" + (" (doctor says how)" if reason is curable else "")
        for reason in reasons
    )


def detail_line(counts: Counts) -> str:
    """Return where the shown verdicts are from and how many there are of each, or nothing."""
    parts = []
    if counts.executed or counts.served:
        parts.append(f"{counts.executed} executed now, {counts.served} from the store")
    if counts.words:
        parts.append(", ".join(f"{count} {word}" for word, count in counts.words))
        parts.append(f"{counts.surprises} surprise" + ("" if counts.surprises == 1 else "s"))
    return "; ".join(parts)


def expected_words(entry: Entry) -> str:
    """Return the verdict that was expected and who says so."""
    expectation = entry.expectation
    verdict = expected_verdict(entry.cell, expectation).value
    if expectation is None:
        control = entry.cell.case.control
        basis = f"{control.value} control" if control else Basis.ASSUMED.value
        return f"{verdict} ({basis})"
    of = f" of {expectation.on}" if expectation.on else ""
    source = f": {one_line(expectation.source)}" if expectation.source else ""
    return f"{verdict} ({expectation.basis.value}{of}{source})"


def why_not_run(entry: Entry) -> str:
    """Return why a cell was not run, in full."""
    if entry.excluded is None:
        return NOT_ATTEMPTED
    detail = one_line(entry.excluded.detail)
    return f"{entry.excluded.why.value}: {detail}" if detail else entry.excluded.why.value


@dataclass(frozen=True, kw_only=True)
class Surprise:
    """A cell whose verdict is not the expected one, and what the verdict rests on."""

    cell: str
    expected: str
    seen: str
    why: str

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.cell}: expected {self.expected}, seen {self.seen}: {self.why}"


def find_surprises(entries: Sequence[Entry]) -> tuple[Surprise, ...]:
    """Return every surprise, in the order of the entries."""
    return tuple(_surprise(entry, entry.outcome) for entry in entries if entry.surprise)


def _surprise(entry: Entry, outcome: Outcome | None) -> Surprise:
    seen = full_words(outcome) if outcome else "nothing"
    if entry.evidence is Evidence.RECORDED:
        seen += f" ({EVIDENCE_MEANINGS[entry.evidence]})"
    figure = f"{entry.cell.repro.figure.label} {entry.figure}" if entry.figure else "no figure"
    return Surprise(
        cell=str(entry.cell.id), expected=expected_words(entry), seen=seen,
        why=one_line((outcome.reason if outcome else "") or figure),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Unanswered:
    """Cells without a verdict for one cause and reason; ``example`` is the id of one."""

    count: int
    cause: str
    reason: str
    example: str

    def __str__(self) -> str:
        """Return them as one line."""
        why = f"{self.cause}: {self.reason}" if self.reason else self.cause
        cells = f"cell {self.example}" if self.count == 1 else f"for example {self.example}"
        return f"{self.count} × {why} ({cells})"


def find_unanswered(entries: Sequence[Entry]) -> tuple[Unanswered, ...]:
    """Group what ran without a verdict by cause and reason, the commonest first."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        outcome = entry.outcome
        if outcome is not None and outcome.verdict is Verdict.NO_VERDICT:
            cause = outcome.cause.value if outcome.cause else Verdict.NO_VERDICT.value.lower()
            groups.setdefault((cause, one_line(outcome.reason)), []).append(entry)
    found = [
        Unanswered(count=len(mine), cause=cause, reason=reason, example=str(mine[0].cell.id))
        for (cause, reason), mine in groups.items()
    ]
    return tuple(sorted(found, key=lambda item: -item.count))


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
