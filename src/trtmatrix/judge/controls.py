"""Which controls cells have, and what they say: where one is wrong, nothing that it controls is believed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from trtmatrix.judge.entry import Entry, are_comparable
from trtmatrix.suite.cells import CONTROLS, Cell, Selection, expand
from trtmatrix.suite.matrix import Matrix, Version
from trtmatrix.suite.model import CPU, CellId, Control, Evidence, Gpu, Product, Verdict
from trtmatrix.suite.repros import Repro


def expand_with_controls(
    matrix: Matrix, repros: Sequence[Repro], gpus: Sequence[Gpu], selection: Selection
) -> tuple[Cell, ...]:
    """Return the selected cells, and the controls of TensorRT's that were not selected (companions)."""
    chosen = {cell.id: cell for cell in expand(matrix, repros, gpus, selection)}
    controls = ControlMap(repros, matrix.versions)
    wanted = {other for cell in chosen.values() for other in controls.of(cell)}
    return tuple(
        chosen.get(cell.id) or replace(cell, companion=True)
        for cell in expand(matrix, repros, gpus, Selection()) if cell.id in chosen or cell.id in wanted
    )  # fmt: skip


class ControlMap:
    """Finds what shows that cells of TensorRT are measured and judged rightly; no cell controls itself.

    At the same version and GPU: the common controls of its precision, and of its own repro the negative
    control that is most like it. And the same case in ONNX Runtime, but for a graph that is wrong on purpose.
    """

    def __init__(self, repros: Iterable[Repro], versions: Iterable[Version]) -> None:
        self._common = [
            (repro.id, case) for repro in repros if repro.id == CONTROLS for case in repro.cases
            if case.control and Product.TENSORRT in case.products
        ]  # fmt: skip
        self._onnx = sorted(v.name for v in versions if v.product is Product.ONNXRUNTIME)
        self._cases: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def of(self, cell: Cell) -> frozenset[CellId]:
        """Return the controls of a cell."""
        return frozenset((*self.beside(cell), *self.checks(cell)))

    def beside(self, cell: Cell) -> list[CellId]:
        """Return those at the cell's own version and GPU, sorted."""
        if cell.version.product is not Product.TENSORRT:
            return []
        key, asked = (cell.repro.id, cell.case.id), cell.case.precision
        if key not in self._cases:
            exact = [item for item in self._common if item[1].precision == asked]
            found = exact or [c for c in self._common if f"{c[1].precision}-flag" == asked]
            able = [
                other for other in cell.repro.cases
                if other.control is Control.NEGATIVE and other.precision == asked
                and Product.TENSORRT in other.products and other.needs <= cell.case.needs
            ]  # fmt: skip
            if able:  # the nearest shares most params; the first of equals
                near = max(able, key=lambda other: len(other.params.items() & cell.case.params.items()))
                found = [*found, (cell.repro.id, near)]
            self._cases[key] = sorted({(repro, case.id) for repro, case in found} - {key})
        return [replace(cell.id, repro=repro, case=case) for repro, case in self._cases[key]]

    def checks(self, cell: Cell) -> list[CellId]:
        """Return those of the cell's graph in ONNX Runtime, sorted."""
        sound = Product.ONNXRUNTIME in cell.case.products and cell.case.control is not Control.NEGATIVE
        names = self._onnx if sound and cell.version.product is Product.TENSORRT else ()
        return [replace(cell.id, version=name, gpu=CPU.slug) for name in names]


_ANSWERS = frozenset({Verdict.PASS, Verdict.FAIL, Verdict.FLAKY})
_JUDGED = _ANSWERS | {Verdict.INVALID}
_MUST = {Control.POSITIVE: Verdict.PASS, Control.NEGATIVE: Verdict.FAIL}
"""The verdict of a control; with another that was judged nothing can be believed."""


