"""The suite: ONNX's backend tests, each also in the form that exported models have; one archive in the cache.

Of the installed package ``onnx`` these are the tests of single nodes, of functions written out as nodes, and
the small models that are called simple, pytorch-converted and pytorch-operator
(https://github.com/onnx/onnx/blob/main/docs/OnnxBackendTest.md). What they expect and how near is ONNX's.
"""

from __future__ import annotations

import contextlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, ValueInfoProto, checker, numpy_helper, shape_inference
from onnx.backend.test.case.test_case import TestCase
from onnx.defs import SchemaError, get_schema
from onnx.helper import tensor_dtype_to_np_dtype

from trtmatrix.common.paths import whole_file
from trtmatrix.onnxmodel.graphs import all_nodes, opset_of

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
FLOOR = 9
"""No case goes below this opset: exporters of 2023 write none."""
OLD_IR, OLD_OPSET = 8, 17
"""The format that every version since TensorRT 8.5 reads, and its last opset."""
VALUES = 64
"""An input with more integers than this is none that sets a shape."""
LEFT_OUT = (
    r"bernoulli|training_dropout(?!.*zero_ratio)"  # which numbers come out is not defined
    r"|image_decoder.*(jpeg|jpeg2k|webp)"  # nor what a lossy picture decodes to
    # What is right is disputed: ONNX Runtime gives another answer.
    r"|resize_downsample_scales_(cubic|linear)_align_corners$|maxunpool_export_with_output_shape"
)
"""Tests that are left out, by their names."""
CHANGED = {
    "Softmax": 13, "LogSoftmax": 13, "Hardmax": 13,  # an axis was where the shape is cut in two
    "GridSample": 20,  # its modes had other names
    "OptionalGetElement": 18,  # it took no tensor
}  # fmt: skip
"""Operators that mean something else below an opset, with the same attributes and inputs."""
CHANGED_TESTS = {r"negative|_neg_": 11, r"mod_float.*fmod_0": 28}
"""Tests that do so: of negative axes and indices, and of what Mod does with real numbers."""
Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model with inputs and what must come out.

    ``operator``: the one that it tests; nothing where it has several nodes. ``model``, ``inputs``,
    ``outputs`` (by name): members of the archive. ``rtol``, ``atol``: ``|y - r| <= atol + rtol·|r|``.
    """

    name: str
    operator: str
    opset: int
    rtol: float
    atol: float
    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    profile: Mapping[str, list[list[int]]]


@dataclass(frozen=True, kw_only=True)
class Suite:
    """All cases. ``digest``: of models and inputs."""

    file: Path = field(compare=False)
    onnx: str
    digest: str
    cases: tuple[Case, ...]

    def write_case(self, case: Case, folder: Path) -> None:
        """Write a case as ``model.onnx``, ``inputs.npz`` and ``expected.npz``."""
        folder.mkdir(parents=True)
        with ZipFile(self.file) as archive:
            (folder / "model.onnx").write_bytes(archive.read(case.model))
            np.savez(folder / "inputs.npz", **read_arrays(archive, case.inputs))  # type: ignore[arg-type]
            np.savez(folder / "expected.npz", **read_arrays(archive, case.outputs))  # type: ignore[arg-type]


def read_arrays(archive: ZipFile, files: Mapping[str, str]) -> dict[str, Array]:
    """Return a case's inputs or outputs by name, from the open archive."""
    return {name: np.load(BytesIO(archive.read(file))) for name, file in files.items()}


def open_suite(cache: Path) -> Suite:
    """Return the suite of the installed onnx; it is made where the cache does not have it (20 s)."""
    own = sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    file = cache / "cases" / f"operators-{onnx.__version__}-{own}.zip"
    if not file.is_file():
        with whole_file(file) as out, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ONNX's tests divide by zero, and say so
            with ZipFile(out, "w", ZIP_DEFLATED, compresslevel=1) as archive:
                _write(archive)
    with ZipFile(file) as archive:
        told = json.loads(archive.read("suite.json"))
    return Suite(**{**told, "file": file, "cases": tuple(Case(**one) for one in told["cases"])})


def _write(archive: ZipFile) -> None:
    """Write all cases, and ``suite.json`` with what they are."""
    cases: list[Case] = []
    total = sha256()

    def put(name: str, content: bytes | Array) -> str:
        if not isinstance(content, bytes):
            stream = BytesIO()
            np.save(stream, content, allow_pickle=False)
            content = stream.getvalue()
        archive.writestr(name, content)
        if "/y" not in name:  # what is expected may differ in its last digit from one NumPy to the next
            total.update(name.encode() + content)
        return name

    for test, model, given, wanted in _tests():
        if re.search(LEFT_OUT, test.name) or not _can_be_had([*_fed(model), *model.graph.output]):
            continue
        inputs, outputs = _arrays(_fed(model), given), _arrays(model.graph.output, wanted)
        members, expected = (
            {name: put(f"{test.name}/{kind}{n}.npy", array) for n, (name, array) in enumerate(arrays.items())}
            for kind, arrays in (("x", inputs), ("y", outputs))
        )
        least = max([opset for names, opset in CHANGED_TESTS.items() if re.search(names, test.name)] + [0])
        for form, constants in forms_of(model, inputs, least):
            mark = "" if form is model else f"@{opset_of(form)}" + ("c" if constants else "")
            content = form.SerializeToString(deterministic=True)
            nodes = [node.op_type for node in form.graph.node if node.op_type != "Constant"]
            operator = nodes[0] if len(nodes) == 1 else "" if nodes else "Constant"
            ranges = {}  # of inputs that may need one: their shape, or values where these may set a shape
            for info in _fed(form):
                array = inputs[info.name]
                if any(not dim.HasField("dim_value") for dim in info.type.tensor_type.shape.dim):
                    ranges[info.name] = [list(array.shape)] * 3
                elif array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= VALUES:
                    ranges[info.name] = [[int(value) for value in array.reshape(-1)]] * 3
            cases.append(Case(
                name=test.name + mark, operator=operator, opset=opset_of(form),
                rtol=test.rtol, atol=test.atol, model=put(f"{test.name}/model{mark}.onnx", content),
                inputs={info.name: members[info.name] for info in _fed(form)}, outputs=expected,
                profile=ranges,
            ))  # fmt: skip
    cases.sort(key=lambda case: case.name)
    told = {"onnx": onnx.__version__, "digest": total.hexdigest()}
    archive.writestr("suite.json", json.dumps({**told, "cases": [asdict(case) for case in cases]}))


