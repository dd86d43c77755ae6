"""Reads what a model's file says of itself: inputs, outputs, weights, precision, what is unusual in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from trtmatrix.common.errors import UsageError
from trtmatrix.common.tensors import Dim, Tensor
from trtmatrix.onnxmodel.external import find_external
from trtmatrix.onnxmodel.walk import FLOATS, OWN, all_graphs, all_nodes, all_tensors, elements, opset_of

FP8 = frozenset(
    {
        TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2,
        TensorProto.FLOAT8E5M2FNUZ,
    }
)  # fmt: skip
CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
QUANTIZING = frozenset({"QuantizeLinear", "DequantizeLinear"})
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
    custom: tuple[str, ...] = ()
    tables: Mapping[str, int] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()


def read_model(path: Path, digest_of: Callable[[Path], str] | None = None) -> ModelFile:
    """Read a model; :class:`UsageError` where it is none, or where it cannot be fed with NumPy's arrays.

    ``digest_of`` gives the SHA-256 of a file, where it is known already.
    """
    model = _load(path)
    files = find_external(path, model)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [_tensor(path, "input", info) for info in model.graph.input if info.name not in constants]
    outputs = [_tensor(path, "output", info) for info in model.graph.output]
    _check_tensors(path, inputs, outputs)
    feeding = find_feeding(model.graph, {info.name for info in inputs if info.dtype in {"int32", "int64"}})
    inputs = [replace(tensor, feeds=feeding.get(tensor.name, "")) for tensor in inputs]
    custom = _custom(model)
    digest_of = digest_of or digest_file
    total = sha256(digest_of(path).encode())
    for name, file in sorted(files.items()):
        total.update(f"\n{name} {digest_of(file)}".encode())
    quantized, others = _quantized(model)
    return ModelFile(
        path=path, digest=total.hexdigest(), files=files, inputs=tuple(inputs), outputs=tuple(outputs),
        opset=opset_of(model), ir=model.ir_version,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        typed=_typed(model), parameters=sum(map(elements, model.graph.initializer)),
        size=path.stat().st_size + sum(file.stat().st_size for file in files.values()),
        quantized=quantized, custom=custom, tables=find_tables(model.graph),
        troubles=tuple(_troubles(path, model, custom, others)),
    )  # fmt: skip


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file (hexadecimal)."""
    total = sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 22):
            total.update(block)
    return total.hexdigest()


def _load(path: Path) -> ModelProto:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--model {path}: cannot be read: {error.strerror or error}") from error
    if content.startswith(b"version https://git-lfs"):
        raise UsageError(f"--model {path}: is a pointer of Git LFS, not the model: git lfs pull fetches it")
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:  # protobuf's own, which has no types
        raise UsageError(
            f"--model {path}: is no ONNX file, or a truncated one ({len(content)} bytes): compare its size "
            f"with where it comes from, or {EXPORT}"
        ) from error
    if not model.graph.node or not model.graph.output:
        what = "has no nodes" if model.ir_version else "is no ONNX file"
        what = "has no outputs" if model.graph.node else what
        raise UsageError(f"--model {path}: {what} ({len(content)} bytes): {EXPORT}")
    return model


def _tensor(path: Path, what: str, info: ValueInfoProto) -> Tensor:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        said = str(kind or "of no type").removesuffix("_type").replace("_", " ")
        raise UsageError(
            f"--model {path}: {what} {info.name} is no tensor ({said}): only tensors can be fed and compared"
        )
    tensor = info.type.tensor_type
    shape: tuple[Dim, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim
        )
    return Tensor(name=info.name, dtype=_dtype(tensor.elem_type), shape=shape)


def _dtype(kind: int) -> str:
    """Return NumPy's name of a type, ONNX's where NumPy has none."""
    name = str(TensorProto.DataType.Name(kind)).lower()
    known = {"float": "float32", "double": "float64"}.get(name, name)
    numpy = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    return known if known in numpy | {"float16", "float32", "float64", "bool"} else name


FEEDABLE = frozenset(
    {"float16", "float32", "float64", "bool", *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64))}
)
"""Types of tensors that both ONNX and NumPy have, as numbers."""


def _check_tensors(path: Path, inputs: list[Tensor], outputs: list[Tensor]) -> None:
    """Refuse what cannot be fed or read with NumPy's arrays; all of it is told."""
    problems = [
        f"{what} {tensor.name} is {tensor.dtype}, which {_remedy(tensor.dtype)}"
        for what, tensors in (("input", inputs), ("output", outputs))
        for tensor in tensors if tensor.dtype not in FEEDABLE
    ]  # fmt: skip
    problems += [
        f"input {tensor.name} is {tensor.text}: a dimension of size 0 has nothing to compute"
        for tensor in inputs if 0 in (tensor.shape or ())
    ]  # fmt: skip
    if not inputs:
        problems.append("it has no inputs: every version would give a constant")
    if problems:
        raise UsageError("\n".join(f"--model {path}: {problem}" for problem in problems))


def _remedy(dtype: str) -> str:
    if dtype == "string":
        return "no TensorRT takes: turn texts into numbers before the model, and give it the part behind that"
    return "NumPy does not have: cast it inside of the graph, with float32 or float16 outside"


