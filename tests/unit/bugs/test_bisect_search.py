"""The search for the edges of a failure, over made-up histories: it ends in time and claims what is there."""

from hypothesis import example, given
from hypothesis import strategies as st

from trtmatrix.bugs.search import Answer, Reply, Search

GOOD, BAD, CANNOT_SAY = Answer.GOOD, Answer.BAD, Answer.CANNOT_SAY


def play(history: list[Answer], search: Search) -> list[int]:
    """Search to the end; returns what was tried."""
    tried: list[int] = []
    while (number := search.next_try()) is not None:
        assert number not in search.replies
        tried.append(number)
        search.replies[number] = Reply(answer=history[number])
    return tried


def search_in(history: list[Answer], *stored: int) -> Search:
    row = map(str, range(len(history)))
    return Search(candidates=tuple(row), replies={n: Reply(answer=history[n]) for n in stored})


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
    search = search_in(history, *stored)
    if named:
        goods, bads = ([n for n, found in enumerate(history) if found is answer] for answer in (GOOD, BAD))
        ends = (draw(st.sampled_from(found)) if found else None for found in (goods, bads))
        search.good, search.bad = ends
    return history, search


@example(([GOOD, BAD] * 2, search_in([GOOD, BAD] * 2, *range(4))))
@given(searches(named=False) | searches(named=True))
def test_each_edge_is_really_there_and_takes_no_more_than_halving(drawn: tuple[list[Answer], Search]) -> None:
    history, search = drawn
    tried = play(history, search)
    halvings = (len(history) - 1).bit_length() + 2
    assert len(tried) <= 2 * halvings + history.count(CANNOT_SAY)
    for step, edge in ((step, search.edge(step)) for step in (-1, 1)):
        if edge is None:
            continue
        assert (edge.good < edge.bad) is (step < 0)
        assert (history[edge.good], history[edge.bad]) == (GOOD, BAD)
        between = range(min(edge.good, edge.bad) + 1, max(edge.good, edge.bad))
        assert (edge.left, edge.silent) == ((), tuple(between))
        assert [history[n] for n in between] == [CANNOT_SAY] * len(between)


@given(shaped())
def test_both_edges_are_found_where_the_ends_differ(history: list[Answer]) -> None:
    search = search_in(history)
    play(history, search)
    said = [answer for answer in history if answer is not CANNOT_SAY]
    if said and BAD in {said[0], said[-1]}:
        assert (search.edge(-1) is not None) is (said[0] is GOOD)
        assert (search.edge(1) is not None) is (said[-1] is GOOD)
