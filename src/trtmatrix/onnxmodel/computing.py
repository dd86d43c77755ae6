"""A model's reference and noise floor, computed on the host's CPU: by ONNX Runtime, or by ONNX's evaluator.

The reference is the graph in float64, or in float32 where that cannot be had. The floor is the worst error of
the same graph in the precision asked for, computed in several ways, as the ensemble of the project's repros
is: with the rounding of that precision on different grids, and with sums rounded on the way.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, TensorProto
from onnx.inliner import inline_local_functions
from onnx.version_converter import convert_version

from trtmatrix.judge.factors import ALLOWED
from trtmatrix.onnxmodel.graphs import (
    LARGE,
    Known,
    find_external,
    infer,
    known_of,
    opset_of,
)
from trtmatrix.onnxmodel.rewriting import CannotRewriteError, Retyping
from trtmatrix.onnxmodel.rounding import GIVEN, Rounding, apply_rounding
from trtmatrix.onnxmodel.sessions import NotComputedError, Session
from trtmatrix.onnxmodel.tensors import Tensor, fits_shape, shape_text
from trtprobe.measure import measure_output

Array = NDArray[Any]
Sample = Mapping[str, Array]
Errors = dict[str, dict[str, float]]
"""Output → member of the ensemble → relative L2 error."""

GRIDS = (0.73, 0.83, 0.91)
"""Below 1, so that nothing overflows that would not anyway; no sum of few powers of two."""

RECOGNISED = {"fp32": ("fp32", "tf32"), "tf32": ("fp32", "tf32")}
QUANTIZING = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
UNIMPLEMENTED = re.compile(r"implementation for (\w+)\(|operator \((\w+)\)")
MOST_TRIES = 16

PLAINER = 2.0**-17
"""A float32 result of ONNX Runtime that is nearer to an independent reference is one of the right ways: a
long sum without pairs is off by 2e-6. An error of more than 128 roundings is what is judged."""

WEIGHTS = "trtmatrix-weights.bin"
LARGE_WEIGHTS = 1 << 29
"""Bytes of weights from which on a model is large: fewer ways of computing it are tried."""

LEAST_OPSET, NEWER_OPSET = 11, 13
"""Below the least, Equal, Slice and Pad are not what the rewritten graph is made of: it is converted."""


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
                computed = _compute(Rewritable(model, Path(folder), shapes, runner), samples, precision)
            except (NotComputedError, CannotRewriteError) as error:
                computed = _as_it_stands(model, samples, str(error), runner)
        if computed.by:
            break
        instead = computed.why_not
    return replace(computed, instead=instead if computed.by else "")


class Rewritable:
    """A model that is rewritten again and again in a folder; its large weights stay as they are, in files.

    ``known``: its tensors' types, and the first sample's shapes. ``is_large``: there should not be much in
    memory beside its weights.
    """

    def __init__(
        self, model: Path, folder: Path, shapes: Mapping[str, tuple[int, ...]],
        runner: type[Session] = Session,
    ) -> None:  # fmt: skip
        """Read a model; ``folder`` is for what is written, on the same disk. It is emptied by nobody.

        :class:`CannotRewriteError` where its opset is old and cannot be converted.
        """
        self.folder, self.runner = folder, runner
        self.model = onnx.load(str(model), load_external_data=False)
        if opset_of(self.model) < LEAST_OPSET:
            self.model = _converted(self.model)
        if self.model.functions:
            self.model = inline_local_functions(self.model)
        for name, file in find_external(model).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(file, folder / name)
        bare = folder / "bare.onnx"  # large weights go into a file
        onnx.save_model(
            self.model, str(bare), save_as_external_data=True, location=WEIGHTS, size_threshold=4 * LARGE
        )
        self.model = onnx.load(str(bare), load_external_data=False)
        bare.unlink()
        self.known = known_of(infer(self.model, shapes).graph)
        self.operators = {node.op_type for node in self.model.graph.node}
        weights = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        self.is_large = weights > LARGE_WEIGHTS

    def real_type(self, name: str) -> str:
        """Return the type of a tensor that holds real numbers, by NumPy's name; nothing of another."""
        kind = self.known.types[name] if self.known.is_float(name) else None
        return "" if kind is None else str(onnx.helper.tensor_dtype_to_np_dtype(kind))

    def session(
        self, change: Callable[[ModelProto], object], *, optimised: bool = False,
        runner: type[Session] | None = None,
    ) -> Session:  # fmt: skip
        """Load a changed copy of the model; ``runner``: by whom, if it is another."""
        copy = ModelProto()
        copy.CopyFrom(self.model)
        change(copy)
        path = self.folder / "changed.onnx"
        path.write_bytes(copy.SerializeToString())
        try:
            return (runner or self.runner)(path, optimised=optimised, frugal=self.is_large)
        finally:
            path.unlink()

    def float32(self, model: ModelProto) -> Known:
        """Rewrite a copy so that all its real numbers are float32; returns what was known before."""
        Retyping(model, self.known, TensorProto.FLOAT).rewrite()
        return self.known


