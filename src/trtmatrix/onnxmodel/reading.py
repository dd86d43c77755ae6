"""Reads what a model's file says of itself, and its inputs: .npz files held against the graph, or drawn."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto

from trtmatrix.common.border import BorderError, opened_npz, read_array, read_file
from trtmatrix.common.errors import UsageError
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
from trtmatrix.onnxmodel.tensors import Dim, Shapes, Tensor, bind_symbols, fits_shape, shape_text

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

Array = NDArray[Any]
Sample = Mapping[str, Array]

SHOWN = 20
"""Problems that are told at once; of the others their number."""

SEED = 0


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
        quantized=quantized, tables=find_tables(model.graph),
        troubles=tuple(one_line(told, 4000) for told in _troubles(path, model, others)),
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


def read_samples(path: Path, inputs: Sequence[Tensor]) -> list[dict[str, Array]]:
    """Read the samples of a .npz file, or of a folder of them (sorted by name).

    :class:`UsageError` tells of every array that does not fit, in every file.
    """
    if not path.exists():
        raise UsageError(f"--inputs {path}: there is no such file or folder")
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    names = ", ".join(f"{tensor.name}=…" for tensor in inputs if tensor.name.isidentifier()) or "name=array"
    if not files:
        raise UsageError(f"--inputs {path}: no .npz file is there: np.savez('{path}/0.npz', {names})")
    samples, problems = [], []
    for file in files:
        sample, found = _read(file, names)
        problems += [f"--inputs {file}: {problem}" for problem in found or check_sample(sample, inputs)]
        samples.append(sample)
    if problems:
        more = [f"… and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        raise UsageError("\n".join([*problems[:SHOWN], *more]))
    return samples


def _read(file: Path, names: str) -> tuple[dict[str, Array], list[str]]:
    """Return a file's arrays by name, and what is wrong with it; ``names``: how to write a right one."""
    remedy = f"np.savez('{file.with_suffix('.npz').name}', {names})"
    arrays, problems = dict[str, Array](), list[str]()
    if file.suffix == ".npy":
        return {}, [f"is a .npy file, one array without a name; write a .npz file with {remedy}"]
    try:
        with opened_npz(file.resolve()) as archive:
            for name in archive.names:
                try:
                    with archive.member(name) as (stream, size):
                        array = read_array(stream, size)
                except BorderError as error:
                    problems.append(f"input {name}: cannot be read: it {error}")
                    continue
                arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    except (OSError, BorderError) as error:
        why = f"it {error}" if isinstance(error, BorderError) else f"{error}"
        return {}, [f"is no .npz file: {why}; write one with {remedy}"]
    return arrays, problems


def check_sample(sample: Sample, inputs: Sequence[Tensor]) -> Iterator[str]:
    """Yield what does not fit: names, types, shapes, symbols that would stand for two sizes."""
    names = [tensor.name for tensor in inputs]
    for tensor in inputs:
        array = sample.get(tensor.name)
        if array is None:
            yield f"input {tensor.name} is missing: the graph wants {tensor.text}"
        elif array.dtype.name != tensor.dtype or not fits_shape(array.shape, tensor):
            has = f"{array.dtype.name} {shape_text(array.shape)}"
            cast = f"; cast it: array.astype(np.{tensor.dtype})" if array.dtype.name != tensor.dtype else ""
            yield f"input {tensor.name}: graph wants {tensor.text}, the file has {has}{cast}"
        elif not array.size:
            yield f"input {tensor.name}: {shape_text(array.shape)} has no element"
    for name in sample:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; perhaps you meant {near[0]}" if near else f"; its inputs are {', '.join(names)}"
            yield f"{name} is no input of the graph{hint}"
    yield from bind_symbols(inputs, {name: array.shape for name, array in sample.items()})[1]


def extents(sample: Sample, inputs: Sequence[Tensor]) -> Shapes:
    """Return what a profile is about: the shape of each input, the values of one that sets a shape."""
    setting = {tensor.name for tensor in inputs if tensor.sets}
    return {
        name: tuple(map(int, array.reshape(-1))) if name in setting else array.shape
        for name, array in sample.items()
    }


def digest_samples(samples: Sequence[Sample]) -> str:
    """Return the SHA-256 over all arrays with their names (hexadecimal)."""
    total = sha256()
    for sample in samples:
        for name in sorted(sample):
            array = np.ascontiguousarray(sample[name])
            total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            total.update(array.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def draw_sample(
    inputs: Sequence[Tensor], shapes: Shapes, tables: Mapping[str, int], seed: int = SEED
) -> dict[str, Array]:
    """Draw inputs of these shapes, always the same ones for a seed; what sets a shape has these values.

    Real numbers are standard normal. Integers that index a table are below its number of rows; masks are
    ones, lengths the length of the longest dimension, positions count up, types of tokens are 0, other
    integers 0 or 1.
    """
    random = np.random.RandomState(seed)  # its numbers are the same in every release of NumPy
    drawn = [shapes[tensor.name] for tensor in inputs if not tensor.sets]
    longest = max((size for shape in drawn for size in shape), default=1)

    def draw(tensor: Tensor, shape: tuple[int, ...]) -> Array:
        name, dtype, rows = tensor.name.lower(), np.dtype(tensor.dtype), tables.get(tensor.name)
        if tensor.sets:
            return np.array(shape if tensor.shape != () else shape[0], dtype)
        if "mask" in name or dtype.kind == "b":
            return np.ones(shape, dtype)
        if dtype.kind == "f":
            return np.asarray(random.standard_normal(shape)).astype(dtype)
        if "length" in name or name.endswith("_len"):
            return np.full(shape, longest, dtype)
        if "position" in name and shape:
            return np.broadcast_to(np.arange(shape[-1]) % (rows or shape[-1]), shape).astype(dtype)
        if "token_type" in name or "segment" in name:
            return np.zeros(shape, dtype)
        most = min(rows or (256 if dtype == np.uint8 else 2), np.iinfo(dtype).max)
        return np.asarray(random.randint(0, max(1, most), shape)).astype(dtype)

    return {tensor.name: draw(tensor, shapes[tensor.name]) for tensor in inputs}
