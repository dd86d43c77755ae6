"""Simpler numbers: zeros, ones, a single one, few bits; of what a model is fed with and of its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from trtmatrix.onnxmodel.subject import Array, CannotShrinkError, Subject
from trtmatrix.onnxmodel.walk import all_graphs, elements

REAL = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE})
MOST = 1 << 24
"""Elements of weights up to which they are made simpler."""


def _single(array: Array) -> Array:
    one = np.zeros_like(array)
    one.flat[:1] = 1
    return one


def _few_bits(bits: int) -> Callable[[Array], Array]:
    def round_to(array: Array) -> Array:
        if array.dtype.kind != "f":
            return array
        mantissa, exponent = np.frexp(array.astype(np.float64))
        rounded = np.ldexp(np.rint(mantissa * 2**bits), exponent - bits)
        return np.asarray(rounded).astype(array.dtype)

    return round_to


SIMPLER: dict[str, Callable[[Array], Array]] = {
    "zeros": np.zeros_like, "ones": np.ones_like, "a single one": _single, "powers of two": _few_bits(1),
    "three bits": _few_bits(3),
}  # fmt: skip
"""From the simplest on."""


def simpler_values(arrays: tuple[Array, ...]) -> Iterator[str]:
    """Yield the words for what is simpler than some arrays are."""
    for word, change in SIMPLER.items():
        if all(np.array_equal(change(array), array, equal_nan=True) for array in arrays):
            return
        yield word


def fed_simpler(subject: Subject, name: str, word: str) -> Subject:
    """Return a subject that is fed something simpler."""
    change = SIMPLER[word]
    samples = tuple({**sample, name: change(sample[name])} for sample in subject.samples)
    return replace(subject, samples=samples)


def weights_of(subject: Subject) -> Iterator[tuple[str, Array]]:
    """Yield the weights of real numbers that can be made simpler; a single number stays."""
    for tensor in subject.model.graph.initializer:
        inside = tensor.data_location != TensorProto.EXTERNAL
        if tensor.data_type in REAL and inside and 1 < elements(tensor) <= MOST:
            yield tensor.name, numpy_helper.to_array(tensor)


def weighted_simpler(subject: Subject, name: str, word: str) -> Subject:
    """Return a subject with a simpler weight."""
    model = ModelProto()
    model.CopyFrom(subject.model)
    for tensor in model.graph.initializer:
        if tensor.name == name:
            array = SIMPLER[word](numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(array, name))
    return subject.with_model(model)


def static(subject: Subject) -> Subject:
    """Return a subject whose inputs have the shapes of its one sample alone."""
    model = ModelProto()
    model.CopyFrom(subject.model)
    for graph in all_graphs(model.graph):
        del graph.value_info[:]
    for info in model.graph.input:
        if info.name in subject.samples[0]:
            kind = info.type.tensor_type.elem_type
            info.CopyFrom(helper.make_tensor_value_info(info.name, kind, subject.samples[0][info.name].shape))
    fixed = replace(subject, model=model, profile={})
    for info in model.graph.output:
        shape = fixed.known.shapes.get(info.name)
        if shape is not None and None not in shape:
            info.CopyFrom(helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, shape))
    return replace(subject, model=model, profile={})


def is_dynamic(subject: Subject) -> bool:
    """Whether an input takes several shapes."""
    return any(
        not dim.HasField("dim_value")
        for info in subject.model.graph.input if info.name in subject.samples[0]
        for dim in info.type.tensor_type.shape.dim
    )  # fmt: skip


def one_sample(subject: Subject, number: int) -> Subject:
    """Return a subject with one of its samples; what shapes it takes stays.

    :class:`CannotShrinkError` where there is no such sample.
    """
    if not 0 <= number < len(subject.samples):
        raise CannotShrinkError(f"there is no sample {number}")
    return replace(subject, samples=(subject.samples[number],))
