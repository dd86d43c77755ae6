"""Finds the first tensor that goes wrong by marking one at a time: which is next, and what follows. Pure.

A marked tensor that is wrong has the fault before it; one that is right has nothing wrong before it that does
not also reach the failing output by another way. Marking a tensor as an output changes what a product fuses:
where the failure is gone then, the run says nothing of the tensor but that marking it cures the failure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from trtmatrix.common.text import counted, short
from trtmatrix.judge.factors import FAIL_FACTOR
from trtmatrix.model.outcomes import WrongLayer

Errors = Mapping[str, float | str]
"""How far tensors are off, in noise floors; both shapes in words where one has not that of its reference."""

Measure = Callable[[str], Errors | str]
"""Runs the model with a tensor marked, or none: the errors of its outputs and of that one, or the trouble."""

CANDIDATES = 100
"""Tensors that are weighed against each other before one is marked."""

BALANCED = 2 / 3
"""A tensor that leaves at most this share of what is left, whatever is measured, is good to mark."""

PATIENCE = 6
"""So many markings in a row that cure the failure or cannot be run, and the fusion around them is named."""

SHOWN = 6
"""Tensors of a region that are named."""

INTERRUPTED = "it was interrupted"

NOT_WRONG = (
    f"no output is {FAIL_FACTOR:g} noise floors off or more: what fails is a limit of your own, "
    "which says nothing about inner tensors"
)
NO_FLOORS = "no noise floor is known of its outputs: nothing tells a wrong inner tensor from a rounded one"
GONE = (
    "run again with nothing marked it did not fail: the failure is not steady, "
    "or other samples are needed to see it (--rebuilds 5 shows how often it fails)"
)


@dataclass(frozen=True, kw_only=True)
class Graph:
    """What can be measured of a graph: tensors that can be marked, and its outputs.

    ``inputs``: each of them, after all it is computed from → those of them that it is computed from, directly
    or through what cannot be marked. ``nodes``: the name (or place) and operator of the node that each is
    from.
    """

    inputs: Mapping[str, tuple[str, ...]]
    nodes: Mapping[str, tuple[str, str]]


def is_wrong(error: float | str) -> bool:
    """Whether an error is beyond what rounding does; NaN and another shape are."""
    return isinstance(error, str) or not error < FAIL_FACTOR


def search_for_layer(
    graph: Graph, errors: Errors, version: str, measure: Measure, tell: Callable[[str], None]
) -> WrongLayer:
    """Return the first layer that goes wrong at a version, or as much as could be found.

    ``errors``: those of the model's outputs there. The failure is that of the first output that is wrong: it
    survives a marking where that output is still wrong. An interrupt ends the search, and what is known so
    far is returned.
    """
    search, cut_short = Search(graph, errors), ""
    if not search.failing:
        return WrongLayer(version=version, why_not=NOT_WRONG if errors else NO_FLOORS)
    try:
        while (tensor := search.next_mark()) is not None:
            search.learn(tensor, measure(tensor))
            tell(f"{version}: marking {search.steps[-1]}")
    except KeyboardInterrupt:
        cut_short = f"{INTERRUPTED} after {counted(len(search.steps), 'marking')}"
    return search.describe(version, cut_short)


class Search:
    """What is known so far: ``wrong``, the earliest tensor known to be wrong, and those known to be right.

    ``failing``: the first output that is wrong, by which the failure is known again; empty where none is.
    ``blocked``: tensors under whose marking nothing can be learnt; those of them that cure are ``cures``.
    ``steps``: what each run showed, in words. ``hopeless``: why no run shows anything, or nothing.
    """

    def __init__(self, graph: Graph, outputs: Errors) -> None:
        """Start from the errors of the graph's outputs."""
        self.graph, self.errors = graph, dict(outputs)
        self.budget = 3 * max(1, len(graph.inputs)).bit_length() + PATIENCE  # markings that it may take
        self.place = {tensor: place for place, tensor in enumerate(graph.inputs)}
        known = sorted(set(outputs) & set(self.place), key=self.place.__getitem__)
        self.failing = self.wrong = next((tensor for tensor in known if is_wrong(outputs[tensor])), "")
        self.right = {tensor for tensor in known if not is_wrong(outputs[tensor])}
        self.blocked, self.cures, self.steps = list[str](), list[str](), list[str]()
        self.hopeless, self._survived, self._fruitless = "", False, 0

    @property
    def left(self) -> list[str]:
        """The tensors among which the first wrong one is, in the graph's order; the last is ``wrong``."""
        return sorted(self._before(self.wrong, self.right), key=self.place.__getitem__)

    def next_mark(self) -> str | None:
        """Return the tensor to mark next (empty: run it as it is), or None where the search is over."""
        if len(self.steps) >= self.budget or self.hopeless:
            return None
        if self.blocked and not self._survived:
            return ""
        return None if self._fruitless >= PATIENCE else self._best()

    def learn(self, tensor: str, found: Errors | str) -> None:
        """Take in what a run with a tensor marked, or none, showed."""
        if not isinstance(found, str):
            lacks = [name for name in (self.failing, tensor) if name and name not in found]
            found = f"no noise floor is known of {lacks[0]}" if lacks else found
        fails = False
        if isinstance(found, str):
            told, why = f"could not be run: {found}", f"it could not be run again: {found}"
        elif not is_wrong(found[self.failing]):
            told, why = "does not fail" + " any more" * bool(tensor), GONE
            self.cures += [tensor] if tensor else []
        else:
            fails, told, why = True, "still fails", ""
        if not tensor:
            self.hopeless = why
        elif isinstance(found, str) or not fails:
            self.blocked.append(tensor)
        else:
            self.errors[tensor] = found[tensor]
            wrong = is_wrong(found[tensor])
            self.wrong = tensor if wrong else self.wrong
            self.right |= set() if wrong else {tensor}
            told += f"; {tensor} is {'wrong' if wrong else 'right'} ({_words(found[tensor])})"
        self._survived |= fails
        self._fruitless = 0 if fails else self._fruitless + 1
        self.steps.append(
            f"{len(self.steps) + 1}: {f'marked {tensor}' if tensor else 'nothing marked'}: it {told}"
        )

    def describe(self, version: str, cut_short: str = "") -> WrongLayer:
        """Return what was found; ``cut_short``: why the search ended before its time, or nothing."""
        left, tensor, error, why_not = self.left, "", "", self.hopeless
        shown = [f"{operator} {name}" for name, operator in map(self.graph.nodes.__getitem__, left)]
        cures = [tensor for tensor in self.cures if tensor in left]
        if self.hopeless:
            pass
        elif len(left) == 1:
            tensor = self.wrong
            sources = [t for t in self.graph.inputs.get(tensor, ()) if t in self.errors]
            right = ", ".join(f"{t} {_words(self.errors[t])}" for t in sources[:SHOWN])
            unit = "" if isinstance(self.errors[tensor], str) else " noise floors"
            before = f"is right: {right}" if right else "are inputs alone"
            error = f"{_words(self.errors[tensor])}{unit}; what it is computed from {before}"
        elif cures and not cut_short:
            also = f" (so does {' or '.join(cures[1 : SHOWN + 1])})" if cures[1:] else ""
            path = " → ".join(shown if len(shown) <= SHOWN else [*shown[:3], "…", *shown[-2:]])
            tensor = cures[0]
            error = (
                f"marking {tensor} as an output cures the failure{also}: it lies in the fusion around it, "
                f"in {len(left)} nodes up to {self.wrong}, whose output is wrong: {path}"
            )
        else:
            why_not = cut_short or f"after {counted(len(self.steps), 'marking')} no other is tried"
            region = f"the {len(left)} nodes from {shown[0]} to {shown[-1]}, whose output is wrong"
            why_not += f": it lies in {region}"
        node, operator = self.graph.nodes.get(tensor, ("", ""))
        return WrongLayer(
            version=version, tensor=tensor, node=node, operator=operator, error=error,
            steps=tuple(self.steps), why_not=why_not,
        )  # fmt: skip

    def _best(self) -> str | None:
        """Return the tensor that is worth most; None where there is none that could be marked.

        Of those that leave little whatever is measured, that which is farthest from what was marked in vain;
        else the one that leaves least.
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


def _words(error: float | str) -> str:
    if isinstance(error, str):
        return error
    return short(error) if math.isfinite(error) else "NaN or infinite"
