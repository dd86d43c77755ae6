"""Says in words what a search for the first wrong tensor did and found. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trtmatrix.common.words import short
from trtmatrix.model.explain_search import Ending, Found, Graph, Node, Reading, Search, conclude, is_wrong
from trtmatrix.model.outcomes import WrongLayer

SHOWN = 6
"""Tensors of a region that are named."""

GONE = (
    "run again with nothing marked it did not fail: the failure is not steady, "
    "or other samples are needed to see it (--rebuilds 5 shows how often it fails)"
)
NOBODY = Node(name="", operator="")


def step_text(number: int, reading: Reading) -> str:
    """Say what one marking showed: ``3: marked a, b: it still fails; a is right (0.9), b is wrong (53)``."""
    marked = f"marked {_names(reading.marked)}" if reading.marked else "nothing marked"
    if reading.survived is None:
        return f"{number}: {marked}: it could not be run: {reading.trouble}"
    if not reading.survived:
        return f"{number}: {marked}: it does not fail" + (" any more" if reading.marked else "")
    found = []
    for tensor in reading.marked:
        floors, shape = reading.floors[tensor], reading.shapes.get(tensor, "")
        word = "wrong" if shape or is_wrong(floors) else "right"
        found.append(f"{tensor} is {word} ({shape or _floors(floors)})")
    return f"{number}: {marked}: it still fails" + (f"; {', '.join(found)}" if found else "")


def describe(search: Search, nodes: Mapping[str, Node], version: str, cut_short: str = "") -> WrongLayer:
    """Return what was found at a version; ``cut_short``: why the search ended before its time, or nothing."""
    found = conclude(search)
    steps = tuple(step_text(number, reading) for number, reading in enumerate(search.readings, 1))
    tensor, error, why_not = "", "", ""
    match found.ending:
        case Ending.LAYER:
            tensor, error = found.tensor, _layer(found, search)
        case Ending.FUSION if not cut_short:
            tensor, error = _fusion(found, search.graph, nodes)
        case Ending.GONE:
            why_not = GONE
        case Ending.TROUBLE:
            why_not = f"it could not be run again: {search.readings[-1].trouble}"
        case Ending.FUSION | Ending.UNFINISHED:
            cut = cut_short or f"after {len(steps)} markings no other is tried"
            first, last = _node(found.region[0], nodes), _node(found.tensor, nodes)
            where = f"in the {len(found.region)} nodes from {first} to {last}"
            why_not = f"{cut}: it lies {where}, whose output is wrong"
    node = nodes.get(tensor, NOBODY)
    return WrongLayer(
        version=version, tensor=tensor, node=node.name, operator=node.operator, error=error, steps=steps,
        why_not=why_not,
    )  # fmt: skip


def _layer(found: Found, search: Search) -> str:
    """Say how wrong the first wrong tensor is, and how right what it is computed from."""
    sources = [t for t in search.graph.inputs.get(found.tensor, ()) if t in search.floors]
    shown = ", ".join(f"{t} {_floors(search.floors[t])}" for t in sources[:SHOWN])
    shape = search.shapes.get(found.tensor, "")
    error = shape or f"{_floors(search.floors[found.tensor])} noise floors"
    right = f"what it is computed from is right: {shown}" if shown else "it is computed from inputs alone"
    doubt = " (not seen in one engine: marking them together changes what is fused)"
    return f"{error}; {right}" + ("" if found.together else doubt)


def _fusion(found: Found, graph: Graph, nodes: Mapping[str, Node]) -> tuple[str, str]:
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


def _node(tensor: str, nodes: Mapping[str, Node]) -> str:
    node = nodes.get(tensor, Node(name="", operator="?"))
    return f"{node.operator} {node.name or tensor}"


def _names(tensors: Sequence[str]) -> str:
    return ", ".join(tensors[:SHOWN]) + (f" and {len(tensors) - SHOWN} more" if len(tensors) > SHOWN else "")


def _floors(floors: float) -> str:
    return "NaN or infinite" if not math.isfinite(floors) else short(floors)
