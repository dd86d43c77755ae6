"""Records of a cell to an entry: what must be seen again alone, what was unexpected, what to do. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import takewhile

from trtmatrix.common.errors import ExitCode
from trtmatrix.common.text import join_some
from trtmatrix.judge.controls import apply_controls
from trtmatrix.judge.entry import (
    BOARD,
    Entry,
    Stored,
    are_comparable,
    expected_verdict,
    full_words,
    is_digest_of,
)
from trtmatrix.judge.judge import combine, judge_record, other_shapes, read_figure
from trtmatrix.judge.noise import NOT_CALIBRATED, Calibration
from trtmatrix.judge.record import BUILT, RAN, Record
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import (
    Basis,
    Cause,
    CellId,
    Control,
    Evidence,
    Exclusion,
    Outcome,
    Product,
    Verdict,
)
from trtmatrix.suite.plan import Excluded

CONFIRMING_BUILDS = 3
"""Engines that are built in a fresh process before a failure is believed."""
DECIDING_BUILDS = 8
"""Engines that are built alone once more where those before contradict what a shared process said.

With three alone, a fault of one build in four would be missed in 42% of cases (0.75³), with eleven in 4%.
"""
LEAST_SAMPLED = 10
"""Cells of a run from which on some are sampled: one cell alone would be run twice, and it shares nothing."""
SAMPLED = 50
"""Of so many cells of a run one is run again in a fresh process also where it passes, and one at least.