def _converted(model: ModelProto) -> ModelProto:
    """Return an old model in a newer opset; :class:`CannotRewriteError` where onnx cannot convert it."""
    try:
        return convert_version(model, NEWER_OPSET)
    except Exception as error:  # whatever stops the converter, the model stays as it is
        said = " ".join(str(error).split())[:200]
        raise CannotRewriteError(
            f"its opset is {opset_of(model)}, which onnx cannot convert: {said}"
        ) from error


def _compute(model: Rewritable, samples: Sequence[Sample], precision: str) -> Computed:
    session = model.session(model.float32)
    singles, steps = [_float64(session.run(sample)) for sample in samples], set(session.integers)
    del session
    if model.runner.independent:
        _check_shapes(model.model.graph, singles)
    references, in_float32 = _references(model, samples)
    doubled = references is not None
    words = "float64" + f" ({in_float32} in float32)" * bool(in_float32)
    if references is None:
        words, references = f"float32: {in_float32}", singles
    errors: list[Errors] = [{name: {} for name in outputs} for outputs in references]
    failed = []
    for member, rounding, optimised in _members(model, precision):
        try:
            found = singles
            if rounding != Rounding(kind="fp32") or optimised:

                def change(copy: ModelProto, rounding: Rounding = rounding) -> None:
                    apply_rounding(copy, model.float32(copy), rounding)

                session = model.session(change, optimised=optimised)
                found = [session.run(sample, GIVEN) for sample in samples]
        except NotComputedError as error:
            failed.append(f"{member}: {error}")
            continue
        for by_output, outputs, reference in zip(errors, found, references, strict=True):
            _measure(member, outputs, reference, by_output)
    if model.runner.independent:
        _add_plainer(model, samples, references, errors)
    steps |= set(references[0]) if model.operators & QUANTIZING else set()
    return Computed(
        by=model.runner.called(), precision=words, references=tuple(references),
        errors=tuple(_without_lucky(by_output, steps) for by_output in errors),
        own_error=_own_error(errors, singles, references, doubled=doubled),
        own_means="float32 against float64" if doubled else "float32 computed in several ways",
        why_not="; ".join(failed),
        types={name: kind for name in references[0] if (kind := model.real_type(name))},
    )  # fmt: skip


def _members(model: Rewritable, precision: str) -> Iterator[tuple[str, Rounding, bool]]:
    """Yield the members that are computed for a precision: name, rounding, and whether it may be optimised.

    A name begins with what the member rounds to.
    """
    for kind in dict.fromkeys((*ALLOWED[precision], *RECOGNISED.get(precision, ()))):
        yield kind, Rounding(kind=kind), False
        if kind == "fp32" and not model.runner.independent:
            yield f"{kind}-optimised", Rounding(kind=kind), True
        for number, grid in enumerate(GRIDS[:1] if model.is_large else GRIDS, start=1):
            yield f"{kind}-grid{number}", Rounding(kind=kind, grid=grid), False
        if kind == "fp16" and not model.is_large:
            yield "fp16-blocks", Rounding(kind="fp16", terms=16), False


def _references(model: Rewritable, samples: Sequence[Sample]) -> tuple[list[dict[str, Array]] | None, str]:
    """Return references in float64 with the operators that are not, or None and why."""
    kept: frozenset[str] = frozenset()
    for _ in range(MOST_TRIES):
        in_float32: set[str] = set()

        def change(copy: ModelProto, kept: frozenset[str] = kept, seen: set[str] = in_float32) -> None:
            retyping = Retyping(copy, model.known, TensorProto.DOUBLE, kept)
            retyping.rewrite()
            seen.update(retyping.in_float32)

        try:
            session = model.session(change)
            return [_float64(session.run(sample)) for sample in samples], ", ".join(sorted(in_float32))
        except CannotRewriteError as error:
            return None, str(error)
        except NotComputedError as error:
            more = _without_kernel(str(error), model) - kept
            if not more:
                return None, str(error)
            kept |= more
    return None, "too many of its operators have no float64 kernel"


