"""Entries grouped into tables, one a GPU and one for the CPU; and what is said of them in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from trtmatrix.common.text import counted, one_line, short
from trtmatrix.judge.compare import advise
from trtmatrix.judge.entry import (
    BOARD_MARK,
    EVIDENCE_MEANINGS,
    MUST_FAIL,
    NO_EVIDENCE,
    NOT_SUPPORTED,
    Entry,
    cell_text,
    full_words,
    has_evidence,
    marked,
)
from trtmatrix.judge.judge import measured_in, observed_differences
from trtmatrix.judge.noise import NOT_CALIBRATED
from trtmatrix.judge.record import RAN, Record
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import Basis, Control, Evidence, Exclusion, Gpu, Outcome, Product, Verdict
from trtmatrix.suite.repros import Case, Repro, Twin

NOT_ATTEMPTED = "not tried yet"
DOCTOR = {
    Exclusion.NO_ENGINE, Exclusion.NO_GPU_ACCESS, Exclusion.DRIVER_TOO_OLD, Exclusion.IMAGE_NOT_PULLED,
    Exclusion.IMAGE_NOT_BUILT, Exclusion.NOT_HERE, Exclusion.NOT_READY,
}  # fmt: skip
"""What ``doctor`` has a remedy for."""
_SILENT = {"", NO_EVIDENCE, NOT_SUPPORTED}
_ORDER = (Product.TENSORRT, Product.ONNXRUNTIME, Product.TENSORRT_RTX)
_ON_CPU = {
    Product.ONNXRUNTIME: "graphs checked (onnxruntime)",
    Product.TENSORRT_RTX: "parsed and built (tensorrt-rtx)",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A case with one entry a column; None where the case has no cell."""

    case: Case
    entries: tuple[Entry | None, ...]

    @property
    def label(self) -> str:
        """The case's id, marked where the case must fail."""
        return self.case.id + (f" {MUST_FAIL}" if self.case.control is Control.NEGATIVE else "")


@dataclass(frozen=True, kw_only=True)
class Section:
    """A repro's rows: those shown, those folded away because nothing is known of them, its own figures.

    ``twins``: a line for each measure of a twin: its label, and one text a column.
    """

    repro: Repro
    rows: tuple[Row, ...]
    folded: tuple[Row, ...]
    twins: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def lines(self, columns: Sequence[Version]) -> list[list[str]]:
        """Return the versions of which anything is known, and the rows that are shown: a label, and texts."""
        rows = [*((row.label, tuple(map(cell_text, row.entries))) for row in self.rows), *self.twins]
        known = [n for n in range(len(columns)) if {texts[n] for _, texts in rows} - _SILENT]
        heads = ["", *(columns[n].name for n in known)]
        return [heads, *([label, *(texts[n] for n in known)] for label, texts in rows)]

    @property
    def figure(self) -> str:
        """What the numbers in the cells are."""
        return one_line(f"figure: {self.repro.figure.label}")

    @property
    def fold_line(self) -> str:
        """What stands for the folded rows."""
        what = "more case" if self.rows else "case"
        return f"… {counted(len(self.folded), what)} without evidence here"


@dataclass(frozen=True, kw_only=True)
class Table:
    """What is shown together: columns are versions in release order, rows are cases by repro.

    ``boards`` says on which kinds of boards its cells were measured, where these differ.
    """

    title: str
    columns: tuple[Version, ...]
    sections: tuple[Section, ...]
    boards: str = ""

    def entries(self) -> Iterator[Entry]:
        """Yield every entry, folded ones too, row by row."""
        for section in self.sections:
            for row in (*section.rows, *section.folded):
                yield from (entry for entry in row.entries if entry is not None)

    def shown(self) -> Iterator[Entry | None]:
        """Yield what the cells of the shown rows hold."""
        for section in self.sections:
            for row in section.rows:
                yield from row.entries