# --- ONNX's tests


def _tests() -> Iterator[tuple[TestCase, ModelProto, Sequence[Any], Sequence[Any]]]:
    """Yield the tests of the installed onnx by name, each with its model, inputs and outputs."""
    from onnx.backend.test.loader import load_model_tests

    found = (test for kind in KINDS for test in load_model_tests(kind=kind))
    for test in sorted(found, key=lambda one: one.name):
        if test.data_sets and test.model is not None:
            yield test, test.model, *test.data_sets[0]
        elif test.model_dir:
            folder = Path(test.model_dir)
            model = onnx.load(folder / "model.onnx")
            inputs, outputs = (
                [onnx.load_tensor(folder / f"test_data_set_0/{what}_{n}.pb") for n in range(len(infos))]
                for what, infos in (("input", _fed(model)), ("output", model.graph.output))
            )
            yield test, model, inputs, outputs


def _fed(model: ModelProto) -> list[ValueInfoProto]:
    """Return the inputs that a model is given, which are those without a value of their own."""
    own = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in own]


def _can_be_had(infos: Sequence[ValueInfoProto]) -> bool:
    """Whether inputs and outputs are tensors of a type that NumPy has: no bfloat16, string or sequence."""
    kinds = [info.type.tensor_type.elem_type for info in infos if info.type.HasField("tensor_type")]
    dtypes = map(tensor_dtype_to_np_dtype, kinds)
    return len(kinds) == len(infos) and all(d.isbuiltin == 1 and d.kind in "biuf" for d in dtypes)


def _arrays(infos: Sequence[ValueInfoProto], values: Sequence[Any]) -> dict[str, Array]:
    arrays = [numpy_helper.to_array(v) if isinstance(v, TensorProto) else np.asarray(v) for v in values]
    return dict(zip([info.name for info in infos], arrays, strict=True))


# --- The forms of a case


def forms_of(
    model: ModelProto, inputs: Mapping[str, Array], least: int = 0
) -> Iterator[tuple[ModelProto, bool]]:
    """Yield a model, then its other forms, each with whether its small inputs are constants.

    A test of a single node also comes at the lowest opset at which the same node means the same. Where it has
    inputs of rank 0 or 1 beside larger ones, as axes, scales or a bias, it also comes with these as
    constants, as exporters write them, at that opset. ``least``: it means something else below this opset.
    """
    yield model, False
    if len(list(all_nodes(model))) != 1 or model.graph.node[0].domain:
        return
    opset = min(opset_of(model), max(lowest_opset(model), least))
    lowered = model if opset == opset_of(model) else at_opset(model, opset)
    if lowered is not model:
        yield lowered, False
    small = {name: array for name, array in inputs.items() if array.ndim <= 1}
    if small and len(small) < len(inputs):
        frozen = at_opset(model, opset)
        frozen.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in small.items())
        kept = [info for info in frozen.graph.input if info.name not in small]
        del frozen.graph.input[:]
        frozen.graph.input.extend(kept)
        yield frozen, True


def at_opset(model: ModelProto, opset: int) -> ModelProto:
    """Return the same graph with another opset, in the oldest format that has it but none below IR 8."""
    copy = ModelProto()
    copy.CopyFrom(model)
    del copy.opset_import[:]
    copy.opset_import.append(onnx.helper.make_opsetid("", opset))
    needed = onnx.helper.find_min_ir_version_for(copy.opset_import)
    copy.ir_version = OLD_IR if opset <= OLD_OPSET else max(OLD_IR, needed)
    return copy


def lowest_opset(model: ModelProto) -> int:
    """Return the lowest opset, at least :data:`FLOOR`, at which a model's one node means the same.

    That is as far as ONNX tells: its checker takes the node there, and from one schema to the next inputs and
    outputs have the same names, no attribute was given up, and those that the node lacks the same defaults.
    """
    node, opset = model.graph.node[0], opset_of(model)
    has = {attribute.name for attribute in node.attribute}
    schema = get_schema(node.op_type, opset, "")
    with contextlib.suppress(SchemaError, checker.ValidationError, shape_inference.InferenceError):
        while schema.since_version > max(FLOOR, CHANGED.get(node.op_type, 0)):
            older = get_schema(node.op_type, schema.since_version - 1, "")
            was, now = older.attributes, schema.attributes
            pairs = [*zip(older.inputs, schema.inputs), *zip(older.outputs, schema.outputs)]  # noqa: B905
            if (
                older.deprecated or was.keys() - now.keys() or any(old.name != new.name for old, new in pairs)
                or any(was[name].default_value != now[name].default_value for name in was.keys() - has)
            ):  # fmt: skip
                break
            form = at_opset(model, schema.since_version - 1)
            checker.check_model(form)
            shape_inference.infer_shapes(form, check_type=True)
            schema = older
    return min(opset, max(schema.since_version, FLOOR))
