"""Smaller dimensions: a size changed in all tensors that share it, weights and constants of shapes too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from trtmatrix.onnxmodel.atoms import Dims
from trtmatrix.onnxmodel.dims import Traced, trace
from trtmatrix.onnxmodel.subject import Array, CannotShrinkError, Subject, extract
from trtmatrix.onnxmodel.walk import all_graphs, attribute_of

MARK = "__smaller"
"""Stands behind the names of constants that were rewritten, with a number."""


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """A size that can be changed. ``name``: where it is seen first: ``x[1]``, or a factor of that."""

    name: str
    size: int
    atom: int


def dimensions(subject: Subject, traced: Traced | None = None) -> Iterator[Dimension]:
    """Yield the sizes that can be changed: those of the inputs first, then those of weights and the rest.

    None where there are several samples, or weights that are not in memory.
    """
    if len(subject.samples) != 1 or subject.files:
        return
    traced = traced or trace(subject)
    seen = set[int]()
    weights = [tensor.name for tensor in subject.model.graph.initializer]
    for name in dict.fromkeys([*subject.inputs, *weights, *sorted(traced.dims)]):
        for place, dim in enumerate(traced.dims.get(name, ())):
            atoms = traced.atoms.expand(dim)
            for part, atom in enumerate(atoms):
                if atom not in seen and not traced.atoms.is_frozen(atom):
                    seen.add(atom)
                    factor = f" factor {part + 1}" if len(atoms) > 1 else ""
                    size = traced.atoms.size(atom)
                    yield Dimension(name=f"{name}[{place}]{factor}", size=size, atom=atom)


def resized(subject: Subject, name: str, size: int) -> Subject:
    """Return a subject in which a dimension has another size, smaller than its own.

    :class:`CannotShrinkError` where there is no such dimension.
    """
    traced = trace(subject)
    found = next((d for d in dimensions(subject, traced) if d.name == name), None)
    if found is None or size >= found.size:
        raise CannotShrinkError(f"{name} cannot be changed consistently")
    return _Resizing(subject, traced, found.atom, size).done()


class _Resizing:
    def __init__(self, subject: Subject, traced: Traced, atom: int, size: int) -> None:
        self.subject, self.traced, self.atom, self.to = subject, traced, atom, size
        self.taken = {tensor.name for tensor in subject.model.graph.initializer} | set(traced.dims)

    def done(self) -> Subject:
        model = ModelProto()
        model.CopyFrom(self.subject.model)
        for graph in all_graphs(model.graph):
            del graph.value_info[:]
        for tensor in model.graph.initializer:
            self._tensor(tensor, tensor.name)
        for node in model.graph.node:
            self._node(node, model)
        for info in (*model.graph.input, *model.graph.output):
            self._info(info)
        sample = {name: self._array(array, name) for name, array in self.subject.samples[0].items()}
        changed = {name for name, array in sample.items() if array is not self.subject.samples[0][name]}
        profile = {
            name: (sample[name].shape,) * 3 if name in changed else shapes
            for name, shapes in self.subject.profile.items()
        }  # in its order: the same search gives the same bytes
        whole = replace(self.subject, model=model, samples=(sample,), profile=profile)
        return extract(whole, whole.outputs)  # without the constants that nobody uses any more

    def _size(self, atoms: Sequence[int]) -> int:
        return prod(self.to if atom == self.atom else self.traced.atoms.size(atom) for atom in atoms)

    def _dims(self, name: str) -> list[Dims]:
        return [self.traced.atoms.expand(dim) for dim in self.traced.dims.get(name, ())]

    def _array(self, array: Array, name: str) -> Array:
        """Return the first elements along the atom, wherever it is in a tensor."""
        dims = self._dims(name)
        atoms = [atom for dim in dims for atom in dim]
        if self.atom not in atoms:
            return array
        apart = array.reshape([self.traced.atoms.size(atom) for atom in atoms])
        first = apart[tuple(slice(self.to) if atom == self.atom else slice(None) for atom in atoms)]
        return np.ascontiguousarray(first.reshape([self._size(dim) for dim in dims]))

    def _tensor(self, tensor: TensorProto, name: str) -> None:
        if any(self.atom in dim for dim in self._dims(name)):
            array = self._array(numpy_helper.to_array(tensor), name)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))

    def _info(self, info: ValueInfoProto) -> None:
        for dim, atoms in zip(info.type.tensor_type.shape.dim, self._dims(info.name), strict=False):
            if self.atom in atoms and dim.HasField("dim_value"):
                dim.dim_value = self._size(atoms)

    def _node(self, node: NodeProto, model: ModelProto) -> None:
        """Rewrite what a node says of sizes: the value of Constant, the shape of Reshape and Expand."""
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    self._tensor(attribute.t, node.output[0])
        elif node.op_type in {"Reshape", "Expand"}:
            self._shape(node, model)
        elif node.op_type == "Split" and len(node.input) > 1 and node.input[1]:
            axis = int(str(attribute_of(node, "axis", 0)))
            sizes = [self._size(self._dims(name)[axis]) for name in node.output]
            self._constant(node, np.asarray(sizes, np.int64), model)

    def _shape(self, node: NodeProto, model: ModelProto) -> None:
        was = self.traced.constants.get(node.input[1])
        dims = self._dims(node.output[0])
        if was is None or len(was) > len(dims):
            return
        sizes = [self._size(atoms) for atoms in dims[len(dims) - len(was) :]]
        kept = {0, -1} if node.op_type == "Reshape" else {1}
        now = [int(old) if int(old) in kept else new for old, new in zip(was, sizes, strict=True)]
        self._constant(node, np.asarray(now, np.int64), model)

    def _constant(self, node: NodeProto, array: Array, model: ModelProto) -> None:
        """Give a node its second input anew; others may share the old one."""
        was = self.traced.constants.get(node.input[1])
        if was is not None and np.array_equal(was, array):
            return
        stem = node.input[1].partition(MARK)[0]
        name = next(n for n in map(f"{stem}{MARK}{{}}".format, itertools.count(1)) if n not in self.taken)
        self.taken.add(name)
        node.input[1] = name
        model.graph.initializer.append(numpy_helper.from_array(array, name))
