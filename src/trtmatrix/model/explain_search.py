"""Finds the first tensor that goes wrong by marking one at a time: which is next, and what follows. Pure.

A marked tensor that is wrong has the fault before it; one that is right has nothing wrong before it that does
not also reach the failing output by another way. Marking a tensor as an output changes what a product fuses:
where the failure is gone then, the reading says nothing of the tensor but that marking it cures the failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from trtmatrix.judge.factors import FAIL_FACTOR

CANDIDATES = 100
"""Tensors that are weighed against each other before one is marked."""

BALANCED = 2 / 3
"""A tensor that leaves at most this share of what is left, whatever is read, is good to mark."""

PATIENCE = 6
"""So many markings in a row that cure the failure or cannot be run, and the fusion around them is named."""

LEAST_FLOAT32 = 2.0**-22
LEAST: Mapping[str, float] = {"fp16": 2.0**-11, "fp16-flag": 2.0**-11, "bf16": 2.0**-8}
"""What an inner tensor may be off at least: a rounding of the precision; four of float32's, whose
elementary functions are no better on a GPU."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """Where a tensor comes from: the node's name (or its place, where it has none) and operator."""

    name: str
    operator: str


@dataclass(frozen=True, kw_only=True)
class Graph:
    """What can be measured of a graph: tensors that can be marked, and its outputs.

    ``inputs``: each of them, after all it is computed from → those of them that it is computed from, directly
    or through what cannot be marked. ``nodes``: where each is from. ``inner``: those that can be marked.
    """

    inputs: Mapping[str, tuple[str, ...]]
    nodes: Mapping[str, Node]
    inner: frozenset[str]

    @cached_property
    def place(self) -> Mapping[str, int]:
        """The place of each tensor."""
        return {tensor: place for place, tensor in enumerate(self.inputs)}


@dataclass(frozen=True, kw_only=True)
class Errors:
    """How far tensors are off, in noise floors: infinitely where one has another shape than its reference.

    ``shapes``: both shapes of those, in words.
    """

    floors: Mapping[str, float]
    shapes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one run showed: ``marked`` is empty where nothing was.

    ``survived``: the failure was still there; None where it could not be run, and ``trouble`` says why.
    ``errors``: of the marked tensor and of the outputs.
    """

    marked: str
    survived: bool | None
    errors: Errors
    trouble: str = ""


def is_wrong(floors: float) -> bool:
    """Whether an error is beyond what rounding does; NaN is."""
    return not floors < FAIL_FACTOR


def in_floors(error: float, floor: float, precision: str) -> float:
    """Return a relative L2 error as a multiple of its noise floor, which is never less than one rounding."""
    return error / max(floor, LEAST.get(precision, LEAST_FLOAT32))


def step_budget(tensors: int) -> int:
    """Return how many markings a search over so many tensors may take."""
    return 3 * max(1, tensors).bit_length() + PATIENCE


class Search:
    """What is known so far: ``wrong``, the earliest tensor known to be wrong, and those known to be right.

    ``failing``: the first output that is wrong, by which the failure is known again; empty where none is.
    ``blocked``: tensors under whose marking nothing can be learnt; those of them that cure are ``cures``.
    """

    def __init__(self, graph: Graph, outputs: Errors) -> None:
        """Start from the errors of the graph's outputs."""
        self.graph, self.budget = graph, step_budget(len(graph.inner))
        self.floors, self.shapes = dict(outputs.floors), dict(outputs.shapes)
        known = sorted(set(self.floors) & set(graph.place), key=graph.place.__getitem__)
        self.failing = self.wrong = next((tensor for tensor in known if is_wrong(self.floors[tensor])), "")
        self.right = {tensor for tensor in known if not is_wrong(self.floors[tensor])}
        self.blocked = list[str]()
        self.cures = list[str]()
        self.readings = list[Reading]()
        self._fruitless = 0

    @property
    def left(self) -> list[str]:
        """The tensors among which the first wrong one is, in the graph's order; the last is ``wrong``."""
        return sorted(self._before(self.wrong, self.right), key=self.graph.place.__getitem__)

    @property
    def is_hopeless(self) -> bool:
        """Whether it does not fail, or cannot be run, when nothing is marked."""
        return any(not reading.marked and not reading.survived for reading in self.readings)

    def next_mark(self) -> str | None:
        """Return the tensor to mark next (empty: run it as it is), or None where the search is over."""
        if len(self.readings) >= self.budget or self.is_hopeless:
            return None
        if self.blocked and not any(r.survived or not r.marked for r in self.readings):
            return ""
        if self._fruitless >= PATIENCE:
            return None
        return self._best()

    def learn(self, reading: Reading) -> None:
        """Take in what a run showed."""
        self.readings.append(reading)
        tensor = reading.marked
        if not tensor:
            return
        if not reading.survived:
            self.blocked.append(tensor)
            self.cures += [tensor] if reading.survived is False else []
            self._fruitless += 1
            return
        self._fruitless = 0
        self.floors[tensor] = reading.errors.floors[tensor]
        self.shapes.update(reading.errors.shapes)
        if is_wrong(self.floors[tensor]):
            self.wrong = tensor
        else:
            self.right.add(tensor)

    def _best(self) -> str | None:
        """Return the tensor that is worth most; None where there is none that could be marked.

        Of those that leave little whatever is read, that which is farthest from what was marked in vain; else
        the one that leaves least.
        """
        left = self.left
        vain = [left.index(tensor) for tensor in self.blocked if tensor in left]
        free = [place for place, tensor in enumerate(left[:-1]) if tensor not in self.blocked]

        def cost(place: int) -> tuple[float, ...]:
            tensor = left[place]
            where_right = len(self._before(self.wrong, {*self.right, tensor}))
            worst = max(where_right, len(self._before(tensor, self.right)))
            near = -min((abs(place - other) for other in vain), default=0)
            return (0, near, worst) if worst <= max(1, BALANCED * len(left)) else (1, worst, near)

        best = min(free[:: 1 + len(free) // CANDIDATES], key=cost, default=None)
        return None if best is None else left[best]

    def _before(self, wrong: str, right: Iterable[str]) -> set[str]:
        """Return a tensor and what it is computed from, up to tensors that are right."""
        seen, todo, known = {wrong}, [wrong], set(right)
        while todo:
            fresh = set(self.graph.inputs.get(todo.pop(), ())) - known - seen
            seen |= fresh
            todo += fresh
        return seen
