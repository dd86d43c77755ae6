"""Finds the first tensor that goes wrong by marking few at a time: which to mark next, what follows from it.

A search is told what marked tensors were off by, and halves what is left. What a graph computes up to some
place reaches the rest through few tensors, the place's cut: where all of a cut are right, so is all before
it, and where one is wrong, the fault lies before that one. Marking a tensor as an output changes what a
product fuses, so each reading says whether the failure was still there; where it was not, the reading says
nothing of the marked tensors, but that marking them cures it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from trtmatrix.judge.factors import FAIL_FACTOR

PLACES = 24
"""Cuts that are weighed against each other before one is marked."""

BALANCED = 2 / 3
"""A cut that leaves at most this share of what is left, whatever is read, is good: then few marks count."""

LEAST_FLOAT32 = 2.0**-22
LEAST: Mapping[str, float] = {"fp16": 2.0**-11, "fp16-flag": 2.0**-11, "bf16": 2.0**-8}
"""What an inner tensor may be off at least: a rounding of the precision; four of float32's, whose
elementary functions are no better on a GPU."""

PATIENCE = 6
"""So many markings in a row that cure the failure or cannot be run, and the fusion around them is named."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """Where a tensor comes from: the node's name (or its place, where it has none) and operator."""

    name: str
    operator: str


@dataclass(frozen=True, kw_only=True)
class Graph:
    """What can be measured of a graph.

    ``tensors``: those that can be marked and the graph's outputs, each after all it is computed from.
    ``inputs``: a tensor → those of them that it is computed from, directly or through what cannot be marked.
    """

    tensors: tuple[str, ...]
    inputs: Mapping[str, tuple[str, ...]]

    @cached_property
    def place(self) -> Mapping[str, int]:
        """The place of each tensor."""
        return {tensor: place for place, tensor in enumerate(self.tensors)}


@dataclass(frozen=True, kw_only=True)
class Errors:
    """How far tensors are off, in noise floors: infinitely where one has another shape than its reference.

    ``shapes``: both shapes of those, in words.
    """

    floors: Mapping[str, float]
    shapes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one marking showed.

    ``survived``: the failure was still there; None where it could not be run, and ``trouble`` says why.
    ``floors``, ``shapes``: the error of each marked tensor and of each output (:class:`Errors`).
    """

    marked: tuple[str, ...]
    survived: bool | None
    floors: Mapping[str, float]
    trouble: str = ""
    shapes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is known so far: the earliest tensor known to be wrong, and those known to be right.

    ``blocked``: groups under whose marking nothing can be learnt, alone or within a larger one.
    ``fruitless``: markings since the last that told something.
    """

    graph: Graph
    outputs: tuple[str, ...]
    wrong: str
    floors: Mapping[str, float]
    right: frozenset[str] = frozenset()
    blocked: tuple[frozenset[str], ...] = ()
    readings: tuple[Reading, ...] = ()
    fruitless: int = 0
    shapes: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def left(self) -> tuple[str, ...]:
        """The tensors among which the first wrong one is; the last is ``wrong``."""
        return left_of(self.graph, self.wrong, self.right)


class Ending(str, Enum):
    """How a search ended."""

    LAYER = "layer"
    FUSION = "fusion"
    GONE = "gone"
    TROUBLE = "trouble"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search says.

    LAYER: ``tensor`` is wrong and what it is computed from is right; ``together``: seen so in one engine.
    FUSION: it lies in ``region``, and marking any of ``cures`` there cures it. GONE: unmarked, it does not
    fail any more. TROUBLE: it could not be run. UNFINISHED: it lies in ``region``.
    """

    ending: Ending
    tensor: str
    region: tuple[str, ...]
    cures: tuple[tuple[str, ...], ...] = ()
    together: bool = False


def is_wrong(floors: float) -> bool:
    """Whether an error is beyond what rounding does; NaN is."""
    return not floors < FAIL_FACTOR


def in_floors(error: float, floor: float, precision: str) -> float:
    """Return a relative L2 error as a multiple of its noise floor, which is never less than one rounding."""
    return error / max(floor, LEAST.get(precision, LEAST_FLOAT32))


def step_budget(tensors: int) -> int:
    """Return how many markings a search over so many tensors may take."""
    return 2 * max(1, tensors).bit_length() + PATIENCE


def begin_search(graph: Graph, errors: Errors) -> Search | None:
    """Start from the outputs' errors; None where no output is wrong."""
    floors = {output: value for output, value in errors.floors.items() if output in graph.place}
    outputs = tuple(sorted(floors, key=graph.place.__getitem__))
    wrong = next((output for output in outputs if is_wrong(floors[output])), None)
    if wrong is None:
        return None
    right = frozenset(output for output in outputs if not is_wrong(floors[output]))
    return Search(
        graph=graph, outputs=outputs, wrong=wrong, right=right, floors=floors, shapes=dict(errors.shapes)
    )


