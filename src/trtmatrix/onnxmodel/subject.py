"""A failing model with its inputs, as minimise makes it smaller: read, written, and what its tensors hold."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from trtmatrix.core.tensors import Range
from trtmatrix.onnxmodel.external import find_external
from trtmatrix.onnxmodel.marking import inputs_of, link_or_copy
from trtmatrix.onnxmodel.reading import FEEDABLE
from trtmatrix.onnxmodel.samples import digest_samples
from trtmatrix.onnxmodel.sessions import Session
from trtmatrix.onnxmodel.walk import Known, elements, infer, known_of, put

Array = NDArray[Any]
Sample = Mapping[str, Array]

INLINE = 1 << 30
"""Bytes of weights up to which a model is held in memory with them."""


class CannotShrinkError(Exception):
    """A smaller model cannot be made this way; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large a model is: what a reader counts."""

    nodes: int
    weights: int
    inputs: int
    values: int
    samples: int

    @property
    def text(self) -> str:
        """All that in words."""
        parts = [
            f"{count:,} {one if count == 1 else one + 's'}"
            for count, one in ((self.nodes, "node"), (self.inputs, "input"), (self.samples, "sample"))
        ]
        return f"{', '.join(parts)}, {self.values:,} numbers fed, {self.weights:,} in weights"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model, its samples, and the profile of inputs whose shapes are dynamic. Nobody changes the model.

    ``files``: its external data by relative name, where it is too large to be held in memory.
    """

    model: ModelProto
    samples: tuple[Sample, ...]
    profile: Mapping[str, Range] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)

    @cached_property
    def known(self) -> Known:
        """Types and shapes of its tensors, for the first sample's shapes."""
        return known_of(infer(self.model, {name: a.shape for name, a in self.samples[0].items()}).graph)

    @cached_property
    def infos(self) -> Mapping[str, ValueInfoProto]:
        """What its inner tensors are, for any sample."""
        graph = infer(self.model).graph
        return {info.name: info for info in (*graph.value_info, *graph.input, *graph.output)}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of what is fed."""
        constants = {tensor.name for tensor in self.model.graph.initializer}
        return tuple(info.name for info in self.model.graph.input if info.name not in constants)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its outputs."""
        return tuple(info.name for info in self.model.graph.output)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of model, samples and profile (hexadecimal)."""
        total = sha256(self.model.SerializeToString(deterministic=True))
        total.update(f"{digest_samples(self.samples)} {sorted(self.profile.items())}".encode())
        return total.hexdigest()

    @property
    def size(self) -> Size:
        """How large it is."""
        return Size(
            nodes=len(self.model.graph.node), inputs=len(self.inputs), samples=len(self.samples),
            weights=sum(map(elements, self.model.graph.initializer)),
            values=sum(array.size for sample in self.samples for array in sample.values()),
        )  # fmt: skip

    def with_model(self, model: ModelProto) -> Subject:
        """Return the subject with another model, and of the samples what that is fed with."""
        after = replace(self, model=model)
        names = after.inputs
        samples = tuple({name: sample[name] for name in names} for sample in self.samples)
        profile = {name: ranges for name, ranges in self.profile.items() if name in names}
        return _with_weights(replace(after, samples=samples, profile=profile))


def read_subject(file: Path, samples: Sequence[Sample], profile: Mapping[str, Range]) -> Subject:
    """Read a model with what it is fed with; its weights too, unless they are very large."""
    model = onnx.load(str(file), load_external_data=False)
    files = find_external(file, model)
    inputs = {info.name for info in model.graph.input}
    fed = tuple({name: array for name, array in sample.items() if name in inputs} for sample in samples)
    return _with_weights(Subject(model=model, samples=fed, profile=dict(profile), files=files))


def _with_weights(subject: Subject) -> Subject:
    """Return a subject whose weights are all in memory, where they are not too many."""
    outside = [t for t in subject.model.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    used = {entry.value for tensor in outside for entry in tensor.external_data if entry.key == "location"}
    files = {name: file for name, file in subject.files.items() if name in used}
    if not files or sum(_bytes(tensor) for tensor in outside) > INLINE:
        return replace(subject, files=files)
    model = ModelProto()
    model.CopyFrom(subject.model)
    with tempfile.TemporaryDirectory() as folder:
        for name, file in files.items():
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, Path(folder) / name)  # onnx reads no links
        onnx.load_external_data_for_model(model, folder)
    return replace(subject, model=model, files={})


def _bytes(tensor: TensorProto) -> int:
    return elements(tensor) * max(1, helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def write_model(subject: Subject, file: Path, marked: Iterable[str] = ()) -> Path:
    """Write a subject's model, with inner tensors as further outputs; returns the file."""
    model, own = subject.model, set(subject.outputs)
    if extra := [name for name in marked if name not in own]:
        model = ModelProto()
        model.CopyFrom(subject.model)
        model.graph.output.extend(info_of(subject, name) for name in extra)
    file.parent.mkdir(parents=True, exist_ok=True)
    for name, source in subject.files.items():
        link_or_copy(source, file.parent / name)
    file.write_bytes(model.SerializeToString(deterministic=True))
    return file