def apply_controls(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries, INVALID where a verdict of TensorRT contradicts its controls, with the reason.

    Either the graph fails in ONNX Runtime against its own reference (no matter for a negative control, which
    is wrong on purpose), or a control at the same version and GPU came out wrong. Controls stay what they
    are: that they are wrong is what must be seen.
    """
    checked = list(entries)
    for problem_of in (Controls.graph_problem, Controls.control_problem):
        found = Controls(checked)
        for number, entry in enumerate(checked):
            if _is_answer(entry) and entry.outcome and (problem := problem_of(found, entry)):
                outcome = replace(entry.outcome, verdict=Verdict.INVALID, reason=problem)
                checked[number] = replace(entry, outcome=outcome)
    return tuple(checked)


class Controls:
    """Finds the entries that control others among those that are shown."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._judged = {entry.cell.id: entry for entry in entries if entry.verdict in _JUDGED}
        repros = {entry.cell.repro.id: entry.cell.repro for entry in entries}
        versions = {entry.cell.version.name: entry.cell.version for entry in entries}
        self._map = ControlMap(repros.values(), versions.values())

    def of(self, entry: Entry) -> list[Entry]:
        """Return the controls that ran at an entry's version and GPU, under the same conditions."""
        ours, measured = entry.record, entry.evidence is Evidence.MEASURED
        found = filter(None, map(self._judged.get, self._map.beside(entry.cell)))
        return [
            control for control in found
            if ours and control.record and are_comparable(ours, control.record, ("probe", "image", "runtime"))
            and (not measured or control.evidence is Evidence.MEASURED)  # no old one counts against it
        ]  # fmt: skip

    def control_problem(self, entry: Entry) -> str:
        """Return which control of an entry came out wrong, or nothing; controls have none."""
        for control in self.of(entry) if entry.cell.case.control is None else ():
            kind, seen = control.cell.case.control, control.verdict
            if kind and seen and seen is not _MUST[kind]:
                return f"the {kind.value} control {control.cell.id} is {seen.value}, not {_MUST[kind].value}"
        return ""

    def graph_problem(self, entry: Entry) -> str:
        """Return how the graph of an entry disagrees with its reference in ONNX Runtime, or nothing."""
        ours = entry.record
        checks = [
            (theirs.started, theirs.run, check.outcome)
            for check in filter(None, map(self._judged.get, self._map.checks(entry.cell)))
            if ours and (theirs := check.record) and check.outcome
            and all(ours.digests.get(name) == theirs.digests.get(name) for name in ("repro", "case"))
        ]  # fmt: skip
        *_, outcome = max(checks, key=itemgetter(0, 1), default=(None,))  # the newest one's word
        if outcome is None or outcome.verdict is not Verdict.FAIL:
            return ""
        return f"the graph disagrees with its reference in ONNX Runtime: {outcome.reason}"


def _is_answer(entry: Entry) -> bool:
    """Whether an entry is an answer about TensorRT."""
    return entry.cell.version.product is Product.TENSORRT and entry.verdict in _ANSWERS


@dataclass(frozen=True, kw_only=True)
class ControlCounts:
    """How many controls ran and can be judged, and those of them that did not come out as they must.

    ``uncontrolled``: tests of TensorRT that were measured here and have no control that ran.
    """

    ran: int = 0
    wrong: tuple[Entry, ...] = ()
    uncontrolled: int = 0

    @property
    def share(self) -> str:
        """How many came out as they must: ``32 of 33``."""
        return f"{self.ran - len(self.wrong)} of {self.ran}"


def count_controls(entries: Sequence[Entry]) -> ControlCounts:
    """Count the controls that were measured, here or elsewhere."""
    ran = [
        entry for entry in entries
        if entry.cell.case.control and entry.verdict in _JUDGED
        and entry.evidence.is_record and entry.expected is not Verdict.INVALID
    ]  # fmt: skip
    here = [
        e for e in entries if e.evidence is Evidence.MEASURED and _is_answer(e) and not e.cell.case.control
    ]
    found = Controls(entries if here else ())
    return ControlCounts(
        ran=len(ran), wrong=tuple(e for e in ran if e.verdict is not e.expected),
        uncontrolled=sum(not found.of(entry) for entry in here),
    )  # fmt: skip