def left_of(graph: Graph, wrong: str, right: Iterable[str]) -> tuple[str, ...]:
    """Return ``wrong`` and what it is computed from, up to tensors that are right; in the graph's order."""
    seen, todo, known = {wrong}, [wrong], set(right)
    while todo:
        fresh = [tensor for tensor in graph.inputs.get(todo.pop(), ()) if tensor not in known]
        fresh = [tensor for tensor in fresh if tensor not in seen]
        seen.update(fresh)
        todo += fresh
    return tuple(sorted(seen, key=graph.place.__getitem__))


def next_group(search: Search, budget: int) -> tuple[str, ...] | None:
    """Return the tensors to mark next (none: run it as it is), or None where the search is over."""
    if len(search.readings) >= budget or _is_hopeless(search):
        return None
    if search.blocked and not any(r.survived or not r.marked for r in search.readings):
        return ()
    if search.fruitless >= PATIENCE:
        return None
    if len(search.left) > 1:
        return _half(search) or _best_cut(search)
    group = _with_inputs(search)
    return None if _is_seen_together(search) or _contains_blocked(group, search.blocked) else group


def learn(search: Search, reading: Reading) -> Search:
    """Return what is known after a reading."""
    after = replace(search, readings=(*search.readings, reading))
    if not reading.survived:
        return _blocked(after, reading.marked) if reading.marked else after
    if not reading.marked:
        return after
    wrong = [t for t in reading.marked if is_wrong(reading.floors[t])]
    right = search.right.union(reading.marked).difference(wrong)
    if search.wrong in right:  # it was wrong in another engine
        return _blocked(after, reading.marked)
    first = min([*wrong, search.wrong], key=search.graph.place.__getitem__)
    floors = {**search.floors, **{t: reading.floors[t] for t in reading.marked}}
    shapes = {**search.shapes, **reading.shapes}
    return replace(after, wrong=first, right=right, floors=floors, shapes=shapes, fruitless=0)


def conclude(search: Search) -> Found:
    """Return what the readings so far say."""
    cured = [set(reading.marked) for reading in search.readings if reading.survived is False]
    cures = tuple(
        tuple(sorted(group, key=search.graph.place.__getitem__))
        for group in search.blocked
        if group in cured and group & set(search.left)
    )
    if _is_hopeless(search):
        ending = Ending.GONE if search.readings[-1].survived is False else Ending.TROUBLE
    elif len(search.left) == 1:
        ending = Ending.LAYER
    else:
        ending = Ending.FUSION if cures else Ending.UNFINISHED
    return Found(
        ending=ending, tensor=search.wrong, region=search.left, cures=cures,
        together=ending is Ending.LAYER and _is_seen_together(search),
    )  # fmt: skip


def _blocked(search: Search, group: Iterable[str]) -> Search:
    """Return a search that marks this group no more; of groups within each other the smaller one is kept."""
    new = frozenset(group)
    kept = tuple(other for other in search.blocked if not new <= other)
    return replace(search, blocked=(*kept, new), fruitless=search.fruitless + 1)


def _is_hopeless(search: Search) -> bool:
    """Whether it does not fail, or cannot be run, when nothing is marked."""
    return any(not reading.marked and not reading.survived for reading in search.readings)


