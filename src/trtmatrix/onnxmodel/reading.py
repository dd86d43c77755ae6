"""Reads what a model's file says of itself: inputs, outputs, weights, precision, what is unusual in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import prod
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto

from trtmatrix.common.border import BorderError, read_file
from trtmatrix.common.errors import UsageError
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
from trtmatrix.onnxmodel.tensors import Dim, Tensor

FEEDABLE = frozenset(
    {"float16", "float32", "float64", "bool", *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64))}
)
"""Types of tensors that both ONNX and NumPy have, as numbers."""

FP8 = frozenset(
    TensorProto.DataType.Value(f"FLOAT8{kind}") for kind in ("E4M3FN", "E4M3FNUZ", "E5M2", "E5M2FNUZ")
)
LARGEST = 1 << 31
"""Bytes of a protobuf message, external data apart: protobuf itself takes no more."""
CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
EXPORT = 'export it again, for example with torch.onnx.export(module, args, "my.onnx", dynamo=True)'


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """A model as its file says it is. ``files``: its external data, by relative name.

    ``digest``: SHA-256 of all its bytes (hexadecimal). ``typed``: what its real numbers are: float32,
    float16, bfloat16 or float64. ``quantized``: what its Q/DQ nodes quantize to. ``tables``: for inputs that
    index a table, how many rows the smallest has. ``troubles``: what is unusual, in sentences.
    """

    path: Path
    digest: str
    files: Mapping[str, Path]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    opset: int
    ir: int
    producer: str
    typed: str
    parameters: int
    size: int
    quantized: tuple[str, ...] = ()
    tables: Mapping[str, int] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()


def read_model(path: Path) -> ModelFile:
    """Read a model; :class:`UsageError` where it is none, or where it cannot be fed with NumPy's arrays."""
    model = load_model(path)
    files = find_external(path, model)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [_tensor(path, "input", info) for info in model.graph.input if info.name not in constants]
    outputs = [_tensor(path, "output", info) for info in model.graph.output]
    problems = list[str]()
    for what, tensor in (*(("input", t) for t in inputs), *(("output", t) for t in outputs)):
        remedy = "cast it inside of the graph, with float32 or float16 outside"
        if tensor.dtype == "string":
            remedy = "turn texts into numbers before the model, and give it the part behind that"
        if tensor.dtype not in FEEDABLE:
            said = f"is {tensor.dtype}, which cannot be fed or compared: {remedy}"
            problems.append(f"{what} {tensor.name} {said}")
        if what == "input" and 0 in (tensor.shape or ()):
            said = f"is {tensor.text}: a dimension of size 0 has nothing to compute"
            problems.append(f"input {tensor.name} {said}")
    problems += [] if inputs else ["it has no inputs: every version would give a constant"]
    if problems:
        raise UsageError("\n".join(f"--model {path}: {problem}" for problem in problems))
    count: Counter[int] = Counter()  # of few weights the inputs and outputs decide
    for weights in all_tensors(model):
        count[weights.data_type] += prod(weights.dims)
    count.update(info.type.tensor_type.elem_type for info in (*model.graph.input, *model.graph.output))
    typed = max((kind for kind in count if kind in FLOATS), key=count.__getitem__, default=TensorProto.FLOAT)
    total = sha256(digest_file(path).encode())
    for name, file in sorted(files.items()):
        total.update(f"\n{name} {digest_file(file)}".encode())
    places = {"QuantizeLinear": "output", "DequantizeLinear": "input"}
    rounding = [node for node in all_nodes(model) if node.op_type in places]
    types = known_of(infer(model).graph).types if rounding else {}
    kinds = {types.get(getattr(node, places[node.op_type])[0], TensorProto.UINT8) for node in rounding}
    plain = kinds & {TensorProto.INT8, TensorProto.UINT8}
    others = sorted(_dtype(kind) for kind in kinds - plain - FP8)  # of which a build is not told
    quantized = ("int8",) * bool(plain) + ("fp8",) * bool(kinds & FP8)
    integers = [tensor.name for tensor in inputs if tensor.dtype in {"int32", "int64"}]
    sets = find_shape_inputs(model, integers)
    return ModelFile(
        path=path, digest=total.hexdigest(), files=files,
        inputs=tuple(replace(tensor, sets=sets.get(tensor.name, "")) for tensor in inputs),
        outputs=tuple(outputs), opset=opset_of(model), ir=model.ir_version,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        typed=_dtype(typed), parameters=sum(prod(tensor.dims) for tensor in model.graph.initializer),
        size=path.stat().st_size + sum(file.stat().st_size for file in files.values()),
        quantized=quantized, tables=find_tables(model.graph), troubles=tuple(_troubles(path, model, others)),
    )  # fmt: skip


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file (hexadecimal)."""
    total = sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 22):
            total.update(block)
    return total.hexdigest()


def load_model(path: Path, option: str = "--model ") -> ModelProto:
    """Load a model without its external data; :class:`UsageError` where it is none, or makes no sense.

    ``option``: how the command line names it.
    """
    try:
        content = read_file(path.resolve(), LARGEST)
    except BorderError as error:
        raise UsageError(f"{option}{path}: {error}") from error
    except OSError as error:
        raise UsageError(f"{option}{path}: cannot be read: {error.strerror or error}") from error
    if content.startswith(b"version https://git-lfs"):
        raise UsageError(f"{option}{path}: is a pointer of Git LFS, not the model: git lfs pull fetches it")
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:  # protobuf's own, which has no types
        raise UsageError(
            f"{option}{path}: is no ONNX file, or a truncated one ({len(content)} bytes): compare its size "
            f"with where it comes from, or {EXPORT}"
        ) from error
    if not model.graph.node or not model.graph.output:
        what = "has no nodes" if model.ir_version else "is no ONNX file"
        what = "has no outputs" if model.graph.node else what
        raise UsageError(f"{option}{path}: {what} ({len(content)} bytes): {EXPORT}")
    if problems := [*_malformed(model)]:
        raise UsageError("\n".join(f"{option}{path}: {problem}: {EXPORT}" for problem in problems[:20]))
    return model


def _malformed(model: ModelProto) -> Iterator[str]:
    known, opset = set(TensorProto.DataType.values()), opset_of(model)
    infos = [info for g in all_graphs(model.graph) for info in (*g.input, *g.output, *g.value_info)]
    types = [(info.name, info.type.tensor_type.elem_type) for info in infos]
    types += [(tensor.name or "a constant", tensor.data_type) for tensor in all_tensors(model)]
    for name, kind in types:
        if kind not in known:
            yield f"the tensor {name} has the element type {kind}, which ONNX does not have"
    for place, node in enumerate(all_nodes(model)):
        is_own = node.domain in {"", "ai.onnx"} and onnx.defs.has(node.op_type, opset, "")
        least = onnx.defs.get_schema(node.op_type, opset, "").min_input if is_own else 0
        if len(node.input) < least:
            name = f"{node.name or place} ({node.op_type})"
            yield f"the node {name} has {len(node.input)} inputs and needs {least}"


def _tensor(path: Path, what: str, info: ValueInfoProto) -> Tensor:
    kind, tensor = str(info.type.WhichOneof("value") or "of no type"), info.type.tensor_type
    if kind != "tensor_type":
        said = kind.removesuffix("_type").replace("_", " ")
        raise UsageError(
            f"--model {path}: {what} {info.name} is no tensor ({said}): only tensors can be fed and compared"
        )
    dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
    shape: tuple[Dim, ...] | None = tuple(dims) if tensor.HasField("shape") else None
    return Tensor(name=info.name, dtype=_dtype(tensor.elem_type), shape=shape)


def _dtype(kind: int) -> str:
    """Return NumPy's name of a type, ONNX's where NumPy has none."""
    name = str(TensorProto.DataType.Name(kind)).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def _troubles(path: Path, model: ModelProto, others: Collection[str]) -> Iterator[str]:
    own = {(function.domain, function.name) for function in model.functions}
    operators = {(node.domain, node.op_type) for node in all_nodes(model)} - own
    custom = sorted(f"{domain}::{name}" for domain, name in operators if domain not in OWN)
    newest = onnx.defs.onnx_opset_version()
    if opset_of(model) > newest or model.ir_version > onnx.IR_VERSION:
        yield (
            f"its opset {opset_of(model)} (IR {model.ir_version}) is newer than what is installed here knows "
            f"(opset {newest}, IR {onnx.IR_VERSION}): pip install --upgrade onnx onnxruntime"
        )
    elif not custom:
        try:
            onnx.checker.check_model(str(path))
        except Exception as error:  # noqa: BLE001 - whatever the checker says is told
            yield f"onnx.checker says of it: {' '.join(str(error).split())[:300]}"
    if custom:
        yield f"it has operators that are not ONNX's own: {', '.join(custom)}"
    if inner := sorted({name for _, name in operators} & CONTROL_FLOW):
        yield f"it has control flow: {', '.join(inner)}"
    if others:
        yield f"it quantizes to {', '.join(others)}: builds are not told of that"


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


def find_shape_inputs(model: ModelProto, integers: Collection[str]) -> dict[str, str]:
    """Return those of these inputs, of at most one dimension, that set a shape: name → which one."""
    flat = {info.name for info in model.graph.input if len(info.type.tensor_type.shape.dim) < 2}
    origins = {name: {name} for name in integers if name in flat}
    found: dict[str, str] = {}
    for node in all_nodes(model):
        for place, role in SHAPE_INPUTS.get(node.op_type, {}).items() if node.domain in OWN else ():
            for name in origins.get(node.input[place], ()) if place < len(node.input) else ():
                found.setdefault(name, f"{node.op_type}'s {role}")
        if node.op_type in ARITHMETIC:
            behind = {origin for name in node.input for origin in origins.get(name, ())}
            origins.update({name: behind for name in node.output if behind})
    return found


THROUGH = frozenset({"Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})
"""Operators that change no index."""


def find_tables(graph: GraphProto) -> dict[str, int]:
    """Return the inputs that index a table which the graph holds: name → rows of the smallest."""
    sizes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    origin = {info.name: info.name for info in graph.input if info.name not in sizes}
    found: dict[str, int] = {}
    for node in graph.node:  # they are sorted, so what is passed on is known before it is used
        first, second = (*node.input, "", "")[:2]
        if node.op_type in THROUGH and first in origin:
            origin.update(dict.fromkeys(node.output, origin[first]))
        elif node.op_type == "Gather" and first in sizes and second in origin:
            name, axis = origin[second], int(str(attribute_of(node, "axis", 0)))
            rows = sizes[first][axis] if -len(sizes[first]) <= axis < len(sizes[first]) else 1
            found[name] = min(found.get(name, rows), rows)
    return found
