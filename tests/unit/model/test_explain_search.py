"""The search for the first wrong tensor, over made-up graphs: it ends in time and names the right one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.model.explain_search import (
    Ending,
    Errors,
    Found,
    Graph,
    Reading,
    Search,
    begin_search,
    conclude,
    learn,
    next_group,
    step_budget,
)

RIGHT, WRONG = 1.0, 100.0


@dataclass(frozen=True)
class World:
    """A graph whose wrong tensors are known, and the groups whose marking cures it or cannot be run."""

    graph: Graph
    output: str
    wrong: frozenset[str]
    cures: tuple[frozenset[str], ...] = ()
    fails: tuple[frozenset[str], ...] = ()
    fails_unmarked: bool = True

    def read(self, marked: tuple[str, ...]) -> Reading:
        if any(group <= set(marked) for group in self.fails):
            return Reading(marked=marked, survived=None, floors={}, trouble="cannot be built")
        cured = any(group <= set(marked) for group in self.cures) or not (marked or self.fails_unmarked)
        floors = {t: WRONG if t in self.wrong and not cured else RIGHT for t in (*marked, self.output)}
        return Reading(marked=marked, survived=not cured, floors=floors)

    @property
    def first(self) -> set[str]:
        """Wrong tensors whose inputs are all right."""
        return {t for t in self.wrong if not self.wrong & set(self.graph.inputs[t])}


def play(world: World, budget: int | None = None) -> tuple[Found, Search]:
    most = step_budget(len(world.graph.tensors)) if budget is None else budget
    search = begin_search(world.graph, Errors(floors={world.output: WRONG}))
    assert search is not None
    while (group := next_group(search, most)) is not None:
        assert len(search.readings) < most
        assert group not in [reading.marked for reading in search.readings]
        assert world.output not in group
        search = learn(search, world.read(group))
    return conclude(search), search


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
    group = st.frozensets(st.sampled_from(inner), min_size=1, max_size=3)
    groups = st.lists(group, max_size=8)
    return World(graph, "y", wrong, tuple(draw(groups)), tuple(draw(groups)))


@given(worlds())
def test_the_first_wrong_tensor_is_named_within_the_budget(world: World) -> None:
    found, search = play(world)
    assert found.ending is Ending.LAYER
    assert found.tensor in world.first
    assert len(search.readings) <= step_budget(len(world.graph.tensors))


@given(worlds())
def test_it_is_seen_wrong_in_one_engine_with_its_right_inputs(world: World) -> None:
    found, search = play(world)
    wanted = {*world.graph.inputs[found.tensor], found.tensor} - {"y"}
    assert found.together
    assert not wanted or any(wanted <= set(reading.marked) for reading in search.readings)


@given(worlds(curing=True))
def test_where_marking_cures_what_is_named_holds_the_fault(world: World) -> None:
    found, search = play(world)
    assert len(search.readings) <= step_budget(len(world.graph.tensors))
    assert world.first & set(found.region)
    match found.ending:
        case Ending.LAYER:
            assert found.tensor in world.first
        case Ending.FUSION:
            assert all(any(cure <= set(group) for cure in world.cures) for group in found.cures)
            assert all(set(group) & set(found.region) for group in found.cures)
        case Ending.TROUBLE | Ending.GONE:
            pytest.fail("it fails unmarked, and can be run")
        case Ending.UNFINISHED:
            assert len(search.readings) == step_budget(len(world.graph.tensors)) or world.fails


@given(worlds(curing=True), st.integers(0, 5))
def test_cut_short_it_says_where_the_fault_is_left(world: World, steps: int) -> None:
    found, search = play(world, steps)
    assert len(search.readings) <= steps
    assert world.first & set(found.region)


def chain(count: int, wrong_from: int, *cures: str) -> World:
    names = [f"t{n}" for n in range(count)]
    graph = Graph(
        tensors=(*names, "y"),
        inputs={"t0": (), **dict(zip([*names[1:], "y"], [(n,) for n in names], strict=True))},
    )
    wrong = frozenset({*names[wrong_from:], "y"})
    return World(graph, "y", wrong, tuple(frozenset({name}) for name in cures))


@pytest.mark.parametrize("count", [1, 2, 10, 100, 1000])
def test_a_chain_takes_about_as_many_steps_as_it_can_be_halved(count: int) -> None:
    for at in sorted({0, count // 3, count // 2, count - 1}):
        found, search = play(chain(count, at))
        assert found.tensor == f"t{at}"
        assert len(search.readings) <= math.ceil(math.log2(count + 1)) + 2
        assert all(len(reading.marked) <= 2 for reading in search.readings)


def test_a_fusion_that_marking_breaks_is_named_with_its_region() -> None:
    world = chain(100, 52, "t50", "t51", "t52", "t53")
    found, search = play(world)
    assert found.ending is Ending.FUSION
    assert set(found.region) >= {"t52"}
    assert set(found.region) <= {f"t{n}" for n in range(44, 60)}
    assert {tensor for group in found.cures for tensor in group} <= {"t50", "t51", "t52", "t53"}
    assert () in [reading.marked for reading in search.readings] or any(r.survived for r in search.readings)


def test_a_skip_that_may_not_be_marked_does_not_hide_the_branch() -> None:
    names = [f"b{n}" for n in range(30)]
    inputs = {"skip": (), "b0": ("skip",), **{names[n]: (names[n - 1],) for n in range(1, 30)}}
    inputs["y"] = ("skip", "b29")
    world = World(
        Graph(tensors=tuple(inputs), inputs=inputs),
        "y",
        frozenset({*names[17:], "y"}),
        (frozenset({"skip"}),),
    )
    found, _ = play(world)
    assert (found.ending, found.tensor) == (Ending.LAYER, "b17")


def test_what_no_longer_fails_is_told_after_two_steps() -> None:
    world = chain(50, 20)
    gone = World(world.graph, "y", world.wrong, (frozenset(),), fails_unmarked=False)
    found, search = play(gone)
    assert found.ending is Ending.GONE
    assert len(search.readings) == 2
