"""A model's reference and noise floor, computed by ONNX Runtime on the host's CPU.

The reference is the graph in float64, or in float32 where that cannot be had. The floor is the worst error of
the same graph in the precision asked for, computed in several ways, as the ensemble of the project's repros
is: with the rounding of that precision on different grids, and with sums rounded on the way.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from trtmatrix.core.factors import ALLOWED
from trtmatrix.onnxmodel.bench import Bench
from trtmatrix.onnxmodel.retype import CannotRewriteError, Retyping
from trtmatrix.onnxmodel.rounding import GIVEN, Rounding, apply_rounding
from trtmatrix.onnxmodel.sessions import NotComputedError, Session, runtime_name
from trtmatrix.onnxmodel.walk import opset_of
from trtprobe.measure import measure_output

Array = NDArray[Any]
Sample = Mapping[str, Array]

GRIDS = (0.73, 0.83, 0.91)
"""Below 1, so that nothing overflows that would not anyway; no sum of few powers of two."""

RECOGNISED = {"fp32": ("fp32", "tf32"), "tf32": ("fp32", "tf32")}
QUANTIZING = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
UNIMPLEMENTED = re.compile(r"implementation for (\w+)\(|operator \((\w+)\)")
MOST_TRIES = 16


def ensemble(precision: str, *, large: bool) -> dict[str, Rounding]:
    """Return the members by name that are computed for a precision; their names begin with it."""
    wanted = dict.fromkeys((*ALLOWED[precision], *RECOGNISED.get(precision, ())))
    found: dict[str, Rounding] = {}
    for kind in wanted:
        found[kind] = Rounding(kind=kind)
        for number, grid in enumerate(GRIDS[:1] if large else GRIDS, start=1):
            found[f"{kind}-grid{number}"] = Rounding(kind=kind, grid=grid)
        if kind == "fp16" and not large:
            found["fp16-blocks"] = Rounding(kind="fp16", terms=16)
    return found


@dataclass(frozen=True, kw_only=True)
class Computed:
    """What was computed of a model. ``references``: a sample's outputs by tensor name, each in float64.

    ``precision``: of the reference, in words. ``errors``: a sample's outputs → member → relative L2 error.
    ``own_error``: output → the worst over samples of the reference's own, ``own_means`` says of what.
    ``why_not``: why nothing could be computed, or why there is no floor.
    """

    by: str = ""
    precision: str = ""
    references: tuple[Mapping[str, Array], ...] = ()
    errors: tuple[Mapping[str, Mapping[str, float]], ...] = ()
    own_error: Mapping[str, float] = field(default_factory=dict)
    own_means: str = ""
    why_not: str = ""


def compute(model: Path, samples: Sequence[Sample], precision: str, scratch: Path) -> Computed:
    """Compute references and floors of all samples; what cannot be had is told, nothing is raised.

    ``precision``: one of :data:`trtmatrix.core.factors.ALLOWED`. ``scratch``: a folder on the model's disk.
    """
    with tempfile.TemporaryDirectory(dir=scratch, prefix=".computing-") as folder:
        shapes = {name: array.shape for name, array in samples[0].items()}
        try:
            bench = Bench(model, Path(folder), shapes)
            return _compute(bench, samples, precision)
        except (NotComputedError, CannotRewriteError) as error:
            return _as_it_stands(model, samples, str(error))


def _compute(bench: Bench, samples: Sequence[Sample], precision: str) -> Computed:
    singles, integers = _run_float32(bench, samples)
    references, in_float32 = _references(bench, samples)
    if references is None:
        words, references = f"float32: {in_float32}", singles
    else:
        words = f"float64 ({in_float32} in float32)" if in_float32 else "float64"
    errors: list[dict[str, dict[str, float]]] = [{name: {} for name in outputs} for outputs in references]
    failed = []
    for member, rounding, optimised in _members(bench, precision):
        try:
            found = singles
            if rounding != Rounding(kind="fp32") or optimised:
                session = _session(bench, rounding, optimised=optimised)
                found = [session.run(sample, GIVEN) for sample in samples]
        except NotComputedError as error:
            failed.append(f"{member}: {error}")
            continue
        for by_output, outputs, reference in zip(errors, found, references, strict=True):
            _measure(member, outputs, reference, by_output)
    doubled = references is not singles
    steps = integers | (set(references[0]) if bench.operators() & QUANTIZING else set())
    return Computed(
        by=runtime_name(), precision=words, references=tuple(references),
        errors=tuple(_without_lucky(by_output, steps) for by_output in errors),
        own_error=_own_error(errors, singles, references, doubled=doubled),
        own_means="float32 against float64" if doubled else "float32 computed in several ways",
        why_not="; ".join(failed),
    )  # fmt: skip


def _run_float32(bench: Bench, samples: Sequence[Sample]) -> tuple[list[dict[str, Array]], set[str]]:
    """Return what float32 gives, and the outputs that hold no real numbers."""
    session = bench.session("float32", bench.float32)
    return [_float64(session.run(sample)) for sample in samples], set(session.integers)


def _members(bench: Bench, precision: str) -> Iterator[tuple[str, Rounding, bool]]:
    """Yield each member, and whether ONNX Runtime may optimise its graph."""
    for member, rounding in ensemble(precision, large=bench.is_large).items():
        yield member, rounding, False
        if rounding == Rounding(kind="fp32"):
            yield f"{member}-optimised", rounding, True


def _session(bench: Bench, rounding: Rounding, *, optimised: bool = False) -> Session:
    def change(model: ModelProto) -> None:
        apply_rounding(model, bench.float32(model), rounding)

    return bench.session("member", change, optimised=optimised)


def _references(bench: Bench, samples: Sequence[Sample]) -> tuple[list[dict[str, Array]] | None, str]:
    """Return references in float64 with the operators that are not, or None and why."""
    kept: set[str] = set()
    for _ in range(MOST_TRIES):
        made: list[Retyping] = []

        def change(model: ModelProto, made: list[Retyping] = made) -> None:
            made.append(Retyping(model, bench.known, TensorProto.DOUBLE, frozenset(kept)))
            made[0].rewrite()

        try:
            session = bench.session("float64", change)
            found = [_float64(session.run(sample)) for sample in samples]
        except CannotRewriteError as error:
            return None, str(error)
        except NotComputedError as error:
            more = _without_kernel(str(error), bench) - kept
            if not more:
                return None, str(error)
            kept |= more
            continue
        return found, ", ".join(sorted(made[0].in_float32))
    return None, "too many of its operators have no float64 kernel"


def _without_kernel(message: str, bench: Bench) -> set[str]:
    """Return the operators that ONNX Runtime has no float64 kernel for, by what it says.

    It may name one that another is made of: then those of the graph that have a definition are meant.
    """
    found = UNIMPLEMENTED.search(message)
    if found is None:
        return set()
    name = found.group(1) or found.group(2)
    operators = bench.operators()
    if name in operators:
        return {name}
    return {op for op in operators if _has_definition(op, opset_of(bench.model))} or {name}


def _has_definition(op: str, opset: int) -> bool:
    try:
        schema = onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _measure(
    member: str, outputs: Mapping[str, Array], reference: Mapping[str, Array],
    errors: dict[str, dict[str, float]],
) -> None:  # fmt: skip
    """Note a member's error; one that overflows is none of the ways in which a right engine may compute."""
    for name, exact in reference.items():
        if outputs[name].shape != exact.shape:
            continue
        values = measure_output(outputs[name], exact)
        if not values["nan_unexpected"] and math.isfinite(values["rel_l2"]):
            errors[name][member] = float(values["rel_l2"])


