"""Builds small, valid objects of the core for tests: name what matters, the rest has a default."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from trtmatrix.judge.entry import Entry, find_expectation
from trtmatrix.judge.judge import judge, read_figure
from trtmatrix.judge.record import RAN, SCHEMA, Record, record_from, write_number
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.keys import Document, check_keys
from trtmatrix.suite.matrix import Matrix, Source, Version
from trtmatrix.suite.model import (
    CPU,
    Basis,
    CellId,
    Control,
    Evidence,
    Exclusion,
    Gpu,
    Outcome,
    Product,
    Verdict,
)
from trtmatrix.suite.plan import Excluded
from trtmatrix.suite.repro_files import LoadedRepro
from trtmatrix.suite.repros import Case, Expectation, Figure, Repro, specified

H200 = Gpu(slug="h200", name="NVIDIA H200", compute="9.0", datacenter=True, driver="580.159", index=0)
ISSUE = "https://github.com/NVIDIA/TensorRT/issues/4333"
VERSION_OF = {
    Product.TENSORRT: "10.7.0", Product.TENSORRT_RTX: "tensorrt-rtx-1.4",
    Product.ONNXRUNTIME: "onnxruntime-1.31.1",
}  # fmt: skip


def make_version(name: str = "10.7.0", *, library: str | None = None, **facts: Any) -> Version:
    """A column; its product is read off its name, each fact may be given as ``torch="2.6.0"``."""
    product = Product(name.rpartition("-")[0] or Product.TENSORRT)
    origin: dict[str, Any] = {"image": f"example.org/tensorrt:{name}"}
    if product is not Product.TENSORRT:
        origin = {"wheels": [f"{product.value}=={name.rsplit('-', 1)[1]}"]}
    values = {"library": library or name.rsplit("-", 1)[-1], **facts}
    known = {
        fact: {"value": value, "known": "read", "source": "notes"} if isinstance(value, str) else value
        for fact, value in values.items()
    }
    return read_version({"version": name, "product": product.value, "origin": origin, **known})


def read_version(data: Mapping[str, Any]) -> Version:
    """A column as an entry of matrix.yaml says it."""
    version, problems = check_keys(Version, Document(file="matrix.yaml", value=data))
    assert version is not None, problems
    return version


def make_matrix(*names: str) -> Matrix:
    """A matrix with these columns."""
    sources = {"notes": Source(title="release notes")}
    return Matrix(schema=1, sources=sources, versions=tuple(make_version(name) for name in names))


def make_case(id: str = "sdpa-tf32", **fields: Any) -> Case:  # noqa: A002
    """A case with one limit: the sum of errors at most 690."""
    return Case(**{"id": id, "params": {"precision": "tf32"}, "limits": {"sum_abs": 690.0}, **fields})


def make_control(id: str = "control-lost-scale") -> Case:  # noqa: A002
    """A negative control: it must fail."""
    return make_case(id, control=Control.NEGATIVE)


def make_repro(*cases: Case, id: str = "sdpa-scale", **fields: Any) -> Repro:  # noqa: A002
    """A repro with these cases (one where none is given) and no expectations."""
    defaults: dict[str, Any] = {
        "id": id, "title": "lost √scale in fused attention", "upstream": "NVIDIA/TensorRT#4333",
        "url": ISSUE, "summary": "One factor of softmax's scale is lost.",
        "figure": Figure(measure="sum_abs", label="sum of |y - float64|"),
        "expectations": (), "workarounds": (), "cases": cases or (make_case(),),
    }  # fmt: skip
    return Repro(**{**defaults, **fields})


def make_loaded(repro: Repro, module: ModuleType, file: str = "made_up.py") -> LoadedRepro:
    """A repro whose module is made by a test."""
    return LoadedRepro(repro=repro, file=Path(file), module=module)


def make_expectation(
    verdict: Verdict = Verdict.FAIL, versions: str = "==10.7.0", *cases: str, **fields: Any
) -> Expectation:
    """An expectation that was reported, of all cases where none is named."""
    defaults: dict[str, Any] = {
        "cases": cases or ("*",), "versions": specified(versions), "product": Product.TENSORRT,
        "verdict": verdict, "basis": Basis.REPORTED, "source": ISSUE, "on": "L4",
    }  # fmt: skip
    return Expectation(**{**defaults, **fields})


def make_cell(
    repro: Repro | None = None,
    case: Case | None = None,
    version: Version | str = "10.7.0",
    gpu: Gpu | None = None,
) -> Cell:
    """A cell; TensorRT's are on an H200 and the others on the CPU, unless a GPU is given."""
    repro = repro or make_repro(case or make_case())
    column = make_version(version) if isinstance(version, str) else version
    where = gpu or (H200 if column.product is Product.TENSORRT else CPU)
    return Cell(repro=repro, case=case or repro.cases[0], version=column, gpu=where)


