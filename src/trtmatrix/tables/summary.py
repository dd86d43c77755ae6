"""The headline of each product: counts of its cells, and why others were not run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trtmatrix.common.text import counted, one_line
from trtmatrix.judge.entry import PRODUCT_NAMES, Entry
from trtmatrix.suite.model import Evidence, Exclusion, Product, Verdict

NOT_ATTEMPTED = "not tried yet"
DOCTOR = {
    Exclusion.NO_ENGINE, Exclusion.NO_GPU_ACCESS, Exclusion.DRIVER_TOO_OLD, Exclusion.IMAGE_NOT_PULLED,
    Exclusion.IMAGE_NOT_BUILT, Exclusion.NOT_HERE, Exclusion.NOT_READY,
}  # fmt: skip
"""What ``doctor`` has a remedy for."""


@dataclass(frozen=True, kw_only=True)
class NotRun:
    """Cells that were not run, for one reason; ``told``: the text says all of it, so that nobody is asked."""

    why: Exclusion | None
    text: str
    told: bool = False
    count: int = 0


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
    found = []
    for product in Product:
        mine = [entry for entry in entries if entry.cell.version.product is product]
        here = [entry for entry in mine if entry.evidence is Evidence.MEASURED]
        not_run = [entry for entry in mine if not entry.evidence.is_record]
        verdicts = Counter(entry.verdict for entry in here)
        built, vain = verdicts[Verdict.BUILT], verdicts[Verdict.NO_VERDICT]
        counts = Counts(
            product=product, cells=len(mine), measured=len(here) - built - vain, built=built,
            without_verdict=vain, recorded=len(mine) - len(here) - len(not_run), not_run=len(not_run),
            executed=sum(entry.executed for entry in mine),
            from_store=sum(not entry.executed for entry in here),
            surprises=sum(entry.surprise for entry in mine),
            reasons=count_reasons(not_run),
        )  # fmt: skip
        if mine or product is Product.TENSORRT:
            found.append(counts)
    return tuple(found)


def count_reasons(entries: Iterable[Entry]) -> tuple[NotRun, ...]:
    """Return why cells were not run, each reason with how many there are of it, the commonest first."""
    found = Counter(map(_reason, entries)).most_common()
    return tuple(replace(reason, count=count) for reason, count in found)


def _reason(entry: Entry) -> NotRun:
    """Return why a cell was not run; of a cluster's job what it came to, which no doctor sees from here."""
    if entry.excluded is None:
        return NotRun(why=None, text=NOT_ATTEMPTED)
    why, detail = entry.excluded.why, entry.excluded.detail
    of_job = why is Exclusion.NOT_READY and entry.cell.gpu.remote
    words = one_line(detail, 240) if of_job or why is Exclusion.OTHER_GPU else ""
    if detail and why is Exclusion.COMPONENT_MISSING:
        return NotRun(why=why, text=one_line(detail))
    return NotRun(why=why, text=f"{why.value} ({words})" if words else why.value, told=of_job and bool(words))


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
    """Return the reasons, counted where there are several; the first with a remedy of ``doctor`` says so."""
    curable = next((reason for reason in reasons if reason.why in DOCTOR and not reason.told), None)
    return ", ".join(
        f"{reason.count} " * (len(reasons) > 1) + reason.text + " (doctor says how)" * (reason is curable)
        for reason in reasons
    )


def why_not_run(entry: Entry) -> str:
    """Return why a cell was not run, in full."""
    if entry.excluded is None:
        return NOT_ATTEMPTED
    return f"{entry.excluded.why.value}: {one_line(entry.excluded.detail)}".removesuffix(": ")
