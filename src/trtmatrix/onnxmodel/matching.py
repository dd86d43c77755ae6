"""Finds the nodes of a graph that a repro's rule describes: chains of operators, with conditions. Pure.

What a condition needs may not be in the file (a dynamic size): then the chain fits, and is marked unsure.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, inliner
from packaging.version import Version as Release

from trtmatrix.onnxmodel.graphs import OWN, Dims, Known, all_graphs, attribute_of, infer, known_of, opset_of
from trtmatrix.suite.repros import Condition, Rule, Step

RANDOM = frozenset(
    {
        "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial",
    }
)  # fmt: skip
"""Operators that give no constant, also of constants."""


class Wiring:
    """A graph's nodes by operator, by what they give and by what they take; its constants and shapes."""

    def __init__(self, graph: GraphProto, known: Known, opset: int, constants: set[str]) -> None:
        self.known, self.opset = known, Release(str(opset))
        self.kinds = {n: str(TensorProto.DataType.Name(kind)).lower() for n, kind in known.types.items()}
        self.outputs = {info.name for info in graph.output}
        self.constants = constants | {tensor.name for tensor in graph.initializer}
        self.by_operator: dict[str, list[NodeProto]] = defaultdict(list)
        self.producer: dict[str, NodeProto] = {}
        self.consumers: dict[str, list[NodeProto]] = defaultdict(list)
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            self.by_operator[node.op_type].append(node)
            self.producer.update(dict.fromkeys(node.output, node))
            for name in dict.fromkeys(node.input):
                self.consumers[name].append(node)
            if node.op_type not in RANDOM and all(name in self.constants for name in node.input if name):
                self.constants.update(node.output)  # nodes are sorted

    def input_of(self, node: NodeProto, index: int) -> str:
        """Return the name of an input; nothing where it is not given."""
        return node.input[index] if index < len(node.input) else ""

    def shape(self, node: NodeProto, index: int = 0) -> Dims | None:
        """Return an input's dims, as far as known (None: not even their number)."""
        return self.known.shapes.get(self.input_of(node, index))

    def value(self, name: str) -> NDArray[Any] | None:
        """Return a constant's value, where the file tells it without computing."""
        node, found = self.producer.get(name), self._tensors.get(name)
        if found is None and node is not None and node.op_type in {"Identity", "Cast"}:
            return self.value(node.input[0])
        if found is None and node is not None and node.op_type == "Constant" and node.attribute:
            found = onnx.helper.get_attribute_value(node.attribute[0])
        if not isinstance(found, TensorProto):
            return None if found is None else np.asarray(found)
        if found.data_location == TensorProto.EXTERNAL:
            return None
        try:
            return np.asarray(onnx.numpy_helper.to_array(found))
        except (TypeError, ValueError):  # its data are too few
            return None

    def before(self, node: NodeProto) -> list[str]:
        """Return the operators that give a node what is not constant; nothing for the graph's inputs."""
        names = [name for name in node.input if name and name not in self.constants]
        return [self.producer[name].op_type if name in self.producer else "" for name in names]


def make_wirings(model: ModelProto) -> list[Wiring]:
    """Return a model's graph and those inside of it, local functions written out in their places.

    The data of large tensors is not looked at.
    """
    known = infer(model)
    if known.functions:
        with contextlib.suppress(Exception):  # what cannot be written out is looked at as it stands
            known = infer(inliner.inline_local_functions(known))
    facts, opset = known_of(known.graph), opset_of(known)
    main = Wiring(known.graph, facts, opset, set())
    inner = [*all_graphs(known.graph)][1:] + [GraphProto(node=each.node) for each in known.functions]
    return [main, *(Wiring(graph, facts, opset, main.constants) for graph in inner)]


