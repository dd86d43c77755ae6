"""A model's reference and noise floor, computed on the host's CPU: by ONNX Runtime, or by ONNX's evaluator.

The reference is the graph in float64, or in float32 where that cannot be had. The floor is the worst error of
the same graph in the precision asked for, computed in several ways, as the ensemble of the project's repros
is: with the rounding of that precision on different grids, and with sums rounded on the way.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, TensorProto

from trtmatrix.common.tensors import Tensor, fits_shape, shape_text
from trtmatrix.judge.factors import ALLOWED
from trtmatrix.onnxmodel.bench import Bench
from trtmatrix.onnxmodel.retype import CannotRewriteError, Retyping
from trtmatrix.onnxmodel.rounding import GIVEN, Rounding, apply_rounding
from trtmatrix.onnxmodel.sessions import NotComputedError, Session
from trtmatrix.onnxmodel.walk import known_of, opset_of
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
    ``why_not``: why nothing could be computed, or why there is no floor. ``types``: the outputs' own, by
    NumPy's names. ``instead``: why another than who was asked first has computed it.
    """

    by: str = ""
    precision: str = ""
    references: tuple[Mapping[str, Array], ...] = ()
    errors: tuple[Mapping[str, Mapping[str, float]], ...] = ()
    own_error: Mapping[str, float] = field(default_factory=dict)
    own_means: str = ""
    why_not: str = ""
    types: Mapping[str, str] = field(default_factory=dict)
    instead: str = ""


def compute(
    model: Path, samples: Sequence[Sample], precision: str, scratch: Path,
    runners: Sequence[type[Session]] = (Session,),
) -> Computed:  # fmt: skip
    """Compute references and floors of all samples; what cannot be had is told, nothing is raised.

    ``precision``: one of :data:`trtmatrix.judge.factors.ALLOWED`. ``scratch``: a folder on the model's disk.
    ``runners``: who may compute, the first that can does.
    """
    shapes = {name: array.shape for name, array in samples[0].items()}
    instead = ""
    for runner in runners:
        with tempfile.TemporaryDirectory(dir=scratch, prefix=".computing-") as folder:
            try:
                computed = _compute(Bench(model, Path(folder), shapes, runner), samples, precision)
            except (NotComputedError, CannotRewriteError) as error:
                computed = _as_it_stands(model, samples, str(error), runner)
        if computed.by:
            break
        instead = computed.why_not
    return replace(computed, instead=instead if computed.by else "")


def _compute(bench: Bench, samples: Sequence[Sample], precision: str) -> Computed:
    singles, integers = _run_float32(bench, samples)
    if bench.runner.independent:
        _check_shapes(bench.model.graph, singles)
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
    if bench.runner.independent:
        _add_plainer(bench, samples, references, errors)
    doubled = references is not singles
    steps = integers | (set(references[0]) if bench.operators() & QUANTIZING else set())
    return Computed(
        by=bench.runner.called(), precision=words, references=tuple(references),
        errors=tuple(_without_lucky(by_output, steps) for by_output in errors),
        own_error=_own_error(errors, singles, references, doubled=doubled),
        own_means="float32 against float64" if doubled else "float32 computed in several ways",
        why_not="; ".join(failed),
        types={name: kind for name in references[0] if (kind := bench.real_type(name))},
    )  # fmt: skip


PLAINER = 2.0**-17
"""A float32 result of ONNX Runtime that is nearer to an independent reference is one of the right ways: a
long sum without pairs is off by 2e-6. An error of more than 128 roundings is what is judged."""


def _add_plainer(
    bench: Bench, samples: Sequence[Sample], references: Sequence[Mapping[str, Array]],
    errors: Sequence[dict[str, dict[str, float]]],
) -> None:  # fmt: skip
    """Note the error of ONNX Runtime's own float32 where it is no more than a plainer sum makes.

    Where it gives other shapes, and the graph says nothing of them, nobody knows who is right.
    """
    said = known_of(bench.model.graph).shapes
    try:
        session = bench.session("runtime", bench.float32, runner=Session)
        found = [session.run(sample) for sample in samples]
    except NotComputedError:
        return
    for by_output, outputs, reference in zip(errors, found, references, strict=True):
        if odd := [n for n in reference if n not in said and outputs[n].shape != reference[n].shape]:
            raise NotComputedError(f"it gives {odd[0]} another shape than ONNX Runtime")
        own: dict[str, dict[str, float]] = {name: {} for name in reference}
        _measure("fp32-runtime", outputs, reference, own)
        for name, members in own.items():
            by_output[name].update({m: error for m, error in members.items() if error <= PLAINER})


