"""Outputs of integers, such as an ArgMax: which of their elements the noise of the precision may change.

Where the reference's margin is larger than the noise, every way of computing the graph in the precision asked
for gives the reference's integer, and a right engine must give it too. Elsewhere it may give another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, ValueInfoProto

from trtmatrix.judge.factors import ALLOWED
from trtmatrix.model.outcomes import Integers
from trtmatrix.onnxmodel.computing import GRIDS, Graph, Way

Array = NDArray[Any]
Samples = Sequence[Mapping[str, Array]]
"""Outputs by name, sample by sample."""


def compare_integers(
    model: Path, feeds: Samples, precision: str, reference: Samples, engines: Mapping[str, Sequence[Samples]]
) -> tuple[Integers, ...]:
    """Compare outputs of integers and booleans with their references: at each version the worst engine.

    ``engines``: version → the samples of each of its engines; each sample has all outputs. ``precision``: one
    of :data:`trtmatrix.judge.factors.ALLOWED`. The graph is computed in its ways only where something
    differs. :class:`NotComputedError` where that cannot be done.
    """
    every = [(version, given) for version, found in engines.items() for given in found]
    names = [name for name, array in every[0][1][0].items() if array.dtype.kind in "biu"] if every else []
    pairs = [pair for _, given in every for pair in zip(given, reference, strict=True)]
    explainers = list[Callable[[str, Array], Array]]()
    if any(np.any(given[name] != right[name]) for given, right in pairs for name in names):
        graph = Graph(model, {name: array.shape for name, array in feeds[0].items()})
        choices = {name: node for name in names if (node := _choice_of(graph, name)) is not None}
        graph.graph.output.extend(ValueInfoProto(name=node.input[0]) for node in choices.values())
        fed = zip(feeds, reference, strict=True)
        explainers = [_find_ties(graph, feed, precision, choices, right) for feed, right in fed]
    worst: dict[tuple[str, str], Integers] = {}
    for (version, given), name in ((one, name) for one in every for name in names):
        wrong = [g[name] != r[name] for g, r in zip(given, reference, strict=True)]
        told = zip(wrong, explainers, given, strict=False)
        beyond = [w & ~explains(name, g[name]) for w, explains, g in told]
        here = Integers(
            output=name, version=version, count=sum(each.size for each in wrong),
            differ=sum(map(int, map(np.count_nonzero, wrong))),
            beyond=sum(map(int, map(np.count_nonzero, beyond))),
        )  # fmt: skip
        known = worst.setdefault((version, name), here)
        if (here.beyond, here.differ) > (known.beyond, known.differ):
            worst[version, name] = here
    return tuple(worst.values())


def _choice_of(graph: Graph, output: str) -> NodeProto | None:
    """Return the ArgMax or ArgMin that an output is of, through nodes that keep its numbers; else None."""
    nodes = {name: each.node for each in graph.nodes for name in each.node.output}
    node = nodes.get(output)
    while node is not None and node.op_type in {"Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape"}:
        node = nodes.get(node.input[0])
    return node if node is not None and node.op_type in {"ArgMax", "ArgMin"} else None


def _find_ties(
    graph: Graph, feed: Mapping[str, Array], precision: str, choices: Mapping[str, NodeProto],
    reference: Mapping[str, Array],
) -> Callable[[str, Array], Array]:  # fmt: skip
    """Return what says where the noise of a precision explains another integer than the reference's.

    ``choices``: outputs of an ArgMax or ArgMin, with that node. Of these noise explains it where the number
    that was chosen is within twice the noise of the best: each of both may be off by that. Of others it does
    where a way of computing the graph gives another integer too.
    """
    ways = [Way(kind=kind, grid=grid) for kind in ALLOWED[precision] for grid in (1.0, *GRIDS)]
    found, exact = [graph.run(feed, way) for way in ways], graph.run(feed, Way(kind="float64"))

    def explains(name: str, given: Array) -> Array:
        node = choices.get(name)
        if node is None:
            return np.asarray(np.logical_or.reduce([each[name] != reference[name] for each in found]))
        source = node.input[0]
        noise = max(float(np.max(np.abs(each[source] - exact[source]))) for each in found)
        values = exact[source] * (1 if node.op_type == "ArgMax" else -1)
        axis = next((item.i for item in node.attribute if item.name == "axis"), 0) % values.ndim
        places = given.reshape([1 if i == axis else size for i, size in enumerate(values.shape)])
        inside = (places >= 0) & (places < values.shape[axis])
        chosen = np.take_along_axis(values, np.where(inside, places, 0).astype(np.int64), axis)
        near = inside & (values.max(axis, keepdims=True) - chosen <= 2 * noise)
        return np.asarray(near.reshape(given.shape))

    return explains