def _typed(model: ModelProto) -> str:
    """Return the type of most of a model's real numbers; of few weights the inputs and outputs decide."""
    count: Counter[int] = Counter()
    for tensor in all_tensors(model):
        if tensor.data_type in FLOATS:
            count[tensor.data_type] += elements(tensor)
    for info in (*model.graph.input, *model.graph.output):
        if info.type.tensor_type.elem_type in FLOATS:
            count[info.type.tensor_type.elem_type] += 1
    most = max(count, key=lambda kind: count[kind], default=TensorProto.FLOAT)
    return _dtype(most)


def _custom(model: ModelProto) -> tuple[str, ...]:
    own = {(function.domain, function.name) for function in model.functions}
    return tuple(
        sorted(
            {
                f"{node.domain}::{node.op_type}"
                for node in all_nodes(model)
                if node.domain not in OWN and (node.domain, node.op_type) not in own
            }
        )
    )


def _quantized(model: ModelProto) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what Q/DQ nodes quantize to: as a build is told of it, and the types that it is not told of."""
    nodes = [node for node in all_nodes(model) if node.op_type in QUANTIZING]
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    for node in all_nodes(model):
        if node.op_type == "Constant":
            for item in node.attribute:
                if item.name == "value":
                    types[node.output[0]] = item.t.data_type
    kinds = {_target(node, types) for node in nodes}
    plain = {kind for kind in kinds if kind in {TensorProto.INT8, TensorProto.UINT8}}
    found = (*(("int8",) if plain else ()), *(("fp8",) if kinds & FP8 else ()))
    return found, tuple(sorted(_dtype(kind) for kind in kinds - plain - FP8))


def _target(node: NodeProto, types: Mapping[str, int]) -> int:
    for attribute in node.attribute:
        if attribute.name == "output_dtype" and attribute.i and node.op_type == "QuantizeLinear":
            return int(attribute.i)
    names = [*node.input[2:3], *(node.input[:1] if node.op_type == "DequantizeLinear" else [])]
    return next((types[name] for name in names if name in types), TensorProto.UINT8)


def _troubles(
    path: Path, model: ModelProto, custom: tuple[str, ...], others: tuple[str, ...]
) -> Iterator[str]:
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
    if inner := sorted({node.op_type for node in all_nodes(model)} & CONTROL_FLOW):
        yield f"it has control flow: {', '.join(inner)}"
    if others:
        yield f"it quantizes to {', '.join(others)}: builds are not told of that"


FEEDS: Mapping[str, Mapping[int, str]] = {
    "TopK": {1: "k"}, "Expand": {1: "shape"}, "Reshape": {1: "shape"}, "Tile": {1: "repeats"},
    "Loop": {0: "trip count"}, "Resize": {3: "sizes"}, "ConstantOfShape": {0: "shape"}, "Pad": {1: "pads"},
    "Slice": {1: "starts", 2: "ends", 3: "axes", 4: "steps"}, "Split": {1: "sizes"}, "OneHot": {1: "depth"},
    "Range": {0: "start", 1: "limit", 2: "delta"}, "CenterCropPad": {1: "shape"}, "Col2Im": {1: "shape"},
}  # fmt: skip
"""Operators → inputs whose values decide the shape of what they give."""

COMPUTING = frozenset(
    {
        "Cast", "Identity", "Squeeze", "Unsqueeze", "Concat", "Add", "Sub", "Mul", "Div", "Min", "Max", "Neg",
        "Gather", "Slice", "Reshape", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Where", "Mod",
    }
)  # fmt: skip
"""Operators behind which integers are still what somebody computes a shape from."""


def find_feeding(graph: GraphProto, integers: Collection[str]) -> dict[str, str]:
    """Return the inputs of at most one dimension, of these, that decide a shape: name → of what."""
    flat = {info.name for info in graph.input if len(info.type.tensor_type.shape.dim) < 2}
    origins = {name: {name} for name in integers if name in flat}
    found: dict[str, str] = {}
    for inner in all_graphs(graph):  # a graph comes before those inside of it
        for node in inner.node:
            for i, role in FEEDS.get(node.op_type, {}).items() if node.domain in OWN else ():
                for name in origins.get(node.input[i], ()) if i < len(node.input) else ():
                    found.setdefault(name, f"{node.op_type}'s {role}")
            if node.op_type in COMPUTING:
                behind = {origin for name in node.input for origin in origins.get(name, ())}
                origins.update({name: behind for name in node.output if behind})
    return found


THROUGH = frozenset({"Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})


def find_tables(graph: GraphProto) -> dict[str, int]:
    """Return the inputs that index a table which the graph holds: name → rows of the smallest."""
    sizes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    origin = {info.name: info.name for info in graph.input if info.name not in sizes}
    found: dict[str, int] = {}
    for node in graph.node:  # they are sorted, so what is passed on is known before it is used
        if node.op_type in THROUGH and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        elif node.op_type == "Gather" and node.input[0] in sizes and node.input[1] in origin:
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            name = origin[node.input[1]]
            rows = sizes[node.input[0]][axis]
            found[name] = min(found.get(name, rows), rows)
    return found
