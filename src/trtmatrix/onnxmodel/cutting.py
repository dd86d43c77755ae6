"""Fewer nodes: an earlier output, later inputs, fed what the whole model had there, nodes left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from onnx import NodeProto

from trtmatrix.onnxmodel.marking import MEASURED, inputs_of
from trtmatrix.onnxmodel.subject import (
    Array,
    CannotShrinkError,
    Subject,
    Values,
    extract,
    is_feedable,
    moving_tensors,
    rewritten,
)
from trtmatrix.onnxmodel.walk import FLOATS

LOOKS_AT_NO_VALUE = frozenset({"Shape", "Size"})
ROUNDS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
"""What a product looks for in the graph: it is not computed beforehand."""
RANDOM = frozenset({"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli"})

SMALL = 1024
"""Elements that a tensor computed beforehand may always have; else no more than what it came from."""


def earlier_outputs(subject: Subject) -> list[str]:
    """Return the inner tensors that can be the one output instead, in the order of the graph."""
    if len(subject.outputs) != 1:
        return []
    own = subject.outputs[0]
    before = _before(subject, own)
    return [
        name for name in moving_tensors(subject)
        if name in before and name != own and subject.known.types.get(name) in MEASURED
    ]  # fmt: skip


def _before(subject: Subject, tensor: str) -> set[str]:
    """Return all that a tensor is computed from, and itself."""
    found = {tensor}
    for node in reversed(subject.model.graph.node):
        if found.intersection(node.output):
            found.update(inputs_of(node))
    return found


def later_inputs(subject: Subject) -> Iterator[str]:
    """Yield where all before can be left out: the last tensor of it, the latest first."""
    moving = moving_tensors(subject)
    for node in reversed(list(dict.fromkeys(_first_output(n) for n in moving.values()))[:-1]):
        if node not in subject.outputs:
            yield node


def inputs_at(subject: Subject) -> Iterator[str]:
    """Yield the tensors of which each can be fed instead of being computed, the latest first."""
    for name, node in reversed(moving_tensors(subject).items()):
        is_first = name == _first_output(node)
        if is_first and not set(node.output) & set(subject.outputs) and is_feedable(subject, name):
            yield name


def _first_output(node: NodeProto) -> str:
    return str(next(name for name in node.output if name))


def start_after(subject: Subject, tensor: str, values: Values) -> Subject:
    """Return a subject without the nodes up to one that gives a tensor, which is that node's first output."""
    done = set[str]()
    for node in subject.model.graph.node:
        done.update(filter(None, node.output))
        if _first_output(node) == tensor:
            break
    return _fed_at(subject, done, values)


def start_at(subject: Subject, tensor: str, values: Values) -> Subject:
    """Return a subject that is fed what the node of a tensor gives, instead of computing it."""
    node = moving_tensors(subject)[tensor]
    return _fed_at(subject, set(filter(None, node.output)), values)


def _fed_at(subject: Subject, done: set[str], values: Values) -> Subject:
    """Return a subject that is fed all of some tensors that it still needs.

    Real numbers become inputs. Others (shapes, indices, masks) become weights where all samples agree, for
    many operators want them as constants.
    """
    wanted = sorted(_used_after(subject, done))
    constant = [name for name in wanted if name not in moving_tensors(subject)]
    if lacking := [name for name in wanted if not is_feedable(subject, name)]:
        raise CannotShrinkError(f"{lacking[0]} is of a type that NumPy does not have, or of none known")
    found = values.of(wanted)
    fixed = {name: found[0][name] for name in wanted if name in constant or _is_fixed(subject, name, found)}
    fed = [{name: sample[name] for name in wanted if name not in fixed} for sample in found]
    return extract(subject, subject.outputs, fed, fixed)


def _is_fixed(subject: Subject, name: str, found: Sequence[Mapping[str, Array]]) -> bool:
    is_real = subject.known.types.get(name) in FLOATS
    return not is_real and all(np.array_equal(found[0][name], sample[name]) for sample in found)


def _used_after(subject: Subject, done: set[str]) -> set[str]:
    """Return those of some tensors that the outputs are computed from, without looking behind them."""
    used = set(subject.outputs)
    for node in reversed(subject.model.graph.node):
        if any(name in used and name not in done for name in node.output):
            used.update(inputs_of(node))
    return used & done


def left_out(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield a tensor and what can stand for it, so that its node is left out: of equal type and shape."""
    types, shapes = subject.known.types, subject.known.shapes
    for name, node in reversed(moving_tensors(subject).items()):
        if name in subject.outputs or len([n for n in node.output if n]) != 1:
            continue
        for other in dict.fromkeys(inputs_of(node)):
            same = types.get(other) == types.get(name) and shapes.get(other) == shapes.get(name)
            if same and None not in shapes.get(name, (None,)):
                yield name, other


def without(subject: Subject, tensor: str, instead: str) -> Subject:
    """Return a subject in which another tensor stands for one."""
    nodes = []
    for node in subject.model.graph.node:
        copy = NodeProto()
        copy.CopyFrom(node)
        for place, name in enumerate(copy.input):
            if name == tensor:
                copy.input[place] = instead
        nodes.append(copy)
    return rewritten(subject, nodes)


def folded(subject: Subject, values: Values) -> Subject:
    """Return a subject that has as weights what does not depend on what it is fed with, but on its shapes.

    What rounds weights to integers, and what would make the model larger, stays.
    """
    constant = _constant(subject)
    wanted = [name for name in _frontier(subject, constant) if is_feedable(subject, name)]
    found = values.of(wanted)
    fixed = {name: found[0][name] for name in wanted if _may_be_weight(found, name)}
    if not fixed:
        raise CannotShrinkError("nothing can be computed beforehand")
    return extract(subject, subject.outputs, constants=fixed)


def can_be_folded(subject: Subject) -> bool:
    """Whether there is something to compute beforehand."""
    return bool(list(_frontier(subject, _constant(subject))))


def _may_be_weight(found: Sequence[Mapping[str, Array]], name: str) -> bool:
    first = found[0][name]
    return first.size <= SMALL and all(np.array_equal(first, sample[name]) for sample in found)


def _constant(subject: Subject) -> set[str]:
    """Return the tensors whose values no sample changes, of nodes that can be computed beforehand."""
    fixed = {tensor.name for tensor in subject.model.graph.initializer}
    shapes = subject.known.shapes
    for node in subject.model.graph.node:
        if node.op_type in ROUNDS | RANDOM:
            continue
        sized = node.op_type in LOOKS_AT_NO_VALUE and _is_static(subject, shapes.get(node.input[0]))
        if sized or all(name in fixed for name in inputs_of(node)):
            fixed.update(filter(None, node.output))
    return fixed


def _is_static(subject: Subject, shape: Iterable[int | None] | None) -> bool:
    return not subject.profile and shape is not None and None not in shape


def _frontier(subject: Subject, constant: set[str]) -> Iterator[str]:
    """Yield the constant results of nodes that other nodes use."""
    made = {name for node in subject.model.graph.node for name in node.output if name in constant}
    seen = set[str]()
    for node in subject.model.graph.node:
        for name in inputs_of(node):
            if name in made - seen and not set(node.output) <= constant:
                seen.add(name)
                yield name
