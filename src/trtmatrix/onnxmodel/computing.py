"""A model's reference and noise floor, computed on the host's CPU, node by node.

The reference is the graph in float64; a node that nobody computes in float64 is computed in float32. The
floor is the worst error of the same graph in the precision asked for, computed in several ways, as the
ensemble of the project's repros is: between the nodes lie NumPy arrays, which are rounded to that precision,
on different grids; and sums are rounded on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.inliner import inline_local_functions

from trtmatrix.authoring.arithmetic import round_bf16, round_fp16, round_tf32
from trtmatrix.judge.factors import ALLOWED
from trtmatrix.onnxmodel.evaluator import SingleNode
from trtmatrix.onnxmodel.graphs import FLOATS, attribute_of, find_external, infer, known_of, whole_tensor
from trtmatrix.onnxmodel.inputs import Tensor, fits_shape, shape_text
from trtmatrix.onnxmodel.sessions import NotComputedError, Session, name_runner
from trtprobe.measure import measure_output

Array = NDArray[Any]
Sample = Mapping[str, Array]
Errors = dict[str, dict[str, float]]
"""Output → member of the ensemble → relative L2 error."""

GRIDS = (0.73, 0.83, 0.91)
"""Below 1, so that nothing overflows that would not anyway; no sum of few powers of two."""

RECOGNISED = {"fp32": ("fp32", "tf32"), "tf32": ("fp32", "tf32")}

FIXED = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"}
)
"""Operators whose steps are those of float32, whatever else is computed in float64."""

PRODUCTS: Mapping[str, tuple[int, ...]] = {
    "MatMul": (0, 1), "Gemm": (0, 1), "Conv": (0, 1), "ConvTranspose": (0, 1), "DeformConv": (0, 1),
    "Einsum": (0, 1, 2, 3), "LSTM": (0, 1, 2), "GRU": (0, 1, 2), "RNN": (0, 1, 2),
    "Attention": (0, 1, 2),
}  # fmt: skip
"""Operators that multiply matrices → the inputs that are operands."""

AS_GIVEN: Mapping[str, tuple[int, ...]] = {
    "QuantizeLinear": (1,), "DequantizeLinear": (1,), "Resize": (1, 2), "Upsample": (1,), "Range": (0, 1, 2),
}  # fmt: skip
"""Inputs that stay as they are: scales of quantizing, sizes."""

HALF: Mapping[int, str] = {TensorProto.FLOAT16: "fp16", TensorProto.BFLOAT16: "bf16"}
ROUND: Mapping[str, Callable[[Array], Array]] = {
    "fp32": np.asarray, "tf32": round_tf32, "fp16": round_fp16, "bf16": round_bf16,
}  # fmt: skip

MOST_BLOCKS = 32
"""Blocks of one sum. Longer sums have longer blocks."""

ALIKE = 1e-2
"""ONNX's evaluator is believed about a node where it differs by less from ONNX Runtime's float32."""

PLAINER = 2.0**-17
"""A float32 result of ONNX Runtime that is nearer to an independent reference is one of the right ways: a
long sum without pairs is off by 2e-6. An error of more than 128 roundings is what is judged."""

LARGE_WEIGHTS = 1 << 29
"""Bytes of a model from which on it is large: fewer ways of computing it are tried."""


@dataclass(frozen=True, kw_only=True)
class Computed:
    """What was computed of a model. ``references``: a sample's outputs by tensor name, each in float64.

    ``precision``: of the reference, in words. ``errors``: a sample's outputs → member → relative L2 error.
    ``own_error``: output → the worst over samples of float32 against the reference. ``why_not``: why nothing
    could be computed, or why there is no floor. ``types``: the outputs' own, by NumPy's names. ``instead``:
    why ONNX Runtime has computed what ONNX's evaluator was asked for.
    """

    by: str = ""
    precision: str = ""
    references: tuple[Mapping[str, Array], ...] = ()
    errors: tuple[Mapping[str, Mapping[str, float]], ...] = ()
    own_error: Mapping[str, float] = field(default_factory=dict)
    why_not: str = ""
    types: Mapping[str, str] = field(default_factory=dict)
    instead: str = ""


@dataclass(frozen=True, kw_only=True)
class Way:
    """How a member of the ensemble computes.

    ``kind``: ``"float64"`` and ``"fp32"`` round nothing, ``"tf32"`` the operands of products, ``"fp16"`` and
    ``"bf16"`` every tensor. ``grid``: what is rounded is multiplied by it first and divided by it after, so
    that the errors are others but of the same size; what is exact without it stays exact. ``terms``: so many
    products are summed up at once, then the sum is rounded (0: all of them).
    """

    kind: str
    grid: float = 1.0
    terms: int = 0

    def round(self, values: Array, kind: str) -> Array:
        """Round float32 numbers to a kind, on the grid; NaN stays."""
        with np.errstate(all="ignore"):
            plain = np.where(np.isnan(values), values, ROUND[kind](values))
            if self.grid == 1:
                return plain
            grid = np.float32(self.grid)
            shifted = ROUND[kind](values * grid) / grid
            return np.where(np.isnan(values) | ((plain == values) & (kind != "fp32")), plain, shifted)


def compute(model: Path, samples: Sequence[Sample], precision: str, *, independent: bool = False) -> Computed:
    """Compute references and floors of all samples; what cannot be had is told, nothing is raised.

    ``precision``: one of :data:`trtmatrix.judge.factors.ALLOWED`. ``independent``: of ONNX Runtime, by ONNX's
    own evaluator, if that can.
    """
    shapes = {name: array.shape for name, array in samples[0].items()}
    instead = ""
    if independent:
        try:
            return _compute(Graph(model, shapes, independent=True), samples, precision)
        except NotComputedError as error:
            instead = str(error)
    try:
        return replace(_compute(Graph(model, shapes), samples, precision), instead=instead)
    except NotComputedError as error:
        return Computed(why_not=str(error))


class Graph:
    """A model whose nodes are run one after another. ``known``: its tensors' types.

    ``in_float32``: operators that were, where float64 was asked for. ``is_large``: fewer ways are tried.
    """

    def __init__(
        self, file: Path, shapes: Mapping[str, tuple[int, ...]], *, independent: bool = False
    ) -> None:
        """Read a model for samples of about these shapes; external weights are read where they are used."""
        model = onnx.load(str(file), load_external_data=False)
        files = [file, *find_external(file, model).values()]
        self.is_large = sum(each.stat().st_size for each in files) > LARGE_WEIGHTS
        if independent and self.is_large:
            raise NotComputedError("its weights are too large for it")
        if model.functions:
            model = inline_local_functions(model)
        self.file, self.independent, self.graph, self.in_float32 = file, independent, model.graph, set[str]()
        self.known, self.said = known_of(infer(model, shapes).graph), known_of(model.graph).shapes
        self.weights = {tensor.name: tensor for tensor in model.graph.initializer}
        odd = {name for name, tensor in self.weights.items() if not _is_plain(tensor.data_type)}
        self.nodes = [
            SingleNode(
                node, model.opset_import, [self.weights[name] for name in odd & set(node.input)],
                is_heavy=node.op_type in PRODUCTS,
            )
            for node in model.graph.node
        ]  # fmt: skip
        self._last = {name: number for number, each in enumerate(self.nodes) for name in each.inputs}
        self._blocks: dict[tuple[int, bool], SingleNode] = {}

    def run(self, sample: Sample, way: Way) -> dict[str, Array]:
        """Return the outputs of one sample; :class:`NotComputedError` where a node cannot be run."""
        dtype = np.float64 if way.kind == "float64" else np.float32
        exact: dict[str, Any] = {name: _to(dtype, array) for name, array in sample.items()}
        rounded = {name: self._store(name, value, way) for name, value in exact.items()}
        outputs = [info.name for info in self.graph.output]

        def fetch(name: str, *, as_given: bool = False) -> Any:  # noqa: ANN401 - an array, or a sequence
            if name in self.weights and name not in exact:
                value = _to(
                    dtype,
                    np.asarray(numpy_helper.to_array(whole_tensor(self.weights[name], self.file.parent))),
                )
                is_half = self.known.types.get(name) in HALF  # those are of few bits
                return value if as_given or is_half else self._store(name, value, way)
            return (exact if as_given else rounded)[name]

        for number, each in enumerate(self.nodes):
            given = {
                each.node.input[i] for i in AS_GIVEN.get(each.node.op_type, ()) if i < len(each.node.input)
            }
            feeds = {name: fetch(name, as_given=name in given) for name in each.inputs}
            for name, value in self._run_node(number, each, feeds, way).items():
                exact[name] = _to(dtype, value)
                rounded[name] = self._store(name, exact[name], way)
            for name in each.inputs:
                if self._last[name] == number and name not in outputs:
                    exact.pop(name, None)
                    rounded.pop(name, None)
        return {name: fetch(name) for name in outputs}

    def _store(self, name: str, value: Any, way: Way) -> Any:  # noqa: ANN401 - an array, or a sequence
        """Return a tensor as it is kept; one of a half type is rounded to that, but for fp32 and float64."""
        if way.kind in {"fp32", "float64"} or not _is_real(value):
            return value
        kind = HALF.get(self.known.types.get(name, 0), "") or (way.kind if way.kind != "tf32" else "")
        return way.round(value, kind) if kind else value

    def _run_node(self, number: int, each: SingleNode, feeds: dict[str, Any], way: Way) -> dict[str, Any]:
        """Return a node's outputs, as nearly as a way has them."""
        node = each.node
        is_cast = node.op_type == "Cast" and attribute_of(node, "to") in FLOATS
        if is_cast or (node.op_type == "CastLike" and _is_real(feeds[node.input[1]])):
            return {node.output[0]: np.asarray(feeds[node.input[0]], np.float64)}
        if way.kind == "float64":
            return self._run_double(each, feeds)
        if way.kind == "tf32" or way.grid != 1:
            for place in PRODUCTS.get(node.op_type, ()) if way.kind in {"fp32", "tf32"} else ():
                name = node.input[place] if place < len(node.input) else ""
                if name and _is_real(feeds[name]) and self.known.types.get(name) not in HALF:
                    feeds[name] = way.round(feeds[name], way.kind)
        if way.terms and (axes := _summed_axes(node, feeds)):
            return {node.output[0]: self._run_blocks(number, each, feeds, way, axes)}
        return self._run_single(each, feeds)

    def _run_double(self, each: SingleNode, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Run a node in float64 where somebody can, else in float32."""
        may_be_double = each.node.op_type not in FIXED
        if may_be_double:
            try:
                return each.by_evaluator(feeds) if self.independent else each.by_runtime(feeds)
            except NotComputedError:
                pass
        single = self._run_single(each, {name: _to(np.float32, value) for name, value in feeds.items()})
        if may_be_double and not self.independent:
            try:
                double = each.by_evaluator(feeds)
                if all(_are_alike(double[name], single[name]) for name in single):
                    return double
            except NotComputedError:
                pass
        self.in_float32.add(each.node.op_type)
        return single

    def _run_single(self, each: SingleNode, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Run a node in float32; where that is no type for it, in the types that the file has."""
        if self.independent:
            return each.by_evaluator(feeds)
        try:
            return each.by_runtime(feeds)
        except NotComputedError as error:
            types = {name: self.known.types[name] for name in feeds if self.known.is_float(name)}
            own = {name: helper.tensor_dtype_to_np_dtype(kind) for name, kind in types.items()}
            typed = {name: _to(own.get(name, np.float32), value) for name, value in feeds.items()}
            for run, given in ((each.by_runtime, typed), (each.by_evaluator, feeds)):
                try:
                    return run(given)
                except NotComputedError:
                    continue
            raise error from None

    def _run_blocks(
        self, number: int, each: SingleNode, feeds: Mapping[str, Any], way: Way, axes: tuple[int, int, int]
    ) -> Array:
        """Return a product whose sums are rounded every few terms; the bias is added with the first."""
        first, second, *bias = each.node.input
        axis_a, axis_b, at_once = axes
        a, b = feeds[first], feeds[second]
        length = b.shape[axis_b]
        size = max(ceil(way.terms / at_once), ceil(length / MOST_BLOCKS))
        total: Array | None = None
        for low in range(0, length, size):
            part = self._blocks.get((number, not low))
            if part is None:
                node = NodeProto()
                node.CopyFrom(each.node)
                del node.input[:]
                node.input.extend(["left", "right", *(bias if not low else ())])
                part = self._blocks[number, not low] = SingleNode(node, each.opsets, is_heavy=True)
            block = np.arange(low, min(low + size, length))
            operands = {"left": a.take(block, axis_a), "right": b.take(block, axis_b)}
            found = self._run_single(part, {**{name: feeds[name] for name in bias if name}, **operands})
            added = found[each.node.output[0]] if total is None else total + found[each.node.output[0]]
            total = way.round(added, "bf16" if way.kind == "bf16" else "fp16")
        return np.asarray(total)


def _summed_axes(node: NodeProto, feeds: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Return the axis that is summed over in both operands, and the terms of one step of it."""
    if node.op_type not in {"MatMul", "Gemm", "Conv"} or node.domain:
        return None
    a, b = (feeds[name] for name in node.input[:2])
    if not (_is_real(a) and _is_real(b)) or a.ndim < 2 or b.ndim < 2 or not b.size:
        return None
    match node.op_type:
        case "MatMul":
            return a.ndim - 1, b.ndim - 2, 1
        case "Gemm":
            return int(not attribute_of(node, "transA", 0)), int(bool(attribute_of(node, "transB", 0))), 1
    return (1, 1, prod(b.shape[2:])) if attribute_of(node, "group", 1) == 1 else None


def _is_plain(kind: int) -> bool:
    """Whether NumPy itself has a type; what it has not is fed to nobody."""
    return kind == TensorProto.BFLOAT16 or helper.tensor_dtype_to_np_dtype(kind).kind in "fiubSUO"


def _is_real(value: Any) -> bool:  # noqa: ANN401 - an array, or a sequence
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f"


def _to(dtype: Any, value: Any) -> Any:  # noqa: ANN401 - an array, or a sequence
    """Return real numbers in a type, anything else as it is."""
    if _is_real(value) or str(getattr(value, "dtype", "")) == "bfloat16":
        with np.errstate(over="ignore"):
            return np.asarray(value).astype(dtype)
    return value


def _are_alike(double: Any, single: Any) -> bool:  # noqa: ANN401 - whatever a node gives
    """Whether two results of a node are of one shape and as near as float32 makes them."""
    if not isinstance(double, np.ndarray) or not isinstance(single, np.ndarray):
        return False
    if double.shape != single.shape or double.dtype.kind != single.dtype.kind:
        return False
    return bool(np.allclose(double, single, rtol=ALIKE, atol=ALIKE, equal_nan=True))


def _compute(graph: Graph, samples: Sequence[Sample], precision: str) -> Computed:
    by = name_runner(independent=graph.independent)
    singles = [_float64(graph.run(sample, Way(kind="fp32"))) for sample in samples]
    if graph.independent:
        _check_shapes(graph, singles)
    references = [_float64(graph.run(sample, Way(kind="float64"))) for sample in samples]
    words = "float64" + f" ({', '.join(sorted(graph.in_float32))} in float32)" * bool(graph.in_float32)
    errors: list[Errors] = [{name: {} for name in outputs} for outputs in references]
    failed = []
    for member, run in _members(graph, precision):
        try:
            found = [run(sample) for sample in samples]
        except NotComputedError as error:
            failed.append(f"{member}: {error}")
            continue
        for by_output, outputs, reference in zip(errors, found, references, strict=True):
            for name, size in _measure(outputs, reference).items():
                by_output[name][member] = size
    if graph.independent:
        _add_plainer(graph, samples, references, errors)
    types = graph.known.types
    steps = {name for name in references[0] if not graph.known.is_float(name)}
    if any(each.node.op_type in FIXED for each in graph.nodes):
        steps = set(references[0])
    own = [_measure(single, reference) for single, reference in zip(singles, references, strict=True)]
    return Computed(
        by=by, precision=words, references=tuple(references),
        errors=tuple(_without_lucky(by_output, steps) for by_output in errors),
        own_error={name: max(found.get(name, 0.0) for found in own) for name in references[0]},
        why_not="; ".join(failed),
        types={
            name: str(helper.tensor_dtype_to_np_dtype(types[name]))
            for name in references[0] if graph.known.is_float(name)
        },
    )  # fmt: skip


def _members(graph: Graph, precision: str) -> Iterator[tuple[str, Callable[[Sample], Sample]]]:
    """Yield the members that are computed for a precision: name, and what runs a sample.

    A name begins with what the member rounds to.
    """

    def run(**way: Any) -> Callable[[Sample], Sample]:  # noqa: ANN401 - the fields of a Way
        return lambda sample: graph.run(sample, Way(**way))

    for kind in dict.fromkeys((*ALLOWED[precision], *RECOGNISED.get(precision, ()))):
        yield kind, run(kind=kind)
        for number, grid in enumerate(GRIDS[:1] if graph.is_large else GRIDS, start=1):
            yield f"{kind}-grid{number}", run(kind=kind, grid=grid)
        if kind == "fp16" and not graph.is_large:
            yield "fp16-blocks", run(kind="fp16", terms=16)
        half = any(kind in HALF for kind in graph.known.types.values())
        if kind == "fp32" and not graph.independent and not half:
            yield "fp32-optimised", lambda sample: Session(graph.file, optimised=True).run(sample)


def _add_plainer(
    graph: Graph, samples: Sequence[Sample], references: Sequence[Sample], errors: Sequence[Errors]
) -> None:
    """Note the error of ONNX Runtime's own float32 where it is no more than a plainer sum makes.

    Where it gives other shapes, and the graph says nothing of them, nobody knows who is right.
    """
    runtime = Graph(graph.file, {name: array.shape for name, array in samples[0].items()})
    for sample, reference, by_output in zip(samples, references, errors, strict=True):
        try:
            outputs = runtime.run(sample, Way(kind="fp32"))
        except NotComputedError:
            return
        if odd := [n for n in reference if n not in graph.said and outputs[n].shape != reference[n].shape]:
            raise NotComputedError(f"it gives {odd[0]} another shape than ONNX Runtime")
        for name, error in _measure(outputs, reference).items():
            by_output[name].update({"fp32-runtime": error} if error <= PLAINER else {})


def _check_shapes(graph: Graph, outputs: Sequence[Sample]) -> None:
    """Refuse an evaluator's outputs whose shapes are not the graph's: of scalars its Loop makes [n, 1]."""
    for name, array in ((name, array) for sample in outputs for name, array in sample.items()):
        wanted = graph.said.get(name)
        if not fits_shape(array.shape, Tensor(name=name, dtype="", shape=wanted)):
            is_ = shape_text(array.shape)
            raise NotComputedError(
                f"it gives {name} the shape {is_}, and the graph says {shape_text(wanted)}"
            )


def _measure(outputs: Sample, reference: Sample) -> dict[str, float]:
    """Return outputs' errors; one that overflows is none of the ways in which a right engine may compute."""
    found = {}
    for name, exact in reference.items():
        if outputs[name].shape == exact.shape:
            values = measure_output(outputs[name], exact)
            if not values["nan_unexpected"] and math.isfinite(values["rel_l2"]):
                found[name] = float(values["rel_l2"])
    return found


def _without_lucky(errors: Errors, steps: Collection[str]) -> Errors:
    """Leave out the floors of 0 that outputs in steps have where no member happened to fall on another step.

    An engine may fall on another one and be right.
    """
    return {name: {} if name in steps and not any(m.values()) else m for name, m in errors.items()}


def _float64(outputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return outputs in float64; :class:`NotComputedError` where one holds no numbers."""
    for name, array in outputs.items():
        if not isinstance(array, np.ndarray | np.generic) or array.dtype.kind not in "fiub":
            raise NotComputedError(f"the output {name} holds no numbers")
    return {name: np.asarray(array).astype(np.float64) for name, array in outputs.items()}