def make_tables(entries: Sequence[Entry]) -> tuple[Table, ...]:
    """Group entries into tables: the GPUs in the order of the entries, the CPU last."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        on_gpu = entry.cell.version.product is Product.TENSORRT
        groups.setdefault(f"gpu {entry.cell.gpu.slug}" if on_gpu else "cpu", []).append(entry)
    return tuple(_table(groups[name]) for name in sorted(groups, key="cpu".__eq__))


def _table(entries: Sequence[Entry]) -> Table:
    named = {entry.cell.version.name: entry.cell.version for entry in entries}
    columns = tuple(sorted(named.values(), key=lambda v: (_ORDER.index(v.product), v.release)))
    products = dict.fromkeys(version.product for version in columns)
    title = f"TensorRT: {describe_gpu(entries[0].cell.gpu)}"
    if Product.TENSORRT not in products:
        title = "CPU: " + ", ".join(_ON_CPU[product] for product in products)
    kinds, boards = Counter(board for entry in entries if (board := board_of(entry.record))), ""
    if len(kinds) > 1:  # those of other boards than most are marked
        most, *others = [board for board, _ in kinds.most_common()]
        entries = [replace(e, board=BOARD_MARK if board_of(e.record) in others else "") for e in entries]
        boards = (
            f"most were measured with {most}; {BOARD_MARK}: with {' or '.join(others)}: "
            "a difference may be the driver's, not the version's"
        )
    repros: dict[str, list[Entry]] = {}
    for entry in entries:
        repros.setdefault(entry.cell.repro.id, []).append(entry)
    sections = []
    for mine in repros.values():
        cases = {entry.cell.case.id: entry.cell.case for entry in mine}
        at = {(entry.cell.case.id, entry.cell.version.name): entry for entry in mine}
        shown, folded = list[Row](), list[Row]()
        for case in cases.values():
            row = Row(case=case, entries=tuple(at.get((case.id, version.name)) for version in columns))
            (shown if any(map(has_evidence, row.entries)) else folded).append(row)
        repro = mine[-1].cell.repro
        twins = tuple(_twin_rows(repro, shown, columns))
        sections.append(Section(repro=repro, rows=tuple(shown), folded=tuple(folded), twins=twins))
    return Table(title=title, columns=columns, sections=tuple(sections), boards=boards)


def board_of(record: Record | None) -> str:
    """Return what of its board a record is compared by, on one line; nothing where it names no GPU."""
    gpu = record.gpu if record is not None and record.gpu.get("name") else {}
    parts = (("driver ", gpu.get("driver")), ("", gpu.get("variant")))
    return one_line(", ".join(f"{word}{value}" for word, value in parts if value), 80)


def describe_gpu(gpu: Gpu) -> str:
    """Return a GPU's name with its compute capability and every variant and driver that was seen of it."""
    boards: Sequence[Gpu] = gpu.seen or (gpu,)
    variants = ", ".join(dict.fromkeys(board.variant for board in boards if board.variant))
    drivers = ", ".join(dict.fromkeys(board.driver for board in boards if board.driver))
    parts = (("", gpu.name), ("", variants), ("compute capability ", gpu.compute), ("driver ", drivers))
    return " · ".join(word + text for word, text in parts if text)


def _twin_rows(
    repro: Repro, rows: Sequence[Row], columns: Sequence[Version]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield a line for each case that has a measured value: ``1373.39``, ``[0.2232]``, ``0.5 (0.2232)``.

    What was reported stands in parentheses, at its versions, with the digits that a report has.
    """
    for twin in repro.twins:
        values = [twin.reported.get(version.name) for version in columns]
        reported = ["" if value is None else f" ({value:.6g})" for value in values]
        for row in (row for row in rows if _fits(row.case, twin)):
            found = [(e, _value(e, twin)) if e else (None, None) for e in row.entries]
            texts = [marked(e, f"{value:.6g}") if e and value is not None else "" for e, value in found]
            if any(texts):
                both = tuple((ours + told).strip() for ours, told in zip(texts, reported, strict=True))
                yield f"= {twin.label}: {row.case.id}", both


def twins_of(entry: Entry) -> Iterator[tuple[Twin, float | None, float | None]]:
    """Yield the twins of a cell, each with the value measured and the one reported of its version."""
    for twin in entry.cell.repro.twins:
        if _fits(entry.cell.case, twin):
            yield twin, _value(entry, twin), twin.reported.get(entry.cell.version.name)


def _fits(case: Case, twin: Twin) -> bool:
    return any(fnmatchcase(case.id, pattern) for pattern in twin.cases)


def _value(entry: Entry, twin: Twin) -> float | None:
    record = entry.record
    if record is None or record.ended != RAN:
        return None
    return measured_in(record, twin.measure, entry.cell, NOT_CALIBRATED)


def shorten(text: str, limit: int) -> str:
    """Leave out the middle of a text that is too long."""
    if len(text) <= limit:
        return text
    end = limit // 2
    return text[: limit - end - 1] + "…" + text[-end:]


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
    flaky = f"{outcome.failed} of {outcome.builds} builds fail: "  # the words of a flaky verdict say it
    reason = one_line(outcome.reason.removeprefix(flaky) or figure)
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
