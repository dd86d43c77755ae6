"""Versions × cases × GPUs to cells, narrowed by what the user selected. Pure."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from trtmatrix.common.errors import UsageError
from trtmatrix.common.options import names
from trtmatrix.common.text import join_some
from trtmatrix.suite.matrix import Matrix, Version
from trtmatrix.suite.model import CPU, CellId, Gpu, Product
from trtmatrix.suite.repros import Case, Repro


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

    @property
    def is_exclusive(self) -> bool:
        """Whether it needs a GPU that nothing else uses."""
        named = (fnmatch.fnmatchcase(self.case.id, pattern) for pattern in self.repro.exclusive)
        return self.gpu.present and any(named)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the user asked for; an empty tuple means all. Cases may be patterns (``sdpa-*``)."""

    versions: tuple[str, ...] = names("--trt VERSION", "versions by name, or a product's name: 10.7.0,10.8.0 "
        "or onnxruntime", "select")  # fmt: skip
    repros: tuple[str, ...] = names("--repro REPRO", "repros by name", "repros")
    cases: tuple[str, ...] = names("--case CASE", "cases by name or pattern: 'sdpa-*' or "
        "sdpa-scale/explicit-tf32", "select")  # fmt: skip
    gpus: tuple[str, ...] = names("--gpu GPU", "GPUs by name, in this host or not: L4, 'NVIDIA H200'",
        "select")  # fmt: skip
    runtimes: tuple[str, ...] = names("--runtime RUNTIME", "container, wheels, or host (interpreters that "
        "have TensorRT)", "select", known=("container", "wheels", "host"))  # fmt: skip

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
            raise UsageError(unlisted_version("--trt", name, [v.name for v in matrix.versions]))
        wanted.update(found)
    return tuple(
        version for version in matrix.versions
        if (not wanted or version.name in wanted)
        and (not selection.runtimes or version.runtime in selection.runtimes or by_host(version, selection))
    )  # fmt: skip


def by_host(version: Version, selection: Selection) -> bool:
    """Whether an interpreter of this host is to run a version: it may have any TensorRT."""
    return "host" in selection.runtimes and version.product is Product.TENSORRT


def select_repros(repros: Sequence[Repro], selection: Selection) -> tuple[Repro, ...]:
    """Return the selected repros; :class:`UsageError` where a name matches nothing."""
    known = [repro.id for repro in repros]
    if unknown := [name for name in selection.repros if name not in known]:
        raise UsageError(nearest_names("--repro", unknown[0], known))
    return tuple(r for r in repros if not selection.repros or r.id in selection.repros)


def select_cases(repros: Iterable[Repro], selection: Selection) -> list[tuple[Repro, Case]]:
    """Return the selected rows; a pattern is ``case`` or ``repro/case``, with ``*`` and ``?``."""
    rows = [(repro, case) for repro in repros for case in repro.cases]
    for pattern in selection.cases:
        if not any(_matches(*row, pattern) for row in rows):
            names = [case.id for _, case in rows] + [f"{repro.id}/{case.id}" for repro, case in rows]
            raise UsageError(nearest_names("--case", pattern, names))
    patterns = selection.cases or ("*",)
    return [row for row in rows if any(_matches(*row, pattern) for pattern in patterns)]


def expand(
    matrix: Matrix, repros: Sequence[Repro], gpus: Sequence[Gpu], selection: Selection
) -> tuple[Cell, ...]:
    """Return every selected cell, by repro, case, version, GPU. Pure; each id occurs once.

    TensorRT's cells take each of ``gpus``; the other products run on the CPU.
    """
    versions = select_versions(matrix, selection)
    rows = select_cases(select_repros(repros, selection), selection)
    boards = tuple({gpu.slug: gpu for gpu in gpus}.values())
    return tuple(
        Cell(repro=repro, case=case, version=version, gpu=gpu)
        for repro, case in rows
        for version in versions
        if version.product in case.products
        for gpu in (boards if version.product is Product.TENSORRT else (CPU,))
    )


CONTROLS = "controls"  # the repro whose cases control those of all others


def _matches(repro: Repro, case: Case, pattern: str) -> bool:
    name = f"{repro.id}/{case.id}" if "/" in pattern else case.id
    return fnmatch.fnmatchcase(name, pattern)


def unlisted_version(option: str, name: str, known: Sequence[str]) -> str:
    """Say that a version is not listed: which begin so, or which there are and how to add one."""
    near = [each for each in known if each.startswith(f"{name}.") or name.startswith(f"{each}.")]
    hint = f"known are {', '.join(known)}; to add it, copy an entry of matrix.yaml and change its facts"
    return f"{option} {name}: not listed; " + (f"perhaps you meant {', '.join(near)}" if near else hint)


def nearest_names(option: str, name: str, known: Sequence[str]) -> str:
    """Say that nothing has this name, and which names are near it."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"perhaps you meant {', '.join(near)}" if near else f"known: {join_some(known, 20)}"
    return f"{option} {name}: nothing has this name; {hint} (python -m trtmatrix list shows all)"