def info_of(subject: Subject, name: str, sample: Array | None = None) -> ValueInfoProto:
    """Return what a tensor is, as a graph's input or output says it; :class:`CannotShrinkError` if unknown.

    ``sample``: a value that it has, for what cannot be inferred.
    """
    info = subject.infos.get(name)
    if info is not None and info.type.tensor_type.HasField("shape") and info.type.tensor_type.elem_type:
        return info
    if sample is not None:
        kind = helper.np_dtype_to_tensor_dtype(sample.dtype)
        return helper.make_tensor_value_info(name, kind, [None] * sample.ndim)
    known, shape = subject.known.types.get(name), subject.known.shapes.get(name)
    if not known or shape is None:
        raise CannotShrinkError(f"it is not known what {name} is")
    return helper.make_tensor_value_info(name, known, [None] * len(shape))


class Values:
    """What the tensors of a subject hold: computed by ONNX Runtime on the CPU, each once."""

    def __init__(self, subject: Subject, scratch: Path) -> None:
        """Take the subject; ``scratch``: a folder on the same disk as its files."""
        self._subject, self._scratch = subject, scratch
        self._known: list[dict[str, Array]] = [dict(sample) for sample in subject.samples]

    def of(self, names: Iterable[str]) -> Sequence[Mapping[str, Array]]:
        """Return the values by sample; raises NotComputedError where they cannot be computed."""
        if missing := sorted(set(names) - set(self._known[0])):
            with tempfile.TemporaryDirectory(dir=self._scratch, prefix=".values-") as folder:
                session = Session(write_model(self._subject, Path(folder) / "model.onnx", missing))
                for sample, known in zip(self._subject.samples, self._known, strict=True):
                    found = session.run(sample)
                    known.update({name: found[name] for name in missing})
        return self._known


def moving_tensors(subject: Subject) -> dict[str, NodeProto]:
    """Return the tensors that depend on what is fed, each with its node, in the order of the graph."""
    moving, found = set(subject.inputs), dict[str, NodeProto]()
    for node in subject.model.graph.node:
        if moving.intersection(inputs_of(node)):
            for name in filter(None, node.output):
                moving.add(name)
                found[name] = node
    return found


def is_feedable(subject: Subject, name: str) -> bool:
    """Whether NumPy has the type of a tensor."""
    kind = subject.known.types.get(name)
    if kind is None:
        return False
    said = str(TensorProto.DataType.Name(kind)).lower()
    return {"float": "float32", "double": "float64"}.get(said, said) in FEEDABLE


def extract(
    subject: Subject,
    outputs: Sequence[str],
    fed: Sequence[Mapping[str, Array]] = (),
    constants: Mapping[str, Array] | None = None,
) -> Subject:
    """Return the part of a subject that computes some tensors.

    ``fed``: by sample, the values of tensors that become inputs. ``constants``: those that become weights.
    :class:`CannotShrinkError` where no node or no input is left.
    """
    own, constants = subject.model.graph, constants or {}
    given = set(fed[0]) if fed else set()
    nodes, used = _needed(subject, outputs, given | set(constants))
    entering = [name for name in [*subject.inputs, *sorted(given - set(subject.inputs))] if name in used]
    if not nodes or not entering:
        raise CannotShrinkError("nothing is left that computes something of what is fed")
    model = ModelProto(ir_version=subject.model.ir_version)
    model.opset_import.extend(subject.model.opset_import)
    model.functions.extend(subject.model.functions)
    graph = model.graph
    graph.name = own.name or "graph"
    graph.node.extend(nodes)
    graph.input.extend(info_of(subject, name, fed[0][name] if name in given else None) for name in entering)
    graph.output.extend(info_of(subject, name) for name in outputs)
    graph.initializer.extend(t for t in own.initializer if t.name in used and t.name not in constants)
    graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in constants.items() if n in used)
    graph.sparse_initializer.extend(s for s in own.sparse_initializer if s.values.name in used)
    samples = fed or [{}] * len(subject.samples)
    both = [{**old, **new} for old, new in zip(subject.samples, samples, strict=True)]
    return replace(subject, samples=tuple(both)).with_model(model)


def _needed(
    subject: Subject, outputs: Iterable[str], given: Iterable[str]
) -> tuple[list[NodeProto], set[str]]:
    """Return the nodes that compute some tensors, up to those that are given, and all that they use."""
    used, stop, nodes = set(outputs), set(given), list[NodeProto]()
    for node in reversed(subject.model.graph.node):
        if any(name in used and name not in stop for name in node.output if name):
            nodes.append(node)
            used.update(inputs_of(node))
    return nodes[::-1], used


def rewritten(subject: Subject, nodes: Sequence[NodeProto]) -> Subject:
    """Return a subject with other nodes; what nobody uses any more is left out."""
    model = ModelProto()
    model.CopyFrom(subject.model)
    put(model.graph.node, nodes)
    return extract(replace(subject, model=model), subject.outputs)
