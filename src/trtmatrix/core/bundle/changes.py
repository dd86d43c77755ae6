"""What is changed of a failing cell to answer a maintainer's next question, and what cannot be. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from packaging.version import Version as Release

from trtmatrix.core.expand import Cell
from trtmatrix.core.model import Case, Product, Repro, Scalar, release_of

LEVELS = (0, 3, 5)
DEFAULT_LEVEL = 3
"""TensorRT's own: https://docs.nvidia.com/deeplearning/tensorrt/api/python_api/infer/Core/BuilderConfig.html."""

LEVELS_SINCE = Release("8.6")
"""The first TensorRT with builder optimization levels, as its bindings show (surfaces/bindings.json)."""

WEAKLY_TYPED = frozenset({"tf32", "fp32", "fp16-flag"})
"""Precisions whose graph is typed in float32, so that a flag decides in what it is computed."""

OPTIMISATIONS = {"basic": "ORT_ENABLE_BASIC", "all": "ORT_ENABLE_ALL"}
"""ONNX Runtime's levels, which are off otherwise:
https://onnxruntime.ai/docs/performance/model-optimizations/graph-optimizations.html."""

MARKED, BATCH = "marked", "batch"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of a case. ``words``: what it is; ``id``: what the changed case's id ends in.

    ``params`` replaces parameters of the case, so that the repro itself draws and builds it. What no
    parameter asks for is put into the build: ``level``; ``tf32_off``; ``optimisation``, a name of ONNX
    Runtime's levels; ``tensor``, an inner tensor that becomes an output; ``own_batch``, samples of a user's
    model with one row more. ``as_it_is``: that is how the case is built anyway. ``why_not``: why it cannot be
    had.
    """

    id: str
    words: str
    params: Mapping[str, Scalar] = field(default_factory=dict)
    level: int | None = None
    tf32_off: bool = False
    optimisation: str = ""
    tensor: str = ""
    own_batch: bool = False
    as_it_is: bool = False
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was found in a case's graph: an inner tensor and its operator, and a dynamic batch's new size.

    ``no_tensor``, ``no_batch``: why there is none. ``level``: the optimization level that the build asks for,
    None where it leaves the default or that is not known.
    """

    tensor: str = ""
    operator: str = ""
    no_tensor: str = "the graph has no inner tensor in float32 or float16"
    own_batch: int = 0
    no_batch: str = "the case has no parameter for its batch"
    level: int | None = None


def list_changes(cell: Cell, seen: Seen) -> tuple[Change, ...]:
    """Return the changes of a cell in the order in which they are told, also those that cannot be had."""
    match cell.version.product:
        case Product.ONNXRUNTIME:
            built = list(_in_onnxruntime(cell.case))
        case Product.TENSORRT | Product.TENSORRT_RTX:
            built = [*_of_precision(cell), *_of_level(cell, seen)]
    return (*built, _marked(seen), _batch(cell.case, seen))


def _of_precision(cell: Cell) -> Iterator[Change]:
    precision, rtx = cell.case.precision, cell.version.product is Product.TENSORRT_RTX
    off, plain = "TF32 off", "FP32"
    match precision:
        case "tf32":
            words = f"{off}: {plain} throughout"
            yield Change(id="tf32-off", words=words, params={"precision": "fp32"})
        case "fp32":
            yield Change(id="tf32-off", words=f"{off}: {plain} throughout", as_it_is=True)
        case "fp16-flag":
            yield Change(id="tf32-off", words=f"{off}, FP16 still allowed", tf32_off=True)
            yield Change(id="fp32", words=f"{plain}: neither FP16 nor TF32", params={"precision": "fp32"})
        case _:
            yield Change(id="tf32-off", words=off, tf32_off=True)
            typed = "the graph itself is not typed in float32"
            drawn = precision == "fp16" and _draws_fp32(cell.repro)
            words = f"{plain}: the graph typed in float32, TF32 off"
            yield Change(
                id="fp32", words=words if drawn else plain, params={"precision": "fp32"} if drawn else {},
                why_not="" if drawn and not rtx else typed,
            )  # fmt: skip


def _draws_fp32(repro: Repro) -> bool:
    """Whether a repro draws the graph that a case asks for, in float32 too."""
    return any(case.precision in WEAKLY_TYPED for case in repro.cases)


def _of_level(cell: Cell, seen: Seen) -> Iterator[Change]:
    if cell.version.product is Product.TENSORRT and release_of(cell.version.name) < LEVELS_SINCE:
        words = f"optimization level {', '.join(map(str, LEVELS[:-1]))} or {LEVELS[-1]}"
        why = f"TensorRT has builder optimization levels from {LEVELS_SINCE} on"
        yield Change(id="level", words=words, why_not=why)
        return
    asked = cell.case.params.get("level", seen.level)
    built = DEFAULT_LEVEL if asked is None else asked
    for level in LEVELS:
        default = ", the default" if level == DEFAULT_LEVEL else ""
        yield Change(
            id=f"level-{level}", words=f"optimization level {level}{default}", level=level,
            params={"level": level} if "level" in cell.case.params else {}, as_it_is=level == built,
        )  # fmt: skip


def _in_onnxruntime(case: Case) -> Iterator[Change]:
    why = "ONNX Runtime on the CPU has neither TF32 nor builder optimization levels"
    yield Change(id="build", words="TF32 off; optimization levels", why_not=why)
    if case.precision in WEAKLY_TYPED or not case.precision:
        yield Change(id="fp32", words="FP32", as_it_is=True)
    for name, constant in OPTIMISATIONS.items():
        words = f"graph optimization {name} (none in this case)"
        yield Change(id=f"optimized-{name}", words=words, optimisation=constant)


def _marked(seen: Seen) -> Change:
    words = "one more output marked"
    if not seen.tensor:
        return Change(id=MARKED, words=words, why_not=seen.no_tensor)
    return Change(id=MARKED, words=f"{words}: {seen.tensor} ({seen.operator})", tensor=seen.tensor)


def _batch(case: Case, seen: Seen) -> Change:
    size = case.params.get("batch")
    if isinstance(size, int) and not isinstance(size, bool):
        return Change(id=BATCH, words=f"batch {size + 1} instead of {size}", params={"batch": size + 1})
    if seen.own_batch:
        return Change(
            id=BATCH, words=f"batch {seen.own_batch} instead of {seen.own_batch - 1}", own_batch=True
        )
    return Change(id=BATCH, words="batch + 1", why_not=seen.no_batch)


def find_equal(repro: Repro, case: Case, change: Change) -> Case | None:
    """Return a case of the repro that is just the changed one: its own records answer the question."""
    if not change.params:
        return None
    wanted = {**case.params, **change.params}
    return next((c for c in repro.cases if dict(c.params) == wanted and _is_alike(c, case)), None)


def _is_alike(case: Case, other: Case) -> bool:
    """Whether two cases are run and judged alike, but for what their parameters ask."""
    told = ("needs", "keep", "tolerance", "control", "defect", "bug_is", "remarks", "processes")
    return all(getattr(case, name) == getattr(other, name) for name in told)


def changed_id(case: Case, change: Change) -> str:
    """Return the id of a changed case."""
    return f"{case.id}.{change.id}"