def find_places(wirings: Sequence[Wiring], rule: Rule) -> list[tuple[NodeProto, bool]]:
    """Return where a rule fits, each last node of a chain once, in the graph's order.

    That is the node that is told, and whether something that a condition needs is not in the file.
    """
    found: list[tuple[NodeProto, bool]] = []
    for wiring in wirings:
        starts = [node for op in rule.graph[0].op for node in wiring.by_operator.get(op, ())]
        last: dict[int, tuple[NodeProto, bool]] = {}
        for chain, unsure in (found for node in starts for found in _chains(wiring, rule.graph, node, node)):
            told = next((n for n, step in zip(chain, rule.graph, strict=True) if step.named), chain[-1])
            last.setdefault(id(chain[-1]), (told, unsure))
        places = list(last.values())
        if rule.same is not None:  # they share that input with another
            names = [wiring.input_of(node, rule.same) for node, _ in places]
            places = [place for place, name in zip(places, names, strict=True) if names.count(name) > 1]
        elif rule.differ is not None:  # they differ in the axis that this input is
            axes = {id(node): _axis(wiring, node, rule.differ) for node, _ in places}
            places = [place for place in places if axes[id(place[0])] is not None]
            places = places if len(set(axes.values()) - {None}) > 1 else []
        found += places
    return found


def _axis(wiring: Wiring, node: NodeProto, index: int) -> int | None:
    """Return the axis that an input is, counted from the front where the rank is known; else None."""
    value, shape = wiring.value(wiring.input_of(node, index)), wiring.shape(node)
    if value is None or value.size != 1 or value.dtype.kind not in "iu":
        return None
    return int(value.reshape(())) % len(shape) if shape else int(value.reshape(()))


def _chains(
    wiring: Wiring, steps: Sequence[Step], node: NodeProto, first: NodeProto
) -> Iterator[tuple[list[NodeProto], bool]]:
    """Yield the chains of these steps from a node on, and whether the file does not say all of one."""
    fits = _fits(wiring, steps[0], node, first)
    if fits is False:
        return
    if len(steps) == 1:
        yield [node], fits is None
        return
    for taker in _behind(wiring, node, steps[1]):
        for rest, unsure in _chains(wiring, steps[1:], taker, first):
            yield [node, *rest], unsure or fits is None


def _behind(wiring: Wiring, node: NodeProto, step: Step) -> Iterator[NodeProto]:
    """Yield the nodes of a step's operators that take what a node gives, also through those to skip."""
    for taker in (taker for name in node.output for taker in wiring.consumers[name]):
        if taker.op_type in step.op:
            yield taker
        elif taker.op_type in step.skip:
            yield from _behind(wiring, taker, step)


def _fits(wiring: Wiring, step: Step, node: NodeProto, first: NodeProto) -> bool | None:
    """Say whether a node, whose chain begins with another, is what a step describes; None: it is not said."""
    if node.domain not in OWN and onnx.defs.has(node.op_type):
        return False  # another operator of the same name
    before, kinds = wiring.before(node), wiring.kinds
    plain = (
        step.opset.contains(wiring.opset),
        all(wiring.input_of(node, index) for index in step.given),
        not step.constant or any(wiring.input_of(node, i) in wiring.constants for i in step.constant),
        all(kinds.get(wiring.input_of(node, index)) in types for index, types in step.types.items()),
        step.rank is None or len(wiring.shape(node) or ()) == step.rank,
        not step.after or all(op in step.after for op in before),
        not any(op in step.not_after for op in before),
    )
    if not all(plain):
        return False
    try:  # an attribute may be one of the function around the node, axes may be those of no tensor
        for name, values in step.attributes.items():
            if attribute_of(node, name) not in [v.encode() if isinstance(v, str) else v for v in values]:
                return False
        asked = [_holds(wiring, node, first, condition) for condition in step.where]
    except (IndexError, TypeError, ValueError):
        return None
    return False if False in asked else None if None in asked else True