def make_record(
    cell: Cell | CellId,
    value: float = 175.0,
    *,
    ended: str = RAN,
    detail: str = "",
    observed: Mapping[str, Any] | None = None,
    run: str = "20250102t030405-00000000",
    others: Sequence[float] = (),
    rel_l2: float | None = None,
    signatures: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None,
    scalars: Mapping[str, float] | None = None,
    **fields: Any,
) -> Record:
    """A record; one that ran measured a sum of errors of ``value`` in the output ``y``.

    ``others``: the same sum of further engines. ``rel_l2``, ``signatures`` (defect → output → c, explained)
    and ``scalars`` are those of each engine; ``noise`` is the case's, as a record holds it.
    """
    id_ = cell.id if isinstance(cell, Cell) else cell
    product = cell.version.product if isinstance(cell, Cell) else Product.TENSORRT

    def measured(value: float) -> dict[str, Any]:
        values = {"count": 12, "nan_unexpected": 0, "sum_abs": write_number(value)}
        values |= {} if rel_l2 is None else {"rel_l2": write_number(rel_l2)}
        shown = dict(signatures or {})
        return {
            "outputs": {"y": values} if ended == RAN else {}, "signatures": shown if ended == RAN else {},
            "scalars": dict(scalars or {}) if ended == RAN else {},
        }  # fmt: skip

    engines = [{"measurements": measured(one), "engine": {}} for one in (value, *others)]
    data = {
        "schema": SCHEMA, "cell": vars(id_), "run": run, "product": product.value, "ended": ended,
        "detail": detail, "started": "2025-01-02T03:04:05.000Z", "digests": {}, "gpu": {},
        "observed": dict(observed or {}), "measurements": measured(value),
        **({"builds": engines} if others else {}), **fields,
    }  # fmt: skip
    return record_from(data, file=f"results/{id_.gpu}/{id_.version}/{id_.repro}/{id_.case}/{run}.json")


def make_entry(
    cell: Cell | None = None,
    value: float = 175.0,
    *,
    evidence: Evidence = Evidence.MEASURED,
    executed: bool = True,
    excluded: Exclusion | None = None,
    why: str = "",
    **record: Any,
) -> Entry:
    """An entry, judged from a record that measured ``value``; see :func:`make_record`."""
    cell = cell or make_cell()
    made = make_record(cell, value, **record)
    figure, number = read_figure(made, cell)
    return Entry(
        cell=cell, evidence=evidence, outcome=judge([made], cell), record=made,
        records=(made,), figure=figure, value=number,
        excluded=Excluded(cell=cell, why=excluded, detail=why) if excluded else None,
        executed=executed and evidence is Evidence.MEASURED,
    )  # fmt: skip


def make_reported(cell: Cell, verdict: Verdict = Verdict.FAIL, excluded: Exclusion | None = None) -> Entry:
    """An entry that only a document vouches for."""
    cell = cell if find_expectation(cell) else expecting(cell, verdict)
    reason = Excluded(cell=cell, why=excluded) if excluded else None
    entry = Entry(cell=cell, evidence=Evidence.REPORTED, excluded=reason)
    return replace(entry, outcome=Outcome(verdict=entry.expected))


def expecting(cell: Cell, verdict: Verdict) -> Cell:
    """A cell of which its repro expects a verdict."""
    said = make_expectation(verdict, ">=0", product=cell.version.product)
    return replace(cell, repro=replace(cell.repro, expectations=(said,)))


def make_unknown(cell: Cell | None = None, excluded: Exclusion | None = None, why: str = "") -> Entry:
    """An entry without evidence, excluded or not."""
    cell = cell or make_cell()
    reason = Excluded(cell=cell, why=excluded, detail=why) if excluded else None
    return Entry(cell=cell, evidence=Evidence.NONE, excluded=reason)
