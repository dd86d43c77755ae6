"""Reads what a model's file says of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from math import prod
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from trtmatrix.common.errors import UsageError
from trtmatrix.common.paths import digest_stream
from trtmatrix.common.text import join_some, one_line
from trtmatrix.onnxmodel.graphs import (
    FLOATS,
    OWN,
    all_graphs,
    all_nodes,
    all_tensors,
    attribute_of,
    find_external,
    infer,
    known_of,
    opset_of,
)
from trtmatrix.onnxmodel.inputs import Tensor

FEEDABLE = frozenset(
    {"float16", "float32", "float64", "bool", *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64))}
)
"""Types of tensors that both ONNX and NumPy have, as numbers."""

INT8 = frozenset({TensorProto.INT8, TensorProto.UINT8})
FP8 = frozenset(
    TensorProto.DataType.Value(f"FLOAT8{kind}") for kind in ("E4M3FN", "E4M3FNUZ", "E5M2", "E5M2FNUZ")
)
EXPORT = 'export it again, for example with torch.onnx.export(module, args, "my.onnx", dynamo=True)'


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """A model as its file says it is. ``proto``: it, without its external data. ``files``: these, by name.

    ``digest``: SHA-256 of all its bytes (hexadecimal). ``typed``: what its real numbers are: float32,
    float16, bfloat16 or float64. ``quantized``: what its Q/DQ nodes quantize to. ``tables``: for inputs that
    index a table, how many rows the smallest has. ``troubles``: what is unusual, in sentences.
    """

    path: Path
    proto: ModelProto
    digest: str
    files: Mapping[str, Path]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    typed: str
    quantized: tuple[str, ...]
    tables: Mapping[str, int]
    troubles: tuple[str, ...]


def read_model(path: Path) -> ModelFile:
    """Read a model; :class:`UsageError` where it is none, or where it cannot be fed with NumPy's arrays."""
    model = load_model(path)
    files, graph = find_external(path, model), model.graph
    constants, sets = {tensor.name for tensor in graph.initializer}, find_shape_inputs(model)
    inputs = [_tensor(info, sets.get(info.name, "")) for info in graph.input if info.name not in constants]
    outputs = [_tensor(info) for info in graph.output]
    problems = [] if inputs else ["it has no inputs: every version would give a constant"]
    for what, tensor in (*(("input", t) for t in inputs), *(("output", t) for t in outputs)):
        if tensor.dtype not in FEEDABLE:
            said = "cannot be fed or compared: cast it inside of the graph, or give the part without it"
            problems.append(f"{what} {tensor.name} is {tensor.dtype}, which {said}")
        elif what == "input" and 0 in (tensor.shape or ()):
            said = "a dimension of size 0 has nothing to compute"
            problems.append(f"input {tensor.name} is {tensor.text}: {said}")
    if problems:
        raise UsageError("\n".join(f"--model {path}: {problem}" for problem in problems))
    count: Counter[int] = Counter()  # of few weights the inputs and outputs decide
    for weights in all_tensors(model):
        count[weights.data_type] += prod(weights.dims)
    count.update(info.type.tensor_type.elem_type for info in (*graph.input, *graph.output))
    typed = max((kind for kind in count if kind in FLOATS), key=count.__getitem__, default=TensorProto.FLOAT)
    total = sha256(digest_file(path).encode())
    for name, file in sorted(files.items()):
        total.update(f"\n{name} {digest_file(file)}".encode())
    places = {"QuantizeLinear": "output", "DequantizeLinear": "input"}
    rounding = [node for node in all_nodes(model) if node.op_type in places]
    types = known_of(infer(model).graph).types if rounding else {}
    kinds = {types.get(getattr(node, places[node.op_type])[0], TensorProto.UINT8) for node in rounding}
    return ModelFile(
        path=path, proto=model, digest=total.hexdigest(), files=files, inputs=tuple(inputs),
        outputs=tuple(outputs), typed=_dtype(typed), tables=find_tables(graph),
        quantized=("int8",) * bool(kinds & INT8) + ("fp8",) * bool(kinds & FP8),
        troubles=tuple(one_line(told, 4000) for told in _troubles(path, model)),
    )  # fmt: skip


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file (hexadecimal)."""
    with path.open("rb") as stream:
        return digest_stream(stream)


def load_model(path: Path) -> ModelProto:
    """Load a model without its external data; :class:`UsageError` where it is none."""
    model = ModelProto()
    try:
        content = path.read_bytes()
        model.ParseFromString(content)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except Exception:  # noqa: BLE001 - protobuf's own, which has no types
        model.Clear()
    if content.startswith(b"version https://git-lfs"):
        raise UsageError(f"{path}: is a pointer of Git LFS, not the model: git lfs pull fetches it")
    if not model.graph.node or not model.graph.output:
        raise UsageError(
            f"{path}: is no ONNX file with nodes and outputs, or a truncated one ({len(content)} "
            f"bytes): compare its size with where it comes from, or {EXPORT}"
        )
    if problems := [*_malformed(model)]:
        raise UsageError("\n".join(f"{path}: {problem}: {EXPORT}" for problem in problems[:20]))
    return model


def _malformed(model: ModelProto) -> Iterator[str]:
    known, opset, nodes = set(TensorProto.DataType.values()), opset_of(model), list(all_nodes(model))
    infos = [info for g in all_graphs(model.graph) for info in (*g.input, *g.output, *g.value_info)]
    types = [(info.name, info.type.tensor_type.elem_type) for info in infos]
    tensors = list(all_tensors(model))
    types += [(tensor.name or "a constant", tensor.data_type) for tensor in tensors]
    texts = [text for n in nodes for text in (n.domain, n.op_type, n.name, *n.input, *n.output)]
    texts += [entry.value for tensor in tensors for entry in tensor.external_data]
    if any(isinstance(text, bytes) for text in (model.graph.name, *texts, *dict(types))):
        yield "it has a name that is no text in UTF-8"
        return
    if opset < 0:
        yield f"it has the opset {opset}, which ONNX does not have"
    for name, kind in types:
        if kind not in known:
            yield f"the tensor {name} has the element type {kind}, which ONNX does not have"
    for place, node in enumerate(nodes):
        is_own = node.domain in {"", "ai.onnx"} and onnx.defs.has(node.op_type, opset, "")
        least = onnx.defs.get_schema(node.op_type, opset, "").min_input if is_own else 0
        if len(node.input) < least:
            name = f"{node.name or place} ({node.op_type})"
            yield f"the node {name} has {len(node.input)} inputs and needs {least}"
    bodies = [GraphProto(node=function.node) for function in model.functions]
    for inner in (inner for graph in (model.graph, *bodies) for inner in all_graphs(graph)):
        given = [(name, place) for place, node in enumerate(inner.node) for name in node.output if name]
        makers = dict(given)
        if len(makers) < len(given):
            yield "two of its nodes give a tensor of the same name"
        needs = [{makers[name] for name in node.input if name in makers} for node in inner.node]
        if all(place > max(before, default=-1) for place, before in enumerate(needs)):
            continue  # they are sorted
        try:
            TopologicalSorter(dict(enumerate(needs))).prepare()
        except CycleError as error:
            circle = [inner.node[place].name or inner.node[place].op_type for place in error.args[1]]
            yield f"its nodes wait for each other: {join_some(circle)}"


def _tensor(info: ValueInfoProto, sets: str = "") -> Tensor:
    """Return an input or output; one that is no tensor has for its type what it is (``"sequence"``)."""
    kind, tensor = str(info.type.WhichOneof("value") or "of no type"), info.type.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
    return Tensor(
        name=info.name, shape=tuple(dims) if tensor.HasField("shape") else None, sets=sets,
        dtype=_dtype(tensor.elem_type) if kind == "tensor_type" else kind.removesuffix("_type"),
    )  # fmt: skip


def _dtype(kind: int) -> str:
    """Return NumPy's name of a type, ONNX's where NumPy has none."""
    name = str(TensorProto.DataType.Name(kind)).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def _troubles(path: Path, model: ModelProto) -> Iterator[str]:
    own = {(function.domain, function.name) for function in model.functions}
    operators = {(node.domain, node.op_type) for node in all_nodes(model)} - own
    if custom := sorted(f"{domain}::{name}" for domain, name in operators if domain not in OWN):
        yield f"it has operators that are not ONNX's own: {', '.join(custom)}"
    else:
        try:
            onnx.checker.check_model(str(path))
        except Exception as error:  # noqa: BLE001 - whatever the checker says is told
            yield f"onnx.checker {onnx.__version__} says of it: {error}"


SHAPE_INPUTS: Mapping[str, Mapping[int, str]] = {
    "TopK": {1: "k"}, "Expand": {1: "shape"}, "Reshape": {1: "shape"}, "Tile": {1: "repeats"},
    "Loop": {0: "trip count"}, "Resize": {3: "sizes"}, "ConstantOfShape": {0: "shape"}, "Pad": {1: "pads"},
    "Slice": {1: "starts", 2: "ends", 3: "axes", 4: "steps"}, "Split": {1: "sizes"}, "OneHot": {1: "depth"},
    "Range": {0: "start", 1: "limit", 2: "delta"}, "CenterCropPad": {1: "shape"}, "Col2Im": {1: "shape"},
}  # fmt: skip
"""Operators → their inputs whose values set the shape of what they give."""

ARITHMETIC = frozenset(
    {
        "Cast", "Identity", "Squeeze", "Unsqueeze", "Concat", "Add", "Sub", "Mul", "Div", "Min", "Max", "Neg",
        "Gather", "Slice", "Reshape", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Where", "Mod",
    }
)  # fmt: skip
"""Operators behind which integers are still what somebody computes a shape from."""

THROUGH = frozenset({"Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})
"""Operators that change no index."""


def _uses(
    nodes: Iterable[NodeProto], names: Iterable[str], through: Collection[str]
) -> Iterator[tuple[NodeProto, int, str]]:
    """Yield each node that takes one of these inputs, at which place, also what some operators make of it."""
    origins = {name: {name} for name in names}
    for node in nodes:  # they are sorted, so what is passed on is known before it is used
        behind = set[str]()
        for place, name in enumerate(node.input):
            yield from ((node, place, origin) for origin in origins.get(name, ()))
            behind |= origins.get(name, set())
        if behind and node.op_type in through:
            origins.update(dict.fromkeys(node.output, behind))


def find_shape_inputs(model: ModelProto) -> dict[str, str]:
    """Return the inputs of integers, of at most one dimension, that set a shape: name → which one."""
    types = {info.name: info.type.tensor_type for info in model.graph.input}
    integers = {TensorProto.INT32, TensorProto.INT64}
    flat = [name for name, t in types.items() if t.elem_type in integers and len(t.shape.dim) < 2]
    found: dict[str, str] = {}
    for node, place, name in _uses(all_nodes(model), flat, ARITHMETIC):
        role = SHAPE_INPUTS.get(node.op_type, {}).get(place)
        if role and node.domain in OWN:
            found.setdefault(name, f"{node.op_type}'s {role}")
    return found


def find_tables(graph: GraphProto) -> dict[str, int]:
    """Return the inputs that index a table which the graph holds: name → rows of the smallest."""
    sizes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    found: dict[str, int] = {}
    for node, place, name in _uses(graph.node, {info.name for info in graph.input} - set(sizes), THROUGH):
        if node.op_type == "Gather" and place == 1 and node.input[0] in sizes:
            rows = sizes[node.input[0]][int(str(attribute_of(node, "axis", 0)))]
            found[name] = min(found.get(name, rows), rows)
    return found