def _contains_blocked(group: Iterable[str], blocked: Iterable[frozenset[str]]) -> bool:
    return any(other <= frozenset(group) for other in blocked)


def _with_inputs(search: Search) -> tuple[str, ...]:
    """Return what to mark to see in one engine that the wrong tensor's inputs are right."""
    both = (*search.graph.inputs.get(search.wrong, ()), search.wrong)
    return tuple(dict.fromkeys(tensor for tensor in both if tensor not in search.outputs))


def _is_seen_together(search: Search) -> bool:
    """Whether one engine showed the tensor wrong and all of its inputs right."""
    wanted = {**dict.fromkeys(search.graph.inputs.get(search.wrong, ()), False), search.wrong: True}
    return any(
        reading.survived
        and all(t in reading.floors and is_wrong(reading.floors[t]) is bad for t, bad in wanted.items())
        for reading in search.readings
    )


def _half(search: Search) -> tuple[str, ...]:
    """Return a half of the group that was marked in vain last, to see which tensor of it does that."""
    newest = search.blocked[-1] if search.blocked else frozenset()
    if len(newest) < 2 or not newest <= set(search.left):
        return ()
    members = sorted(newest, key=search.graph.place.__getitem__)
    read = [set(reading.marked) for reading in search.readings]
    for half in (members[: len(members) // 2], members[len(members) // 2 :]):
        if set(half) not in read and not _contains_blocked(half, search.blocked):
            return tuple(half)
    return ()


def _best_cut(search: Search) -> tuple[str, ...] | None:
    """Return the tensors of the cut that is worth most; None where there is none that could be marked.

    Of cuts that leave little whatever is read, the one with the fewest marks and the farthest from what was
    marked in vain; else the one that leaves least.
    """
    left = search.left
    groups = {_shrink(cut, search.blocked): place for place, cut in _cuts(search.graph, left)}
    groups.pop((), None)
    vain = [left.index(t) for group in search.blocked for t in group if t in left]

    def cost(group: tuple[str, ...]) -> tuple[float, ...]:
        worst, place = _worst(search, group), groups[group]
        near = -min((abs(place - other) for other in vain), default=0)
        if worst <= max(1.0, BALANCED * len(left)):
            return (0, len(group), near, worst)
        return (1, worst, len(group), near)

    return min(groups, key=cost, default=None)


def _cuts(graph: Graph, left: Sequence[str]) -> Iterable[tuple[int, tuple[str, ...]]]:
    """Yield places in what is left, each with its cut: the tensors before it that something behind it needs.

    Places lie closer together around the middle.
    """
    places = {tensor: place for place, tensor in enumerate(left)}
    last = dict.fromkeys(left, 0)
    for tensor in left:
        for source in graph.inputs.get(tensor, ()):
            if source in places:
                last[source] = max(last[source], places[tensor])
    for place in _spread(len(left)):
        yield place, tuple(tensor for tensor in left[:place] if last[tensor] >= place)


def _spread(count: int) -> list[int]:
    """Return at most about PLACES places from 1 to ``count`` - 1."""
    if count - 1 <= PLACES:
        return list(range(1, count))
    third = count // 3
    middle = range(third, 2 * third + 1, max(1, third * 3 // (2 * PLACES)))
    outer = range(1, count, max(1, count * 3 // PLACES))
    return sorted({*middle, *outer, count // 2})


def _shrink(cut: tuple[str, ...], blocked: Sequence[frozenset[str]]) -> tuple[str, ...]:
    """Return a part of a cut that contains no blocked group: of each it loses the later half."""
    group = cut
    for other in blocked:
        if other <= set(group):
            members = [tensor for tensor in group if tensor in other]
            dropped = set(members[len(members) // 2 :])
            group = tuple(tensor for tensor in group if tensor not in dropped)
    return group


def _worst(search: Search, group: Sequence[str]) -> int:
    """Return how many tensors are left after marking a group, whatever is read."""
    graph, right = search.graph, search.right
    counts = [len(left_of(graph, search.wrong, right.union(group)))]
    counts += [len(left_of(graph, tensor, right.union(group[:n]))) for n, tensor in enumerate(group)]
    return max(counts)
