"""Versions × cases × GPUs to cells, narrowed by what the user selected; the controls that they need."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from trtmatrix.core.config import Matrix, Version
from trtmatrix.core.errors import UsageError
from trtmatrix.core.model import CPU, Case, CellId, Control, Gpu, Product, Repro


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Case × version × GPU: the unit that is run, stored and shown.

    ``companion``: it was not selected; it is there because it controls a cell that was.
    """

    repro: Repro
    case: Case
    version: Version
    gpu: Gpu
    companion: bool = False

    @cached_property
    def id(self) -> CellId:
        """The cell's id; made once, for it is asked for very often."""
        return CellId(repro=self.repro.id, case=self.case.id, version=self.version.name, gpu=self.gpu.slug)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the user asked for; an empty tuple means all. Cases may be patterns (``sdpa-*``)."""

    versions: tuple[str, ...] = ()
    repros: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()

    @property
    def by_name(self) -> bool:
        """Whether columns were asked for by name, so that not running them is trouble."""
        return bool(self.versions or self.gpus or self.runtimes)


def select_versions(matrix: Matrix, selection: Selection) -> tuple[Version, ...]:
    """Return the selected columns in matrix order; a name may also be a product's.

    :class:`UsageError` where a name matches nothing, with the nearest one.
    """
    wanted: set[str] = set()
    for name in selection.versions:
        found = [v.name for v in matrix.versions if name in {v.name, v.product.value}]
        if not found:
            raise UsageError(nearest_names("--trt", name, [v.name for v in matrix.versions]))
        wanted.update(found)
    runtimes = set(selection.runtimes)
    return tuple(
        version for version in matrix.versions
        if (not wanted or version.name in wanted)
        and (not runtimes or version.runtime in runtimes or _on_host(version, runtimes))
    )  # fmt: skip


def _on_host(version: Version, runtimes: set[str]) -> bool:
    """Whether ``--runtime host`` is about this version: an interpreter may have any TensorRT."""
    return "host" in runtimes and version.product is Product.TENSORRT


def select_repros(repros: Sequence[Repro], selection: Selection) -> tuple[Repro, ...]:
    """Return the selected repros; :class:`UsageError` where a name matches nothing."""
    known = [repro.id for repro in repros]
    for name in selection.repros:
        if name not in known:
            raise UsageError(nearest_names("--repro", name, known))
    return tuple(r for r in repros if not selection.repros or r.id in selection.repros)


def select_cases(repros: Iterable[Repro], selection: Selection) -> list[tuple[Repro, Case]]:
    """Return the selected rows; a pattern is ``case`` or ``repro/case``, with ``*`` and ``?``."""
    rows = [(repro, case) for repro in repros for case in repro.cases]
    for pattern in selection.cases:
        if not any(_matches(repro, case, pattern) for repro, case in rows):
            names = [case.id for _, case in rows] + [f"{repro.id}/{case.id}" for repro, case in rows]
            raise UsageError(nearest_names("--case", pattern, names))
    return [
        (repro, case) for repro, case in rows
        if not selection.cases or any(_matches(repro, case, p) for p in selection.cases)
    ]  # fmt: skip


def expand(
    matrix: Matrix,
    repros: Sequence[Repro],
    gpus: Sequence[Gpu],
    selection: Selection,
    *,
    companions: bool = False,
) -> tuple[Cell, ...]:
    """Return every selected cell, by repro, case, version, GPU. Pure; each id occurs once.

    TensorRT's cells take each of ``gpus``; the other products run on the CPU. ``companions``: the controls
    of the selected cells of TensorRT are added (:func:`controls_of`), where they were not selected anyway.
    """
    versions = select_versions(matrix, selection)
    rows = select_cases(select_repros(repros, selection), selection)
    selected = tuple(_cells(rows, versions, gpus))
    if not companions:
        return selected
    every = tuple(_cells([(repro, case) for repro in repros for case in repro.cases], matrix.versions, gpus))
    if len(selected) == len(every):
        return selected
    controls = ControlMap(repros, matrix.versions)
    chosen = {cell.id for cell in selected}
    wanted = {other for cell in selected for other in controls.of(cell)} - chosen
    return tuple(
        cell if cell.id in chosen else replace(cell, companion=True)
        for cell in every
        if cell.id in chosen or cell.id in wanted
    )


def _cells(
    rows: Sequence[tuple[Repro, Case]], versions: Sequence[Version], gpus: Sequence[Gpu]
) -> Iterator[Cell]:
    boards = tuple({gpu.slug: gpu for gpu in gpus}.values())
    return (
        Cell(repro=repro, case=case, version=version, gpu=gpu)
        for repro, case in rows
        for version in versions
        if version.product in case.products
        for gpu in (boards if version.product is Product.TENSORRT else (CPU,))
    )


CONTROLS = "controls"
"""The repro whose cases control those of all others."""

_STANDS_FOR = {"fp16-flag": "fp16"}
"""A precision that the controls may not have → the one whose controls are taken then."""


def controls_of(cell: Cell, repros: Iterable[Repro], versions: Iterable[Version]) -> frozenset[CellId]:
    """Return what shows that a cell of TensorRT is measured and judged rightly; no cell controls itself.

    At the same version and GPU: the common controls of its precision, and of its own repro the negative
    control that is most like it. And the same case in ONNX Runtime, but for a graph that is wrong on purpose.
    """
    return ControlMap(repros, versions).of(cell)


class ControlMap:
    """Finds the controls of many cells (:func:`controls_of`): each case's are looked for once."""

    def __init__(self, repros: Iterable[Repro], versions: Iterable[Version]) -> None:
        """Take the repros and versions that there are."""
        self._common = [repro for repro in repros if repro.id == CONTROLS]
        self._onnx = sorted(v.name for v in versions if v.product is Product.ONNXRUNTIME)
        self._cases: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def of(self, cell: Cell) -> frozenset[CellId]:
        """Return the controls of a cell."""
        return frozenset((*self.beside(cell), *self.checks(cell)))

    def beside(self, cell: Cell) -> list[CellId]:
        """Return those at the cell's own version and GPU, sorted."""
        if cell.version.product is not Product.TENSORRT:
            return []
        key = (cell.repro.id, cell.case.id)
        if key not in self._cases:
            found = {(repro.id, case.id) for repro in self._common for case in _common(repro, cell)}
            nearest = _nearest_negative(cell)
            found |= {(cell.repro.id, nearest.id)} if nearest else set()
            self._cases[key] = sorted(found - {key})
        return [
            CellId(repro=repro, case=case, version=cell.version.name, gpu=cell.gpu.slug)
            for repro, case in self._cases[key]
        ]

    def checks(self, cell: Cell) -> list[CellId]:
        """Return those of the cell's graph in ONNX Runtime, sorted."""
        on_trt = cell.version.product is Product.TENSORRT
        checked = on_trt and Product.ONNXRUNTIME in cell.case.products
        if not checked or cell.case.control is Control.NEGATIVE:
            return []
        return [
            CellId(repro=cell.repro.id, case=cell.case.id, version=name, gpu=CPU.slug) for name in self._onnx
        ]