def _without_kernel(message: str, model: Rewritable) -> set[str]:
    """Return the operators that ONNX Runtime has no float64 kernel for, by what it says.

    It may name one that another is made of: then those of the graph that have a definition are meant.
    """
    found = UNIMPLEMENTED.search(message)
    if found is None:
        return set()
    name, defined = found.group(1) or found.group(2), set()
    for op in model.operators - {name}:
        with contextlib.suppress(onnx.defs.SchemaError):
            schema = onnx.defs.get_schema(op, opset_of(model.model), "")
            made = ("has_function", "has_context_dependent_function")  # onnx's own types lack them
            defined |= {op} if any(getattr(schema, word, False) for word in made) else set()
    return {name} if name in model.operators else defined or {name}


def _add_plainer(
    model: Rewritable, samples: Sequence[Sample], references: Sequence[Sample], errors: Sequence[Errors]
) -> None:
    """Note the error of ONNX Runtime's own float32 where it is no more than a plainer sum makes.

    Where it gives other shapes, and the graph says nothing of them, nobody knows who is right.
    """
    said = known_of(model.model.graph).shapes
    try:
        session = model.session(model.float32, runner=Session)
        found = [session.run(sample) for sample in samples]
    except NotComputedError:
        return
    for by_output, outputs, reference in zip(errors, found, references, strict=True):
        if odd := [n for n in reference if n not in said and outputs[n].shape != reference[n].shape]:
            raise NotComputedError(f"it gives {odd[0]} another shape than ONNX Runtime")
        own: Errors = {name: {} for name in reference}
        _measure("fp32-runtime", outputs, reference, own)
        for name, members in own.items():
            by_output[name].update({m: error for m, error in members.items() if error <= PLAINER})


def _check_shapes(graph: GraphProto, outputs: Sequence[Sample]) -> None:
    """Refuse an evaluator's outputs whose shapes are not the graph's: of scalars its Loop makes [n, 1]."""
    said = known_of(graph).shapes
    for name, array in ((name, array) for sample in outputs for name, array in sample.items()):
        if not fits_shape(array.shape, Tensor(name=name, dtype="", shape=said.get(name))):
            is_, wanted = shape_text(array.shape), shape_text(said[name])
            raise NotComputedError(f"it gives {name} the shape {is_}, and the graph says {wanted}")


def _measure(member: str, outputs: Sample, reference: Sample, errors: Errors) -> None:
    """Note a member's error; one that overflows is none of the ways in which a right engine may compute."""
    for name, exact in reference.items():
        if outputs[name].shape != exact.shape:
            continue
        values = measure_output(outputs[name], exact)
        if not values["nan_unexpected"] and math.isfinite(values["rel_l2"]):
            errors[name][member] = float(values["rel_l2"])


def _without_lucky(errors: Errors, steps: Collection[str]) -> Errors:
    """Leave out the floors of 0 that outputs in steps have where no member happened to fall on another step.

    An engine may fall on another one and be right.
    """
    return {name: {} if name in steps and not any(m.values()) else m for name, m in errors.items()}


def _own_error(
    errors: Sequence[Errors], singles: Sequence[Sample], references: Sequence[Sample], *, doubled: bool
) -> dict[str, float]:
    """Return the worst over samples: of float32 against the reference, or of float32's ways to each other."""
    worst: dict[str, float] = {}
    for by_output, single, reference in zip(errors, singles, references, strict=True):
        for name, exact in reference.items():
            found = [error for member, error in by_output[name].items() if member.startswith("fp32")]
            if doubled:
                found = [float(measure_output(single[name], exact)["rel_l2"])]
            worst[name] = max([worst.get(name, 0.0), *filter(math.isfinite, found)])
    return worst


def _float64(outputs: Sample) -> dict[str, Array]:
    """Return outputs in float64; :class:`NotComputedError` where one holds no numbers."""
    for name, array in outputs.items():
        if array.dtype.kind not in "fiub":
            raise NotComputedError(f"the output {name} holds no numbers")
    return {name: array.astype(np.float64) for name, array in outputs.items()}


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