def _holds(wiring: Wiring, node: NodeProto, first: NodeProto, condition: Condition) -> bool | None:
    """Answer what is asked of a node whose chain begins with another; None: the file does not say."""
    shape = wiring.shape(node)
    match condition:
        case "no output":
            return not wiring.outputs & set(node.output)
        case "upper left out":
            return attribute_of(node, "upper") is None
        case "an integer, not 0":
            return attribute_of(node, "value_int") not in {None, 0}
        case "one row or column":
            return _has_one_row(wiring, node)
        case "several rows":
            return not _has_one_row(wiring, node)
        case "bounded from 0":
            return _is_bounded(wiring, node)
        case "scaled alike":
            return _is_scaled_alike(wiring, node)
        case "some axes":  # those of input 1 are not all there are
            axes = wiring.value(wiring.input_of(node, 1))
            if wiring.shape(node, 1) == (0,):
                return bool(attribute_of(node, "noop_with_empty_axes", 0))
            if axes is None or shape is None:
                return None
            return len({int(axis) % max(len(shape), 1) for axis in axes.reshape(-1)}) < len(shape)
        case "part of the shape":  # Shape's start and end leave out a dimension
            start, end = _number(node, "start"), _number(node, "end", None)
            if shape is None:
                return None if start or end is not None else False
            return len(range(len(shape))[start:end]) < len(shape)
        case "uneven parts":  # Split's num_outputs do not divide the dimension
            number, axis, dims = _number(node, "num_outputs"), _number(node, "axis"), shape or ()
            size = dims[axis] if -len(dims) <= axis < len(dims) else None
            return False if number < 2 else None if size is None else size % number != 0
        case "turned back":  # a Transpose undoes the first of the chain
            before, after = (attribute_of(each, "perm") for each in (first, node))
            if not isinstance(before, list) or not isinstance(after, list) or len(before) != len(after):
                return before is None and after is None
            return [before[axis] for axis in after] == list(range(len(before)))
        case "moves data":  # a Transpose that keeps the order of long axes is a Reshape
            if shape is None:
                return None
            perm = attribute_of(node, "perm")
            order = perm if isinstance(perm, list) else [*reversed(range(len(shape)))]
            long = [axis for axis in order if shape[axis] != 1]
            return long != sorted(long)


def _number(node: NodeProto, name: str, default: Any = 0) -> Any:  # noqa: ANN401 - an int, or the default
    return attribute_of(node, name, default)


def _has_one_row(wiring: Wiring, node: NodeProto) -> bool:
    """Whether a matrix product has one row or one column, as far as the file tells."""
    left, right = wiring.shape(node, 0), wiring.shape(node, 1)
    if not left or not right or len(left) < 2 or len(right) < 2:
        return False
    rows = left[:-1] if len(right) == 2 else left[-2:-1]
    return right[-1] == 1 or (None not in rows and prod(size or 0 for size in rows) == 1)


def _is_bounded(wiring: Wiring, node: NodeProto) -> bool | None:
    """Whether Clip goes from 0 to a bound; before opset 11 both are attributes."""
    given = [wiring.input_of(node, index) for index in (1, 2)]
    if not any(given):
        return attribute_of(node, "min") == 0 and attribute_of(node, "max") is not None
    low, high = (wiring.value(name) for name in given)
    if not all(given) or any(value is not None and value.size != 1 for value in (low, high)):
        return False
    if low is None or high is None:
        return None
    return float(low.reshape(())) == 0 and bool(np.isfinite(high).all())


def _is_scaled_alike(wiring: Wiring, node: NodeProto) -> bool:
    """Whether both factors of a product were multiplied by the same number, which is not 1.

    Not straight behind a Reshape: nn.MultiheadAttention has that, and is reported to be right.
    """
    makers = [wiring.producer.get(name) for name in node.input]
    if any(m is None or m.op_type != "Mul" or "Reshape" in wiring.before(m) for m in makers):
        return False
    scalars = [
        {_origin(wiring, name) for name in maker.input if wiring.known.shapes.get(name, (1,)) in {(), (1,)}}
        for maker in makers if maker is not None
    ]  # fmt: skip
    numbers = [
        {str(value.item()) for name in each if (value := wiring.value(name)) is not None} for each in scalars
    ]
    return bool(numbers[0] & numbers[1] - {"1.0"} or (scalars[0] & scalars[1] and not any(numbers)))


def _origin(wiring: Wiring, name: str) -> str:
    """Return the tensor that one is the root of, or a copy; else itself."""
    while name in wiring.producer and wiring.producer[name].op_type in {"Sqrt", "Cast", "Identity"}:
        name = wiring.producer[name].input[0]
    return name
