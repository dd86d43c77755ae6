"""The search for the first wrong tensor, over made-up graphs: it ends in time and names the right one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

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
