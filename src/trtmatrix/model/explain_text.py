"""Says in words what a search for the first wrong tensor did and found. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trtmatrix.common.short import short
from trtmatrix.model.explain_search import Ending, Found, Graph, Reading, Search, conclude, is_wrong
from trtmatrix.upgrade.report import WrongLayer

SHOWN = 6
"""Tensors of a region that are named."""

Nodes = Mapping[str, tuple[str, str]]
"""A tensor → the name and the operator of the node that it comes from."""


def step_text(number: int, reading: Reading) -> str:
    """Say what one marking showed: ``3: marked a, b: it still fails; a is right (0.9), b is wrong (53)``."""
    marked = f"marked {_names(reading.marked)}" if reading.marked else "nothing marked"
    if reading.survived is None:
        return f"{number}: {marked}: it could not be run: {reading.trouble}"
    if not reading.survived:
        return f"{number}: {marked}: it does not fail" + (" any more" if reading.marked else "")
    found = ", ".join(
        f"{t} is {_state(reading.floors[t], reading.shapes.get(t, ''))}" for t in reading.marked
    )
    return f"{number}: {marked}: it still fails" + (f"; {found}" if found else "")


def layer_text(layer: WrongLayer) -> str:
    """Say what was found at a version, for a terminal: the answer, then each step."""
    answer = layer.why_not or f"{layer.operator} {layer.node}, tensor {layer.tensor}: {layer.error}"
    lines = [f"first wrong layer at {layer.version}: {answer}", *(f"  {step}" for step in layer.steps)]
    return "\n".join(lines)


def describe(search: Search, nodes: Nodes, version: str, cut_short: str = "") -> WrongLayer:
    """Return what was found at a version; ``cut_short``: why the search ended before its time, or nothing."""
    found = conclude(search)
    steps = tuple(step_text(number, reading) for number, reading in enumerate(search.readings, 1))
    tensor, error, why_not = found.tensor, "", ""
    match found.ending:
        case Ending.LAYER:
            error = _layer(found, search)
        case Ending.FUSION if not cut_short:
            tensor, error = _fusion(found, search.graph, nodes)
        case Ending.GONE:
            tensor, why_not = "", _GONE
        case Ending.TROUBLE:
            tensor, why_not = "", f"it could not be run again: {search.readings[-1].trouble}"
        case Ending.FUSION | Ending.UNFINISHED:
            cut = cut_short or f"after {len(steps)} markings no other is tried"
            tensor, why_not = "", _unfinished(found, nodes, cut)
    node, operator = nodes.get(tensor, ("", ""))
    return WrongLayer(
        version=version, tensor=tensor, node=node, operator=operator, error=error, steps=steps,
        why_not=why_not,
    )  # fmt: skip


_GONE = (
    "run again with nothing marked it did not fail: the failure is not steady, "
    "or other samples are needed to see it (--rebuilds 5 shows how often it fails)"
)


def _layer(found: Found, search: Search) -> str:
    """Say how wrong the first wrong tensor is, and how right what it is computed from."""
    sources = [t for t in search.graph.inputs.get(found.tensor, ()) if t in search.floors]
    shown = ", ".join(f"{t} {_floors(search.floors[t])}" for t in sources[:SHOWN])
    shape = search.shapes.get(found.tensor, "")
    error = shape or f"{_floors(search.floors[found.tensor])} noise floors"
    error += (
        f"; what it is computed from is right: {shown}" if shown else "; it is computed from inputs alone"
    )
    if not found.together:
        error += " (not seen in one engine: marking them together changes what is fused)"
    return error


def _fusion(found: Found, graph: Graph, nodes: Nodes) -> tuple[str, str]:
    """Return the tensor whose marking cures the failure, and what that says."""
    group = min(found.cures, key=lambda group: (len(group), graph.place[group[0]]))
    others = [_names(other) for other in found.cures if other != group]
    also = f" (so does {' or '.join(others[:SHOWN])})" if others else ""
    operators = [_node(tensor, nodes) for tensor in found.region]
    shown = " → ".join(operators if len(operators) <= SHOWN else [*operators[:3], "…", *operators[-2:]])
    return group[0], (
        f"marking {_names(group)} as an output cures the failure{also}: it lies in the fusion around it, "
        f"in {len(found.region)} nodes up to {found.tensor}, whose output is wrong: {shown}"
    )


def _unfinished(found: Found, nodes: Nodes, cut: str) -> str:
    first, last = _node(found.region[0], nodes), _node(found.tensor, nodes)
    count = len(found.region)
    return f"{cut}: it lies in the {count} nodes from {first} to {last}, whose output is wrong"


def _node(tensor: str, nodes: Nodes) -> str:
    name, operator = nodes.get(tensor, ("", "?"))
    return f"{operator} {name or tensor}"


def _names(tensors: Sequence[str]) -> str:
    return ", ".join(tensors[:SHOWN]) + (f" and {len(tensors) - SHOWN} more" if len(tensors) > SHOWN else "")


def _state(floors: float, shape: str) -> str:
    if shape:
        return f"wrong ({shape})"
    return f"{'wrong' if is_wrong(floors) else 'right'} ({_floors(floors)})"


def _floors(floors: float) -> str:
    return "NaN or infinite" if not math.isfinite(floors) else short(floors)
