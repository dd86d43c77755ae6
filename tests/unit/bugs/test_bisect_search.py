"""The search for the edges of a failure, over made-up histories: it ends in time and claims what is there."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from trtmatrix.bugs.search import Answer, Search, Side, find_edge, learn, next_try

LETTERS = {"G": Answer.GOOD, "B": Answer.BAD, "?": Answer.CANNOT_SAY}
GOOD, BAD, CANNOT_SAY = Answer.GOOD, Answer.BAD, Answer.CANNOT_SAY


def read(text: str) -> list[Answer]:
    """A history as letters: good, bad, or cannot say."""
    return [LETTERS[letter] for letter in text]


def play(history: list[Answer], search: Search) -> tuple[Search, list[int]]:
    """A search to its end, and what was tried."""
    tried: list[int] = []
    while (number := next_try(search)) is not None:
        assert number not in search.answers
        tried.append(number)
        search = learn(search, number, history[number])
    return search, tried


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


@example((read("GBGB"), Search(count=4, answers=dict(enumerate(read("GBGB"))))))
@given(searches(named=False) | searches(named=True))
def test_each_edge_is_really_there_and_takes_no_more_than_halving(drawn: tuple[list[Answer], Search]) -> None:
    history, search = drawn
    ended, tried = play(history, search)
    assert len(tried) <= 2 * budget(len(history), 0) + history.count(CANNOT_SAY)
    for side, edge in ((side, find_edge(ended, side)) for side in Side):
        if edge is None:
            continue
        assert (edge.good < edge.bad) is (side is Side.CAME_IN)
        assert (history[edge.good], history[edge.bad]) == (GOOD, BAD)
        between = range(min(edge.good, edge.bad) + 1, max(edge.good, edge.bad))
        assert (edge.left, edge.silent) == ((), tuple(between))
        assert [history[n] for n in between] == [CANNOT_SAY] * len(between)


@given(shaped())
def test_both_edges_are_found_where_the_ends_differ(history: list[Answer]) -> None:
    ended, _ = play(history, Search(count=len(history)))
    said = [answer for answer in history if answer is not CANNOT_SAY]
    if said and BAD in {said[0], said[-1]}:
        assert (find_edge(ended, Side.CAME_IN) is not None) is (said[0] is GOOD)
        assert (find_edge(ended, Side.FIXED) is not None) is (said[-1] is GOOD)
