"""The search for the edges of a failure, over made-up histories: it ends in time and claims what is there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trtmatrix.bugs.search import (
    Answer,
    Edge,
    Search,
    Side,
    find_bad,
    find_edge,
    is_monotone,
    learn,
    next_try,
)

LETTERS = {"G": Answer.GOOD, "B": Answer.BAD, "?": Answer.CANNOT_SAY}
GOOD, BAD, CANNOT_SAY = Answer.GOOD, Answer.BAD, Answer.CANNOT_SAY


def read(text: str) -> list[Answer]:
    """A history as letters: good, bad, or cannot say."""
    return [LETTERS[letter] for letter in text]


@dataclass(frozen=True, kw_only=True)
class Played:
    """A search to its end, and what was tried before and after the first of its two edges was done with."""

    search: Search
    tried: tuple[int, ...]
    first: int

    def edge(self, side: Side) -> Edge | None:
        return find_edge(self.search, side)


def play(history: list[Answer], search: Search) -> Played:
    tried: list[int] = []
    first: int | None = None
    while (number := next_try(search)) is not None:
        assert number not in search.answers
        if first is None and _first_is_done(search):
            first = len(tried)
        tried.append(number)
        search = learn(search, number, history[number])
    return Played(search=search, tried=tuple(tried), first=len(tried) if first is None else first)


def _first_is_done(search: Search) -> bool:
    bad = find_bad(search)
    if bad is None or (search.good is not None and search.good not in search.answers):
        return False
    side = Side.FIXED if search.good is not None and search.good > bad else Side.CAME_IN
    edge = find_edge(search, side)
    if edge is not None:
        return not edge.left
    beyond = range(bad) if side is Side.CAME_IN else range(search.count - 1, bad, -1)
    said = [search.answers.get(n) for n in beyond]
    return next((answer for answer in said if answer is not CANNOT_SAY), BAD) is BAD


histories = st.lists(st.sampled_from(list(Answer)), min_size=1, max_size=70)


@st.composite
def shaped(draw: st.DrawFn) -> list[Answer]:
    """A failure that comes in and maybe goes, with some that cannot say: what is usual."""
    lengths = draw(st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(0, 40)))
    history = [GOOD] * lengths[0] + [BAD] * lengths[1] + [GOOD] * lengths[2]
    silent = draw(st.sets(st.integers(0, len(history) - 1), max_size=len(history)))
    return [CANNOT_SAY if n in silent else answer for n, answer in enumerate(history)]


@st.composite
def searches(draw: st.DrawFn, *, named: bool) -> tuple[list[Answer], Search]:
    """A history with some stored answers, and its ends named rightly or looked for."""
    history = draw(histories | shaped())
    stored = draw(st.sets(st.integers(0, len(history) - 1), max_size=len(history) // 2))
    search = Search(count=len(history), answers={n: history[n] for n in stored})
    if named:
        goods = [n for n, answer in enumerate(history) if answer is GOOD]
        bads = [n for n, answer in enumerate(history) if answer is BAD]
        if goods:
            search = replace(search, good=draw(st.sampled_from(goods)))
        if bads:
            search = replace(search, bad=draw(st.sampled_from(bads)))
    return history, search


def budget(count: int, silent: int) -> int:
    """⌈log₂ n⌉ + unknowns + 2."""
    return (count - 1).bit_length() + silent + 2


def check_edges(history: list[Answer], played: Played) -> None:
    """Each edge is really there, and nothing that is known speaks against it."""
    for side in Side:
        edge = played.edge(side)
        if edge is None:
            continue
        assert (edge.good < edge.bad) is (side is Side.CAME_IN)
        assert (history[edge.good], history[edge.bad]) == (GOOD, BAD)
        between = range(min(edge.good, edge.bad) + 1, max(edge.good, edge.bad))
        assert edge.left == ()
        assert [history[n] for n in between] == [CANNOT_SAY] * len(between)
        assert edge.silent == tuple(between)


@example((read("GBGB"), Search(count=4, answers=dict(enumerate(read("GBGB"))))))
@given(searches(named=False) | searches(named=True))
def test_each_edge_is_really_there(drawn: tuple[list[Answer], Search]) -> None:
    history, search = drawn
    played = play(history, search)
    check_edges(history, played)
    assert next_try(played.search) is None
    assert {n: history[n] for n in played.search.answers} == dict(played.search.answers)


@given(searches(named=False) | searches(named=True))
def test_no_more_is_tried_than_halving_takes(drawn: tuple[list[Answer], Search]) -> None:
    history, search = drawn
    played = play(history, search)
    silent = history.count(CANNOT_SAY)
    for tried in (played.tried[: played.first], played.tried[played.first :]):
        quiet = len([n for n in tried if history[n] is CANNOT_SAY])
        assert len(tried) <= budget(len(history), quiet)
    assert len(played.tried) <= 2 * budget(len(history), 0) + silent


@given(shaped())
def test_both_edges_are_found_where_the_ends_differ(history: list[Answer]) -> None:
    played = play(history, Search(count=len(history)))
    said = [answer for answer in history if answer is not CANNOT_SAY]
    if BAD in {said[0], said[-1]} if said else False:
        assert (played.edge(Side.CAME_IN) is not None) is (said[0] is GOOD)
        assert (played.edge(Side.FIXED) is not None) is (said[-1] is GOOD)


@pytest.mark.parametrize("letters", ["G", "B", "GGBB", "BBGG", "G?BB?G", "???", "BGB", "GBGB", "B?G?B"])
def test_a_failure_that_comes_and_goes_once_at_most_is_monotone(letters: str) -> None:
    search = Search(count=len(letters), answers=dict(enumerate(read(letters))))
    assert is_monotone(search) is (letters not in {"BGB", "GBGB", "B?G?B"})
