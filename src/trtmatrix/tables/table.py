"""Entries grouped into tables: one a GPU for TensorRT, one for the products on the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from trtmatrix.common.words import one_line
from trtmatrix.judge.calibration import NOT_CALIBRATED
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.judge import measured_in
from trtmatrix.judge.record import RAN, Record
from trtmatrix.judge.words import BOARD_MARK, MUST_FAIL, has_evidence, marked
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import Control, Gpu, Product, Seen
from trtmatrix.suite.repros import Case, Repro, Twin

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
class TwinRow:
    """A line of a twin's measure: one text a column, empty where nothing is known."""

    label: str
    texts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A repro's rows: those shown, those folded away because nothing is known of them, its own figures."""

    repro: Repro
    rows: tuple[Row, ...]
    folded: tuple[Row, ...]
    twins: tuple[TwinRow, ...] = ()

    @property
    def figure(self) -> str:
        """What the numbers in the cells are."""
        return one_line(f"figure: {self.repro.figure.label}")

    @property
    def fold_line(self) -> str:
        """What stands for the folded rows, or nothing."""
        return fold_line(len(self.folded), more=bool(self.rows)) if self.folded else ""


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


def fold_line(count: int, *, more: bool) -> str:
    """Return what stands for so many folded rows; ``more``: there are others above."""
    return f"… {count} {'more ' if more else ''}{'case' if count == 1 else 'cases'} without evidence here"


def make_tables(entries: Sequence[Entry]) -> tuple[Table, ...]:
    """Group entries into tables: the GPUs in the order of the entries, the CPU last.

    Rows in which no cell has evidence are folded.
    """
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        on_gpu = entry.cell.version.product is Product.TENSORRT
        groups.setdefault(f"gpu {entry.cell.gpu.slug}" if on_gpu else "cpu", []).append(entry)
    names = [name for name in groups if name != "cpu"] + [name for name in groups if name == "cpu"]
    return tuple(_table(groups[name]) for name in names)


def _table(entries: Sequence[Entry]) -> Table:
    named = {entry.cell.version.name: entry.cell.version for entry in entries}
    columns = tuple(sorted(named.values(), key=lambda v: (_ORDER.index(v.product), v.release)))
    marked_entries, boards = _mark_boards(entries)
    repros: dict[str, list[Entry]] = {}
    for entry in marked_entries:
        repros.setdefault(entry.cell.repro.id, []).append(entry)
    sections = (_section(mine[-1].cell.repro, columns, mine) for mine in repros.values())
    return Table(title=_title(entries, columns), columns=columns, sections=tuple(sections), boards=boards)


def board_of(record: Record | None) -> str:
    """Return what of its board a record is compared by, on one line; nothing where it names no GPU."""
    gpu = record.gpu if record is not None and record.gpu.get("name") else {}
    parts = (("driver ", gpu.get("driver")), ("", gpu.get("variant")))
    return one_line(", ".join(f"{word}{value}" for word, value in parts if value), 80)


def _mark_boards(entries: Sequence[Entry]) -> tuple[Sequence[Entry], str]:
    """Return the entries of one GPU, those of other boards than most marked, and which boards there are."""
    boards = Counter(board for entry in entries if (board := board_of(entry.record)))
    if len(boards) < 2:
        return entries, ""
    most, *others = [board for board, _ in boards.most_common()]
    found = [
        replace(entry, board=BOARD_MARK) if board_of(entry.record) in others else entry for entry in entries
    ]
    words = f"most were measured with {most}; {BOARD_MARK}: with {' or '.join(others)}"
    return found, f"{words}: a difference may be the driver's, not the version's"


def _title(entries: Sequence[Entry], columns: Sequence[Version]) -> str:
    products = dict.fromkeys(version.product for version in columns)
    if Product.TENSORRT in products:
        return f"TensorRT: {describe_gpu(entries[0].cell.gpu)}"
    return "CPU: " + ", ".join(_ON_CPU[product] for product in products)


def describe_gpu(gpu: Gpu) -> str:
    """Return a GPU's name with its variant, compute capability and driver, as far as known.

    Of a site's GPU every variant and driver that was seen there.
    """
    boards: Sequence[Gpu | Seen] = gpu.seen or (gpu,)
    parts = [gpu.name, ", ".join(dict.fromkeys(board.variant for board in boards if board.variant))]
    parts += [f"compute capability {gpu.compute}"] if gpu.compute else []
    drivers = ", ".join(dict.fromkeys(board.driver for board in boards if board.driver))
    parts += [f"driver {drivers}"] if drivers else []
    return " · ".join(part for part in parts if part)


def _section(repro: Repro, columns: Sequence[Version], mine: Sequence[Entry]) -> Section:
    """Return a repro's section of its own entries."""
    cases = {entry.cell.case.id: entry.cell.case for entry in mine}
    at = {(entry.cell.case.id, entry.cell.version.name): entry for entry in mine}
    rows = [
        Row(case=case, entries=tuple(at.get((case.id, version.name)) for version in columns))
        for case in cases.values()
    ]
    shown, folded = list[Row](), list[Row]()
    for row in rows:
        (shown if any(map(has_evidence, row.entries)) else folded).append(row)
    twins = tuple(make_twin_rows(repro, shown, columns))
    return Section(repro=repro, rows=tuple(shown), folded=tuple(folded), twins=twins)


def make_twin_rows(repro: Repro, rows: Sequence[Row], columns: Sequence[Version]) -> Iterator[TwinRow]:
    """Yield a line for each case that has a measured value, of the rows that are shown.

    What was reported stands in parentheses, at its versions: in the first of the lines, or in one of its own.
    """
    for twin in repro.twins:
        mine = [row for row in rows if _fits(row.case, twin)]
        values = [twin.reported.get(version.name) for version in columns]
        reported = tuple("" if value is None else f"({value:.6g})" for value in values)
        lines = [(row.case.id, [_measured(entry, twin) for entry in row.entries]) for row in mine]
        lines = [(name, texts) for name, texts in lines if any(texts)]
        if not lines and mine and any(reported):
            yield TwinRow(label=f"= {twin.label}", texts=reported)
        for name, texts in lines:
            both = tuple(f"{ours} {theirs}".strip() for ours, theirs in zip(texts, reported, strict=True))
            reported = ("",) * len(columns)
            yield TwinRow(label=f"= {twin.label}: {name}", texts=both)


def twins_of(entry: Entry) -> Iterator[tuple[Twin, float | None, float | None]]:
    """Yield the twins of a cell, each with the value measured and the one reported of its version."""
    for twin in entry.cell.repro.twins:
        if _fits(entry.cell.case, twin):
            yield twin, _value(entry, twin), twin.reported.get(entry.cell.version.name)


def _fits(case: Case, twin: Twin) -> bool:
    return any(fnmatchcase(case.id, pattern) for pattern in twin.cases)


def _value(entry: Entry, twin: Twin) -> float | None:
    record, cell = entry.record, entry.cell
    if record is None or record.ended != RAN:
        return None
    return measured_in(record, twin.measure, cell.case, cell.repro, NOT_CALIBRATED)


def _measured(entry: Entry | None, twin: Twin) -> str:
    """Return a cell's value with the digits that a report has, to compare with: ``1373.39``, ``0.2232``."""
    value = _value(entry, twin) if entry else None
    return marked(entry, f"{value:.6g}") if entry and value is not None else ""


def shorten(text: str, limit: int) -> str:
    """Leave out the middle of a text that is too long."""
    if len(text) <= limit:
        return text
    end = limit // 2
    return text[: limit - end - 1] + "…" + text[-end:]