A cell can change what later ones in its process do, unseen. A fresh process on a GPU takes as long as several
cells: of a run of 49 it adds a twentieth to a twelfth.
"""
FROM_THE_PROCESS = {
    Cause.OUT_OF_GPU_MEMORY, Cause.OUT_OF_HOST_MEMORY, Cause.TIME_OUT, Cause.BUILD_FAILED, Cause.CRASHED,
    Cause.PROBE_FAILED,
}  # fmt: skip
"""Why a cell has no verdict, where what ran in its process before may have done it."""


def sample_cells(cells: Iterable[CellId], seed: bytes) -> frozenset[CellId]:
    """Return the cells of a run whose PASS is not believed before it was seen in a fresh process.

    ``seed``: what no cell can know, or it would lie where nobody looks.
    """
    ranked = sorted(cells, key=lambda cell: sha256(seed + str(cell).encode()).digest())
    return frozenset(ranked[: -(-len(ranked) // SAMPLED)] if len(ranked) >= LEAST_SAMPLED else ())


def assess(cell: Cell, records: Sequence[Record], calibration: Calibration = NOT_CALIBRATED) -> Entry:
    """Judge comparable records of a cell, the newest first, each once; says what they come to together."""
    judged = [judge_record(record, cell, calibration) for record in records]
    said = [combine([one], cell) for one in judged]
    alone = [i for i, r in enumerate(records) if r.confirms and not is_shared(r) and not _is_machinery(r)]
    tried = {records[i].confirms for i in alone}
    aside = {
        record.run for i, record in enumerate(records)
        if alone and is_shared(record)
        and (record.run in tried or (i > alone[0] and _is_doubtful(cell, said[i])))
    }  # fmt: skip
    counted = [one for one in judged if one[0].run not in aside]
    doubted = [outcome for record, outcome in zip(records, said, strict=True) if record.run in aside]
    outcome, kept = combine(counted, cell), tuple(record for record, _ in counted)
    other = [one for one in doubted if (one.verdict, one.cause) != (outcome.verdict, outcome.cause)]
    overruled = f"a run in a shared process said {full_words(other[0])}" if other else ""
    overruled += f"; alone it says {full_words(outcome)}" if other else ""
    return Entry(
        cell=cell, evidence=Evidence.RECORDED, outcome=outcome, record=kept[0], records=kept,
        set_aside=tuple(record for record in records if record.run in aside), overruled=overruled,
        wanted=_engines_wanted(cell, outcome, kept, records, doubted),
    )  # fmt: skip


def _engines_wanted(
    cell: Cell, outcome: Outcome, counted: Sequence[Record], records: Sequence[Record],
    doubted: Sequence[Outcome],
) -> int:  # fmt: skip
    """Return how many engines must be built alone; ``doubted``: what those that are set aside say."""
    newest, on_tensorrt = counted[0], cell.version.product is Product.TENSORRT
    if is_shared(newest):
        if not _is_doubtful(cell, outcome):
            return 0
        return CONFIRMING_BUILDS if on_tensorrt and newest.ended == RAN else 1
    if not on_tensorrt:
        return 0
    agree = {
        Verdict.FLAKY: {Verdict.PASS, Verdict.FAIL, Verdict.FLAKY},  # it shows both
        Verdict.FAIL: {Verdict.FAIL, Verdict.FLAKY},
    }.get(outcome.verdict, {outcome.verdict})
    if any(before.verdict not in agree for before in doubted):
        # the newest may be the only one made alone since what is set aside, of few in all
        kept = {record.run for record in counted}
        since = takewhile(lambda record: record.run in kept, records)
        tries = [record for record in since if record.confirms and not _is_machinery(record)]
        few = count_engines(r for r in records if not is_shared(r)) < CONFIRMING_BUILDS + DECIDING_BUILDS
        if few and tries == [newest] and newest.ended == RAN:
            return DECIDING_BUILDS
    if outcome.verdict is Verdict.FAIL:  # what was made alone is luck, maybe
        is_luck = cell.case.control is not Control.NEGATIVE
    else:
        is_luck = outcome.verdict is Verdict.PASS and expected_verdict(cell) is not Verdict.PASS
    causes = [_cause_of(record) for record in counted if record.confirms]
    seen_again = any(not (c and c.may_pass and c not in cell.case.bug_is) for c in causes)
    is_luck = is_luck and not seen_again and count_engines(counted) <= CONFIRMING_BUILDS
    return CONFIRMING_BUILDS if is_luck else 0


def _is_doubtful(cell: Cell, outcome: Outcome) -> bool:
    """Whether what ran in the process before may be why a cell came out so."""
    verdict, expected = outcome.verdict, expected_verdict(cell)
    if verdict is Verdict.NO_VERDICT:
        return outcome.cause in FROM_THE_PROCESS
    if verdict is Verdict.FAIL:
        return cell.case.control is not Control.NEGATIVE or expected is not Verdict.FAIL
    return verdict is Verdict.FLAKY or (verdict is not Verdict.BUILT and verdict is not expected)


def _is_machinery(record: Record) -> bool:
    cause = _cause_of(record)
    return cause is not None and cause.is_machinery


def _cause_of(record: Record) -> Cause | None:
    return None if record.ended in {RAN, BUILT} or other_shapes(record) else Cause(record.ended)


def is_shared(record: Record) -> bool:
    """Whether other cells had run in a record's process before it, or it ran an engine that another built.

    Older records were made alone.
    """
    position = record.data.get("worker", {}).get("position")
    builds = record.data.get("builds") or [record.data]
    engines = (engine for build in builds for engine in (build.get("engine") or {}).get("engines", ()))
    first = not isinstance(position, int) or position <= 0
    return not first or any("shared_with" in engine for engine in engines)


def count_engines(records: Iterable[Record]) -> int:
    """Return how many engines records hold; a process that builds its own counts as one."""
    return sum(record.engines for record in records)


def is_current(record: Record, current: Mapping[str, str], cell: Cell) -> bool:
    """Whether a record was made with the present repro, probe, image, GPU variant and driver.

    On a site's nodes: with those of any board that was seen there. ``current`` holds the digests that are
    known here; what is not known is not compared.
    """
    digests = all(is_digest_of(record.digests.get(name), digest) for name, digest in current.items())
    if not cell.gpu.present:
        return digests and cell.version.product is not Product.TENSORRT
    return digests and cell.gpu.is_seen(*(record.gpu.get(name) for name in BOARD))


def newest(stored: Iterable[Stored]) -> dict[CellId, list[Stored]]:
    """Group records by cell, the newest first (by start, then run; no matter the order read)."""
    groups: dict[CellId, list[Stored]] = defaultdict(list)
    for item in stored:
        groups[item.record.cell].append(item)
    for items in groups.values():
        items.sort(key=lambda item: (item.record.started, item.record.run, item.local), reverse=True)
    return dict(groups)


def make_entries(
    cells: Sequence[Cell], stored: Iterable[Stored], current: Mapping[CellId, Mapping[str, str]],
    excluded: Iterable[Excluded], executed: frozenset[str] = frozenset(),
    calibration: Calibration = NOT_CALIBRATED,
) -> tuple[Entry, ...]:  # fmt: skip
    """Return one entry a cell, INVALID where its controls say so. ``executed``: the runs of this call."""
    groups, reasons = newest(stored), {item.cell.id: item for item in excluded}
    entries = []
    for cell in cells:
        records = groups.get(cell.id, [])
        entry = Entry(cell=cell, evidence=Evidence.NONE)
        said = entry.expectation
        if records:
            entry = _from_records(cell, records, current.get(cell.id, {}), calibration)
        elif said and said.basis is not Basis.ASSUMED and said.verdict is not Verdict.INVALID:
            # that a case says nothing, nobody reports of a version
            outcome = Outcome(verdict=said.verdict, reason=said.note)
            entry = replace(entry, evidence=Evidence.REPORTED, outcome=outcome)
        ran = entry.record is not None and entry.record.run in executed
        entries.append(replace(entry, excluded=reasons.get(cell.id), executed=ran))
    return apply_controls(entries)


def _from_records(
    cell: Cell, stored: Sequence[Stored], current: Mapping[str, str], calibration: Calibration
) -> Entry:
    """Return what a cell's records come to; the first of those that count is shown."""
    measured = next((s for s in stored if s.local and is_current(s.record, current, cell)), None)
    chosen = (measured or stored[0]).record
    runs = {chosen.run: chosen}
    for item in stored:
        if are_comparable(chosen, item.record):
            runs.setdefault(item.record.run, item.record)
    entry = assess(cell, list(runs.values()), calibration)
    figure, value = read_figure(entry.records[0], cell, calibration)
    evidence = Evidence.MEASURED if measured else Evidence.RECORDED
    return replace(entry, evidence=evidence, figure=figure, value=value)


