"""The headline of each product: counts of its cells, and why others were not run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trtmatrix.common.words import counted, one_line
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.words import PRODUCT_NAMES
from trtmatrix.suite.model import Evidence, Exclusion, Product, Verdict

NOT_ATTEMPTED = "not tried yet"
DOCTOR = frozenset(
    {
        Exclusion.NO_ENGINE, Exclusion.NO_GPU_ACCESS, Exclusion.DRIVER_TOO_OLD, Exclusion.IMAGE_NOT_PULLED,
        Exclusion.IMAGE_NOT_BUILT, Exclusion.NOT_HERE, Exclusion.NOT_READY,
    }
)  # fmt: skip
"""What ``doctor`` has a remedy for."""


@dataclass(frozen=True, kw_only=True)
class NotRun:
    """Cells that were not run, for one reason; ``told``: the text says all of it, so that nobody is asked."""

    count: int
    why: Exclusion | None
    text: str
    told: bool = False


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The cells of one product. ``cells`` is the sum of the five kinds that follow it.

    ``measured``: run here, with numbers to judge; ``built``: parsed and built only;
    ``without_verdict``: attempted here in vain; ``recorded``: run elsewhere or before a change;
    ``not_run``: none of these.
    """

    product: Product
    cells: int
    measured: int
    built: int
    without_verdict: int
    recorded: int
    not_run: int
    executed: int
    from_store: int
    surprises: int
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
    here = [entry for entry in entries if entry.evidence is Evidence.MEASURED]
    verdicts = Counter(entry.outcome.verdict for entry in here if entry.outcome is not None)
    not_run = [e for e in entries if e.evidence in {Evidence.REPORTED, Evidence.NONE}]
    built, vain = verdicts[Verdict.BUILT], verdicts[Verdict.NO_VERDICT]
    reasons = Counter(map(_reason, not_run)).most_common()
    return Counts(
        product=product, cells=len(entries), measured=len(here) - built - vain, built=built,
        without_verdict=vain, recorded=len(entries) - len(here) - len(not_run), not_run=len(not_run),
        executed=sum(entry.executed for entry in entries),
        from_store=sum(not entry.executed for entry in here),
        surprises=sum(entry.surprise for entry in entries),
        reasons=tuple(
            NotRun(count=count, why=why, text=text, told=told) for (why, text, told), count in reasons
        ),
    )  # fmt: skip


def _reason(entry: Entry) -> tuple[Exclusion | None, str, bool]:
    """Return why a cell was not run; of a cluster's job what it came to, which no doctor sees from here."""
    if entry.excluded is None:
        return None, NOT_ATTEMPTED, False
    why, detail = entry.excluded.why, entry.excluded.detail
    match why:
        case Exclusion.COMPONENT_MISSING if detail:
            return why, one_line(detail), False
        case Exclusion.NOT_READY if detail and entry.cell.gpu.remote:
            return why, f"{why.value} ({one_line(detail, 240)})", True
        case Exclusion.OTHER_GPU if detail:
            return why, f"{why.value} ({detail})", False
        case _:
            return why, why.value, False


def headline(counts: Counts) -> str:
    """Return the line that always counts: ``0 TensorRT cells measured, 131 not run: …``."""
    name = PRODUCT_NAMES[counts.product]
    parts = [f"{counted(counts.measured, f'{name} cell')} measured"]
    if counts.product is not Product.TENSORRT and counts.built and not counts.measured:
        parts = [f"{counted(counts.built, f'{name} cell')} parsed and built"]
    elif counts.built:
        parts.append(f"{counts.built} parsed and built")
    parts += [f"{counts.without_verdict} without a verdict"] if counts.without_verdict else []
    parts += [f"{counts.recorded} recorded elsewhere or before a change"] if counts.recorded else []
    parts += [f"{counts.not_run} not run: {reason_words(counts.reasons)}"] if counts.not_run else []
    return ", ".join(parts)


def reason_words(reasons: Sequence[NotRun]) -> str:
    """Return the counted reasons; the first that ``doctor`` has a remedy for says so."""
    curable = next((reason for reason in reasons if reason.why in DOCTOR and not reason.told), None)
    return ", ".join(
        f"{reason.count} {reason.text}" + (" (doctor says how)" if reason is curable else "")
        for reason in reasons
    )


def why_not_run(entry: Entry) -> str:
    """Return why a cell was not run, in full."""
    if entry.excluded is None:
        return NOT_ATTEMPTED
    return f"{entry.excluded.why.value}: {one_line(entry.excluded.detail)}".removesuffix(": ")
