"""What controls say of the other cells: where one came out wrong, nothing that it controls is believed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trtmatrix.core.entry import Entry, are_comparable
from trtmatrix.core.expand import ControlMap
from trtmatrix.core.model import CellId, Control, Evidence, Product, Verdict

_ANSWERS = frozenset({Verdict.PASS, Verdict.FAIL, Verdict.FLAKY})
_JUDGED = _ANSWERS | {Verdict.INVALID}
_WRONG = {
    Control.POSITIVE: _JUDGED - {Verdict.PASS},
    Control.NEGATIVE: _JUDGED - {Verdict.FAIL},
}
"""The verdicts of a control with which nothing can be believed; a control that did not run says nothing."""


def apply_controls(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries, INVALID where a verdict of TensorRT contradicts its controls, with the reason.

    Either the graph fails in ONNX Runtime against its own reference (no matter for a negative control, which
    is wrong on purpose), or a control at the same version and GPU came out wrong. Controls stay what they
    are: that they are wrong is what must be seen.
    """
    found = Controls(entries)
    checked = tuple(_believe(entry, found.graph_problem(entry)) for entry in entries)
    found = Controls(checked)
    return tuple(_believe(entry, found.control_problem(entry)) for entry in checked)


def _believe(entry: Entry, problem: str) -> Entry:
    if not problem or entry.outcome is None:
        return entry
    return replace(entry, outcome=replace(entry.outcome, verdict=Verdict.INVALID, reason=problem))


class Controls:
    """Finds the entries that control others among those that are shown."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        """Note which cells, repros and versions there are."""
        self._by_id = {entry.cell.id: entry for entry in entries}
        repros = {entry.cell.repro.id: entry.cell.repro for entry in entries}
        versions = {entry.cell.version.name: entry.cell.version for entry in entries}
        self._map = ControlMap(repros.values(), versions.values())

    def _ran(self, ids: Iterable[CellId]) -> Iterator[Entry]:
        """Yield those of some controls that ran."""
        for cell_id in ids:
            control = self._by_id.get(cell_id)
            if control and control.outcome and control.outcome.verdict in _JUDGED:
                yield control

    def of(self, entry: Entry) -> list[Entry]:
        """Return the controls that ran at an entry's version and GPU, under the same conditions."""
        ran = self._ran(self._map.beside(entry.cell))
        return [control for control in ran if _same_conditions(control, entry)]

    def control_problem(self, entry: Entry) -> str:
        """Return which control of an entry came out wrong, or nothing; controls have none."""
        control = self.wrong_of(entry) if _can_change(entry) else None
        if control is None or control.outcome is None or control.cell.case.control is None:
            return ""
        kind = control.cell.case.control
        must = Verdict.PASS if kind is Control.POSITIVE else Verdict.FAIL
        return (
            f"the {kind.value} control {control.cell.id} is {control.outcome.verdict.value}, not {must.value}"
        )

    def wrong_of(self, entry: Entry) -> Entry | None:
        """Return a control of an entry that came out wrong, or None; controls have none."""
        if entry.cell.case.control is not None:
            return None
        for control in self.of(entry):
            kind, outcome = control.cell.case.control, control.outcome
            if kind and outcome and outcome.verdict in _WRONG[kind]:
                return control
        return None

    def graph_problem(self, entry: Entry) -> str:
        """Return how the graph of an entry disagrees with its reference in ONNX Runtime, or nothing."""
        if not _can_change(entry):
            return ""
        checks = [check for check in self._ran(self._map.checks(entry.cell)) if _same_graph(check, entry)]
        newest = max(checks, key=_age, default=None)
        if newest is None or newest.outcome is None or newest.outcome.verdict is not Verdict.FAIL:
            return ""
        return f"the graph disagrees with its reference in ONNX Runtime: {newest.outcome.reason}"


def _can_change(entry: Entry) -> bool:
    """Whether an entry is an answer about TensorRT."""
    on_trt = entry.cell.version.product is Product.TENSORRT
    return on_trt and entry.outcome is not None and entry.outcome.verdict in _ANSWERS


def _same_conditions(control: Entry, entry: Entry) -> bool:
    """Whether a control ran under the conditions of an entry: GPU, driver, probe and image.

    A control of another time does not count against what was measured now.
    """
    ours, theirs = entry.record, control.record
    if ours is None or theirs is None:
        return False
    if entry.evidence is Evidence.MEASURED and control.evidence is not Evidence.MEASURED:
        return False
    return are_comparable(ours, theirs, ("probe", "image", "runtime"))


def _same_graph(check: Entry, entry: Entry) -> bool:
    if check.record is None or entry.record is None:
        return False
    ours, theirs = entry.record.digests, check.record.digests
    return all(ours.get(name) == theirs.get(name) for name in ("repro", "case"))


def _age(entry: Entry) -> tuple[str, str]:
    return (entry.record.started, entry.record.run) if entry.record else ("", "")


@dataclass(frozen=True, kw_only=True)
class ControlCounts:
    """The controls of one product that were measured here.

    ``right`` of them came out as they must; ``wrong`` are the ids of the others with their verdicts;
    ``uncontrolled`` cells have no control that ran.
    """

    positive: int = 0
    negative: int = 0
    wrong: tuple[str, ...] = ()
    uncontrolled: int = 0

    @property
    def total(self) -> int:
        """How many there are."""
        return self.positive + self.negative

    @property
    def right(self) -> int:
        """How many came out as they must."""
        return self.total - len(self.wrong)


def count_controls(entries: Sequence[Entry], product: Product) -> ControlCounts:
    """Count the controls of one product; only cells of TensorRT need controls of their own."""
    mine = [
        entry for entry in entries
        if entry.evidence is Evidence.MEASURED and entry.cell.version.product is product
    ]  # fmt: skip
    found = Controls(entries if mine and product is Product.TENSORRT else ())
    ran = [e for e in mine if e.cell.case.control and e.outcome and e.outcome.verdict in _JUDGED]
    wrong = [e for e in ran if e.outcome and e.outcome.verdict is not e.expected]
    alone = [e for e in mine if _can_change(e) and not e.cell.case.control and not found.of(e)]
    return ControlCounts(
        positive=sum(e.cell.case.control is Control.POSITIVE for e in ran),
        negative=sum(e.cell.case.control is Control.NEGATIVE for e in ran),
        wrong=tuple(f"{e.cell.id} {e.outcome.verdict.value}" for e in wrong if e.outcome),
        uncontrolled=len(alone),
    )
