"""What is said in words: why cells were not run, what needs attention, all that is known of one cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from trtmatrix.common.text import one_line, short
from trtmatrix.judge.compare import advise
from trtmatrix.judge.entry import EVIDENCE_MEANINGS, Entry, full_words
from trtmatrix.judge.judge import observed_differences
from trtmatrix.judge.record import Record
from trtmatrix.suite.model import Basis, Evidence, Exclusion, Outcome, Verdict
from trtmatrix.tables.table import board_of, twins_of

NOT_ATTEMPTED = "not tried yet"
DOCTOR = {
    Exclusion.NO_ENGINE, Exclusion.NO_GPU_ACCESS, Exclusion.DRIVER_TOO_OLD, Exclusion.IMAGE_NOT_PULLED,
    Exclusion.IMAGE_NOT_BUILT, Exclusion.NOT_HERE, Exclusion.NOT_READY,
}  # fmt: skip
"""What ``doctor`` has a remedy for."""


def _reason(entry: Entry) -> tuple[Exclusion | None, str]:
    """Return why a cell was not run; of a cluster's job what it came to, which no doctor sees from here."""
    if entry.excluded is None:
        return None, NOT_ATTEMPTED
    why, detail = entry.excluded.why, entry.excluded.detail
    if detail and why is Exclusion.COMPONENT_MISSING:
        return why, one_line(detail)
    of_job = why is Exclusion.NOT_READY and entry.cell.gpu.remote
    words = one_line(detail, 240) if of_job or why is Exclusion.OTHER_GPU else ""
    return why, f"{why.value} ({words})" if words else why.value


def reason_words(entries: Iterable[Entry]) -> str:
    """Return why cells were not run, the commonest reason first; the first that ``doctor`` mends says so."""
    reasons = Counter(map(_reason, entries)).most_common()
    curable = next((key for key, _ in reasons if key[0] in DOCTOR and key[0].value == key[1]), None)
    return ", ".join(
        f"{count} " * (len(reasons) > 1) + key[1] + " (doctor says how)" * (key == curable)
        for key, count in reasons
    )


def why_not_run(entry: Entry) -> str:
    """Return why a cell was not run, in full."""
    if entry.excluded is None:
        return NOT_ATTEMPTED
    return f"{entry.excluded.why.value}: {one_line(entry.excluded.detail)}".removesuffix(": ")


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


def find_remarks(entries: Sequence[Entry]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield all that needs attention: a title and its lines; nothing of what there is none of."""
    ran = [entry for entry in entries if entry.evidence.is_record]
    silent = [e for e in ran if e.verdict is Verdict.INVALID and e.expected is not Verdict.INVALID]
    remarks: dict[str, Sequence[str]] = {
        "Unexpected results": [_surprise(e, e.outcome) for e in entries if e.surprise and e.outcome],
        "Inconclusive": _group(silent),
        "No verdict": _group(entry for entry in ran if entry.verdict is Verdict.NO_VERDICT),
        "Set aside": [f"{entry.cell.id}: {entry.overruled}" for entry in entries if entry.overruled],
        "Facts of matrix.yaml that images contradict": find_contradicted(entries),
    }
    return ((title, lines) for title, lines in remarks.items() if lines)


def _surprise(entry: Entry, outcome: Outcome) -> str:
    seen = full_words(outcome)
    if entry.evidence is Evidence.RECORDED:
        seen += f", {EVIDENCE_MEANINGS[entry.evidence]}"
    figure = f"{entry.cell.repro.figure.label} {entry.figure}" if entry.figure else "no figure"
    counted = f"{outcome.failed} of {outcome.builds} builds fail: "  # the words of a flaky verdict say it
    reason = one_line(outcome.reason.removeprefix(counted) or figure)
    return f"{entry.cell.id}: expected {expected_words(entry)}, seen {seen}: {reason} → {advise(entry)}"


def _group(entries: Iterable[Entry]) -> list[str]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.outcome:
            words = f"{entry.word}: {one_line(entry.outcome.reason)}".removesuffix(": ")
            groups.setdefault(words, []).append(entry)
    return [
        f"{len(mine)} × {words} ({'cell' if len(mine) == 1 else 'for example'} {mine[0].cell.id})"
        for words, mine in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]


def find_contradicted(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return a line for each fact of matrix.yaml that a measured record contradicts."""
    lines: dict[str, None] = {}
    for entry in entries:
        if entry.record and entry.evidence is Evidence.MEASURED:
            version = entry.cell.version
            for name, (pinned, seen) in observed_differences(entry.record, version).items():
                lines[one_line(f"{version.name}: {name} is {seen}, matrix.yaml says {pinned}")] = None
    return tuple(lines)


def describe(entry: Entry) -> tuple[tuple[str, str], ...]:
    """Return a cell's facts as names and values, those that it has."""
    outcome, expectation, record = entry.outcome, entry.expectation, entry.record
    label, twins = entry.cell.repro.figure.label, list[str]()
    for twin, value, reported in twins_of(entry):
        said = f"reported {short(reported)}: {one_line(twin.source)}" if reported is not None else ""
        if value is not None:
            twins.append(f"{twin.label} = {short(value)}" + (f" ({said})" if said else ""))
        elif said:
            twins.append(f"{twin.label}: {said}")
    facts = (
        ("cell", str(entry.cell.id)),
        ("verdict", full_words(outcome) if outcome else ""),
        ("reason", one_line(outcome.reason, 1000) if outcome else ""),
        ("figure", f"{label} = {entry.figure}" if entry.figure else ""),
        ("precision", f"{outcome.fit}, as the outputs show" if outcome and outcome.fit else ""),
        ("twin", "; ".join(twins)),
        ("control", "not selected: it controls others" if entry.cell.companion else ""),
        ("evidence", EVIDENCE_MEANINGS[entry.evidence]),
        ("board", board_of(record)),
        ("host", one_line(str(record.gpu.get("host") or "")) if record else ""),
        ("expected", expected_words(entry)),
        ("unexpected", f"the verdict is not the expected one: {advise(entry)}" if entry.surprise else ""),
        ("source", expectation.source if expectation else ""),
        ("note", one_line(expectation.note) if expectation else ""),
        ("not run", why_not_run(entry) if entry.evidence is not Evidence.MEASURED else ""),
        ("record", record_file(record) if record else ""),
    )
    return tuple((name, value) for name, value in facts if value)


def record_file(record: Record) -> str:
    """Return a record's path inside the results folder: a page must not name a host's paths."""
    tail = f"{record.cell.folder}/{record.run}.json"
    return f"local/{tail}" if record.file.endswith(f"/local/{tail}") else tail