def _without_lucky(
    errors: Mapping[str, Mapping[str, float]], steps: Collection[str]
) -> dict[str, Mapping[str, float]]:
    """Leave out the floors of 0 that outputs in steps have where no member happened to fall on another step.

    An engine may fall on another one and be right.
    """
    return {
        name: {} if name in steps and not any(members.values()) else members
        for name, members in errors.items()
    }  # fmt: skip


def _own_error(
    errors: Sequence[Mapping[str, Mapping[str, float]]], singles: Sequence[Mapping[str, Array]],
    references: Sequence[Mapping[str, Array]], *, doubled: bool,
) -> dict[str, float]:  # fmt: skip
    """Return the worst over samples: of float32 against the reference, or of float32's ways to each other."""
    worst: dict[str, float] = {}
    for by_output, single, reference in zip(errors, singles, references, strict=True):
        for name, exact in reference.items():
            found = [error for member, error in by_output[name].items() if member.startswith("fp32")]
            if doubled:
                found = [float(measure_output(single[name], exact)["rel_l2"])]
            finite = [error for error in found if math.isfinite(error)]
            worst[name] = max([worst.get(name, 0.0), *finite])
    return worst


def _float64(outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return outputs in float64; :class:`NotComputedError` where one holds no numbers."""
    found = {}
    for name, array in outputs.items():
        if array.dtype.kind not in "fiub":
            raise NotComputedError(f"the output {name} holds no numbers")
        found[name] = array.astype(np.float64)
    return found


def _as_it_stands(model: Path, samples: Sequence[Sample], why: str) -> Computed:
    """Run the file itself, where it cannot be rewritten: a reference without a floor."""
    try:
        session = Session(model)
        references = tuple(_float64(session.run(sample)) for sample in samples)
    except NotComputedError as error:
        return Computed(why_not=str(error))
    return Computed(
        by=runtime_name(), precision="the graph's own", references=references, why_not=f"{why}",
        own_means="unknown",
    )  # fmt: skip

