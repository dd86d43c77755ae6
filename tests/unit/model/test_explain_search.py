"""The search for the first wrong tensor, over made-up graphs: it ends in time and names the right one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.model.explain import describe
from trtmatrix.model.explain_search import Errors, Graph, Node, Reading, Search, step_budget
from trtmatrix.model.outcomes import WrongLayer

RIGHT, WRONG = 1.0, 100.0


@dataclass(frozen=True)
class World:
    """A graph whose wrong tensors are known, and those whose marking cures it or cannot be run."""

    graph: Graph
    output: str
    wrong: frozenset[str]
    cures: frozenset[str] = frozenset()
    fails: frozenset[str] = frozenset()
    fails_unmarked: bool = True

    def read(self, marked: str) -> Reading:
        if marked in self.fails:
            return Reading(marked=marked, survived=None, errors=Errors(floors={}), trouble="cannot be built")
        cured = marked in self.cures or not (marked or self.fails_unmarked)
        floors = {t: WRONG if t in self.wrong and not cured else RIGHT for t in filter(None, (marked, "y"))}
        return Reading(marked=marked, survived=not cured, errors=Errors(floors=floors))

    @property
    def first(self) -> set[str]:
        """Wrong tensors whose inputs are all right."""
        return {t for t in self.wrong if not self.wrong & set(self.graph.inputs[t])}


def play(world: World, budget: int | None = None) -> Search:
    most = step_budget(len(world.graph.tensors)) if budget is None else budget
    search = Search(world.graph, Errors(floors={world.output: WRONG}), most)
    while (tensor := search.next_mark()) is not None:
        assert len(search.readings) < most
        assert tensor not in [reading.marked for reading in search.readings]
        assert tensor != world.output
        search.learn(world.read(tensor))
    return search


def end_of(search: Search) -> WrongLayer:
    return describe(search, {t: Node(name="", operator="Op") for t in search.graph.tensors}, "10.8.0")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph whose last tensor is computed from all others; some are nothing but a chain."""
    count = draw(st.integers(1, 40))
    back = draw(st.sampled_from([1, 3, 40]))
    inputs: dict[str, tuple[str, ...]] = {}
    for n in range(count):
        near = [f"t{m}" for m in range(max(0, n - back), n)]
        inputs[f"t{n}"] = tuple(
            draw(st.lists(st.sampled_from(near), unique=True, max_size=3)) if near else ()
        )
    used = {source for sources in inputs.values() for source in sources}
    ends = [tensor for tensor in inputs if tensor not in used]
    inputs["y"] = tuple(ends)
    return Graph(tensors=tuple(inputs), inputs=inputs)


def spread_wrong(draw: st.DrawFn, graph: Graph, defects: set[str]) -> frozenset[str]:
    """The tensors that defects make wrong: an error may be lost on the way, but it reaches the output."""
    inputs = graph.inputs
    wrong = set(defects)
    loses = set(draw(st.lists(st.sampled_from(graph.tensors), max_size=5)))
    for tensor in graph.tensors:
        if wrong & set(inputs[tensor]) and tensor not in loses:
            wrong.add(tensor)
    return frozenset(wrong)


@st.composite
def worlds(draw: st.DrawFn, curing: bool = False) -> World:
    graph = draw(graphs())
    defects = {draw(st.sampled_from(graph.tensors)) for _ in range(1 if curing else draw(st.integers(1, 2)))}
    wrong = spread_wrong(draw, graph, defects)
    if "y" not in wrong:
        wrong = wrong | {"y"} if wrong & set(graph.inputs["y"]) else frozenset({"y"})
    inner = [tensor for tensor in graph.tensors if tensor != "y"]
    if not curing or not inner:
        return World(graph, "y", wrong)
    some = st.frozensets(st.sampled_from(inner), max_size=8)
    return World(graph, "y", wrong, draw(some), draw(some))


@given(worlds())
def test_the_first_wrong_tensor_is_named_if_the_budget_lasts(world: World) -> None:
    search = play(world, len(world.graph.tensors))
    assert search.left == [search.wrong]
    assert search.wrong in world.first
    assert end_of(search).tensor == search.wrong


@given(worlds(curing=True))
def test_where_marking_cures_what_is_named_holds_the_fault(world: World) -> None:
    search = play(world)
    assert world.first & set(search.left)
    assert not search.is_hopeless
    end = end_of(search)
    if len(search.left) == 1:
        assert end.tensor in world.first
    elif end.tensor:
        assert end.tensor in world.cures & set(search.left)
        assert "cures the failure" in end.error
    else:
        assert f"it lies in the {len(search.left)} nodes" in end.why_not


def chain(count: int, wrong_from: int, *cures: str) -> World:
    names = [f"t{n}" for n in range(count)]
    graph = Graph(
        tensors=(*names, "y"),
        inputs={"t0": (), **dict(zip([*names[1:], "y"], [(n,) for n in names], strict=True))},
    )
    return World(graph, "y", frozenset({*names[wrong_from:], "y"}), frozenset(cures))


@pytest.mark.parametrize("count", [1, 2, 10, 100, 1000])
def test_a_chain_takes_about_as_many_steps_as_it_can_be_halved(count: int) -> None:
    for at in sorted({0, count // 3, count // 2, count - 1}):
        search = play(chain(count, at))
        assert end_of(search).tensor == f"t{at}"
        assert len(search.readings) <= math.ceil(math.log2(count + 1)) + 2


def test_what_no_longer_fails_is_told_after_two_steps() -> None:
    world = chain(50, 20)
    search = play(World(world.graph, "y", world.wrong, frozenset(world.graph.tensors), fails_unmarked=False))
    assert len(search.readings) == 2
    assert "the failure is not steady" in end_of(search).why_not