def _common(controls: Repro, cell: Cell) -> list[Case]:
    """Return the common controls of a cell's precision."""
    able = [case for case in controls.cases if case.control and Product.TENSORRT in case.products]
    precision = cell.case.precision
    exact = [case for case in able if case.precision == precision]
    return exact or [case for case in able if case.precision == _STANDS_FOR.get(precision, precision)]


def _nearest_negative(cell: Cell) -> Case | None:
    """Return its repro's negative control of its precision that shares most params; the first of equals."""
    case = cell.case
    able = [
        other for other in cell.repro.cases
        if other.control is Control.NEGATIVE and other.precision == case.precision
        and Product.TENSORRT in other.products and other.needs <= case.needs
    ]  # fmt: skip
    shared = {other.id: len(other.params.items() & case.params.items()) for other in able}
    return max(able, key=lambda other: shared[other.id], default=None)


def _matches(repro: Repro, case: Case, pattern: str) -> bool:
    name = f"{repro.id}/{case.id}" if "/" in pattern else case.id
    return fnmatch.fnmatchcase(name, pattern)


def nearest_names(option: str, name: str, known: Sequence[str]) -> str:
    """Say that nothing has this name, and which names are near it."""
    import difflib

    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"perhaps you meant {', '.join(near)}" if near else f"known: {', '.join(known[:20])}"
    return f"{option} {name}: nothing is called so; {hint} (python -m trtmatrix list shows all)"