def _check_shapes(graph: GraphProto, outputs: Sequence[Mapping[str, Array]]) -> None:
    """Refuse an evaluator's outputs whose shapes are not the graph's: of scalars its Loop makes [n, 1]."""
    said = known_of(graph).shapes
    for name, array in ((name, array) for sample in outputs for name, array in sample.items()):
        if not fits_shape(array.shape, Tensor(name=name, dtype="", shape=said.get(name))):
            is_, wanted = shape_text(array.shape), shape_text(said[name])
            raise NotComputedError(f"it gives {name} the shape {is_}, and the graph says {wanted}")


def _run_float32(bench: Bench, samples: Sequence[Sample]) -> tuple[list[dict[str, Array]], set[str]]:
    """Return what float32 gives, and the outputs that hold no real numbers."""
    session = bench.session("float32", bench.float32)
    return [_float64(session.run(sample)) for sample in samples], set(session.integers)


def _members(bench: Bench, precision: str) -> Iterator[tuple[str, Rounding, bool]]:
    """Yield each member, and whether ONNX Runtime may optimise its graph."""
    for member, rounding in ensemble(precision, large=bench.is_large).items():
        yield member, rounding, False
        if rounding == Rounding(kind="fp32") and not bench.runner.independent:
            yield f"{member}-optimised", rounding, True


def _session(bench: Bench, rounding: Rounding, *, optimised: bool = False) -> Session:
    def change(model: ModelProto) -> None:
        apply_rounding(model, bench.float32(model), rounding)

    return bench.session("member", change, optimised=optimised)


def _references(bench: Bench, samples: Sequence[Sample]) -> tuple[list[dict[str, Array]] | None, str]:
    """Return references in float64 with the operators that are not, or None and why."""
    kept: frozenset[str] = frozenset()
    for _ in range(MOST_TRIES):
        try:
            session, in_float32 = _float64_session(bench, kept)
            found = [_float64(session.run(sample)) for sample in samples]
        except CannotRewriteError as error:
            return None, str(error)
        except NotComputedError as error:
            more = _without_kernel(str(error), bench) - kept
            if not more:
                return None, str(error)
            kept |= more
            continue
        return found, ", ".join(sorted(in_float32))
    return None, "too many of its operators have no float64 kernel"


def _float64_session(bench: Bench, kept: frozenset[str]) -> tuple[Session, set[str]]:
    """Load the graph in float64; returns it with the operators that stay in float32."""
    in_float32: set[str] = set()

    def change(model: ModelProto) -> None:
        retyping = Retyping(model, bench.known, TensorProto.DOUBLE, kept)
        retyping.rewrite()
        in_float32.update(retyping.in_float32)

    return bench.session("float64", change), in_float32


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
    names = ("has_function", "has_context_dependent_function")  # onnx's own types lack them
    return any(getattr(schema, name, False) for name in names)


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


def _as_it_stands(model: Path, samples: Sequence[Sample], why: str, runner: type[Session]) -> Computed:
    """Run the file itself, where it cannot be rewritten: a reference without a floor."""
    try:
        plain, optimised = (
            [_float64(session.run(sample)) for sample in samples]
            for session in (runner(model), runner(model, optimised=True))
        )
        if runner.independent:
            _check_shapes(onnx.load(str(model), load_external_data=False).graph, plain)
    except NotComputedError as error:
        return Computed(why_not=str(error))
    own: dict[str, float] = {}
    for reference, other in zip(plain, optimised, strict=True):
        for name, exact in reference.items():
            if exact.shape == other[name].shape:
                own[name] = max(own.get(name, 0.0), float(measure_output(other[name], exact)["rel_l2"]))
    return Computed(
        by=runner.called(), precision="the graph's own", references=tuple(plain), why_not=why,
        own_error={name: error for name, error in own.items() if math.isfinite(error)},
        own_means="with and without optimisation",
    )  # fmt: skip
