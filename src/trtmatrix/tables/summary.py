"""What is said below the tables: counts by product, why cells were not run, how the controls came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trtmatrix.judge.controls import ControlCounts, count_controls
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.words import PRODUCT_NAMES, marked, outcome_word
from trtmatrix.suite.model import Product, Verdict
from trtmatrix.suite.outcome import Evidence, Exclusion
from trtmatrix.suite.plan import SITE_HAS
from trtmatrix.tables.table import one_line

NOT_ATTEMPTED = "not tried yet"
NOT_OF_THE_SITE = "no such GPU in slurm.yaml"
MOST_TOLD = 240
"""Letters of what a job came to."""
DOCTOR = frozenset(
    {
        Exclusion.NO_ENGINE,
        Exclusion.NO_GPU_ACCESS,
        Exclusion.DRIVER_TOO_OLD,
        Exclusion.IMAGE_NOT_PULLED,
        Exclusion.IMAGE_NOT_BUILT,
        Exclusion.NOT_HERE,
        Exclusion.NOT_READY,
    }
)


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
    ``not_run``: none of these. ``companions`` of those measured ran only as controls of others. ``words``
    counts the shown words, with their marks.
    """

    product: Product
    cells: int
    measured: int
    built: int
    without_verdict: int
    recorded: int
    not_run: int
    companions: int
    executed: int
    served: int
    surprises: int
    words: tuple[tuple[str, int], ...]
    reasons: tuple[NotRun, ...]
    controls: ControlCounts


def count_products(entries: Sequence[Entry]) -> tuple[Counts, ...]:
    """Count each product's cells; TensorRT is always counted, the others where they have cells."""
    return tuple(
        _count(product, mine, count_controls(entries, product))
        for product in Product
        if (mine := [entry for entry in entries if entry.cell.version.product is product])
        or product is Product.TENSORRT
    )


def _count(product: Product, entries: Sequence[Entry], controls: ControlCounts) -> Counts:
    here = [entry.outcome for entry in entries if entry.evidence is Evidence.MEASURED]
    verdicts = Counter(outcome.verdict for outcome in here if outcome is not None)
    not_run = [e for e in entries if e.evidence in {Evidence.REPORTED, Evidence.NONE}]
    built, vain = verdicts[Verdict.BUILT], verdicts[Verdict.NO_VERDICT]
    return Counts(
        product=product, cells=len(entries), measured=len(here) - built - vain, built=built,
        without_verdict=vain, recorded=len(entries) - len(here) - len(not_run),
        not_run=len(not_run),
        companions=sum(e.cell.companion and e.evidence is Evidence.MEASURED for e in entries),
        executed=sum(entry.executed for entry in entries),
        served=sum(e.evidence is Evidence.MEASURED and not e.executed for e in entries),
        surprises=sum(entry.surprise for entry in entries),
        words=_count_words(entries), reasons=_reasons(not_run), controls=controls,
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
    return tuple(
        NotRun(count=count, why=why, text=text, told=told) for (why, text, told), count in found.most_common()
    )


def _reason(entry: Entry) -> tuple[Exclusion | None, str, bool]:
    """Return why a cell was not run; of a cluster's job what it came to, which no doctor sees from here."""
    excluded = entry.excluded
    if excluded is None:
        return None, NOT_ATTEMPTED, False
    if excluded.why is Exclusion.COMPONENT_MISSING and excluded.detail:
        return excluded.why, one_line(excluded.detail), False
    if excluded.why is Exclusion.NOT_READY and excluded.detail and entry.cell.gpu.remote:
        return excluded.why, f"{excluded.why.value} ({one_line(excluded.detail, MOST_TOLD)})", True
    if excluded.why is Exclusion.OTHER_GPU and excluded.detail.startswith(SITE_HAS):
        return excluded.why, NOT_OF_THE_SITE, True
    if excluded.why is Exclusion.OTHER_GPU and excluded.detail:
        return excluded.why, f"{excluded.why.value} ({excluded.detail})", False
    return excluded.why, excluded.why.value, False


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
        parts.append(f"{counts.not_run} not run: {reason_words(counts.reasons)}")
    return ", ".join(parts)


def reason_words(reasons: Sequence[NotRun]) -> str:
    """Return the counted reasons; the first that ``doctor`` has a remedy for says so."""
    curable = next((reason for reason in reasons if reason.why in DOCTOR and not reason.told), None)
    return ", ".join(
        f"{reason.count} {reason.text}" + (" (doctor says how)" if reason is curable else "")
        for reason in reasons
    )


def detail_line(counts: Counts) -> str:
    """Return where the shown verdicts are from and how many there are of each, or nothing."""
    parts = []
    if counts.executed or counts.served:
        others = f" ({counts.companions} of them only as controls of others)" if counts.companions else ""
        parts.append(f"{counts.executed} executed now, {counts.served} from the store{others}")
    if counts.words:
        parts.append(", ".join(f"{count} {word}" for word, count in counts.words))
        parts.append(f"{counts.surprises} surprise" + ("" if counts.surprises == 1 else "s"))
    return "; ".join(parts)


def control_line(counts: Counts) -> str:
    """Return how the controls came out that were measured here, and how many cells had none, or nothing."""
    controls = counts.controls
    parts = []
    if controls.total:
        kinds = f"{controls.negative} negative, {controls.positive} positive"
        parts.append(f"{controls.right} of {controls.total} came out as they must ({kinds})")
    if controls.wrong:
        more = len(controls.wrong) - _MOST_NAMED
        names = ", ".join(controls.wrong[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        parts.append(f"not so: {names}")
    if controls.uncontrolled:
        cells = "cell" if controls.uncontrolled == 1 else "cells"
        parts.append(f"not controlled: {controls.uncontrolled} {cells} without a control that ran")
    return f"controls: {'; '.join(parts)}" if parts else ""


_MOST_NAMED = 5


def count_lines(counts: Counts) -> list[str]:
    """Return the headline of a product, then what there is to add."""
    return [headline(counts), *(line for line in (detail_line(counts), control_line(counts)) if line)]


def why_not_run(entry: Entry) -> str:
    """Return why a cell was not run, in full."""
    if entry.excluded is None:
        return NOT_ATTEMPTED
    detail = one_line(entry.excluded.detail)
    return f"{entry.excluded.why.value}: {detail}" if detail else entry.excluded.why.value