def without_refused(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the entries of a run that was to run every cell again (``--rerun``).

    A cell that could not be run is not known then: its record is not what was asked for.
    """
    return tuple(
        Entry(cell=entry.cell, evidence=Evidence.NONE, excluded=entry.excluded)
        if entry.evidence is Evidence.MEASURED and entry.excluded is not None and not entry.executed
        else entry
        for entry in entries
    )


def exit_codes(
    entries: Sequence[Entry], *, by_name: bool, gpu_here: bool, ran: bool, gpu_named: bool = False
) -> set[ExitCode]:
    """Return every exit code that applies; ``ran``: cells were executed or served from the store.

    ``by_name``: versions, GPUs or runtimes were asked for by name. Tables of GPUs that are shown only
    because there are records of them (not ``gpu_named``) do not count as asked for. Of cells that are only
    there as controls, a surprise counts and nothing else.
    """
    codes = {ExitCode.AS_EXPECTED}
    if any(entry.surprise for entry in entries if entry.evidence is Evidence.MEASURED):
        codes.add(ExitCode.SURPRISE)
    asked = [entry for entry in entries if not entry.cell.companion]
    measured = [entry for entry in asked if entry.evidence is Evidence.MEASURED]
    causes = {entry.outcome.cause for entry in measured if entry.outcome and entry.outcome.cause}
    answered = {entry.cell.version.name for entry in measured}
    left_out = [
        item for entry in asked
        if (item := entry.excluded) and entry.evidence is not Evidence.MEASURED
        # an image lacks what it lacks: a version's name does not ask for cases that can never run there
        and not (item.why is Exclusion.COMPONENT_MISSING and entry.cell.version.name in answered)
        and (gpu_named or item.why is not Exclusion.OTHER_GPU)
    ]  # fmt: skip
    known = {entry.verdict for entry in measured if entry.cell.gpu.present}
    none_ran = gpu_here and any(entry.cell.gpu.present for entry in asked) and known <= {Verdict.NO_VERDICT}
    if (by_name and left_out) or none_ran or any(cause.is_machinery for cause in causes):
        codes.add(ExitCode.MACHINERY)
    if not measured or not ran:
        codes.add(ExitCode.NOTHING)
    return codes


CONFIRMED = CONFIRMING_BUILDS + 1
"""Engines after which a verdict is no luck: the first, and those of a fresh process."""
OWN_MODEL = "your model"
"""What the user's own model has for an issue upstream."""


def advise(entry: Entry) -> str:
    """Return what to do about an entry's surprise; nothing where it is none."""
    outcome, cell = entry.outcome, entry.cell
    if not entry.surprise or outcome is None:
        return ""
    file = f"repros/{cell.repro.id.replace('-', '_')}.py"
    if entry.evidence is Evidence.RECORDED:
        return "run it here, with the present repro and driver, before you believe it"
    if cell.repro.upstream == OWN_MODEL:
        return "look at the reason; upgrade --model compares two versions, --explain names the layer"
    if cell.version.product is not Product.TENSORRT:
        return f"no TensorRT is involved: mend the graph, the reference or the expectation of {file} first"
    if cell.case.control is not None:
        doubt = f"nothing of {cell.repro.id} at {cell.version.name} can be believed"
        return f"the self-check fails: {doubt}; ask doctor, look at the driver"
    if outcome.verdict is Verdict.FLAKY:
        return "--rebuilds 10 shows the rate; take it for a FAIL, file it upstream"
    confirm = "" if outcome.builds >= CONFIRMED else f"confirm it (--rebuilds {CONFIRMED}), then "
    if outcome.verdict is Verdict.FAIL:
        tried = [way.case for way in cell.repro.workarounds if way.case and way.case != cell.case.id]
        others = f", try its work-arounds ({join_some(tried, 3)})" if tried else ""
        return f"{confirm}look at the reason{others}, file it upstream"
    return f"{confirm}change the expectation in {file}"
