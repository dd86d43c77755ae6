"""The search for the smallest thing that still fails: what it tries, what it keeps, when it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.core.minimise import (
    Answer,
    Axis,
    Move,
    Search,
    Trial,
    describe_trials,
    how_many_ahead,
    learn,
    next_move,
    next_moves,
    next_round,
    sizes_below,
)

Sizes = dict[str, int]


def axes_of(sizes: Mapping[str, int], halved: Mapping[str, bool]) -> list[Axis]:
    return [
        Axis(name=name, levels=tuple(map(str, range(size))), halved=halved[name])
        for name, size in sizes.items()
    ]


def minimise(
    sizes: Sizes, fails: Callable[[Sizes], bool], halved: Mapping[str, bool], steps: int = 10_000
) -> tuple[Sizes, Search, list[Sizes]]:
    """Search over things that are numbers; returns the end, the search, and all that was tried."""
    search, best, tried = Search(steps=steps), dict(sizes), list[Sizes]()
    while True:
        move = next_move(search, axes_of(best, halved))
        if move is None:
            fresh = next_round(search)
            if fresh is None:
                return best, search, tried
            search = fresh
            continue
        candidate = {**best, move.axis: int(move.level)}
        tried.append(candidate)
        same = fails(candidate)
        search = learn(search, Trial(move=move, answer=Answer.SAME if same else Answer.NOT))
        best = candidate if same else best


SIZES = st.dictionaries(st.sampled_from("abc"), st.integers(1, 12), min_size=1)
HALVED = st.fixed_dictionaries(dict.fromkeys("abc", st.booleans()))


@given(SIZES, HALVED, st.randoms(use_true_random=False))
def test_whatever_fails_the_end_fails_and_no_single_level_below_it_does(
    sizes: Sizes, halved: Mapping[str, bool], random: object
) -> None:
    memo: dict[tuple[tuple[str, int], ...], bool] = {}

    def fails(some: Sizes) -> bool:
        key = tuple(sorted(some.items()))
        return some == sizes or memo.setdefault(key, random.random() < 0.4)  # type: ignore[attr-defined] # a Random

    best, search, _ = minimise(sizes, fails, halved)
    assert fails(best)
    assert all(best[name] <= size for name, size in sizes.items())
    last = {trial.move for trial in search.trials if trial.answer is Answer.NOT}
    for name, size in best.items():
        if not halved[name]:
            for level in range(size):
                assert Move(axis=name, level=str(level)) in last
                assert not fails({**best, name: level})


@given(SIZES, st.data())
def test_where_larger_ones_fail_too_the_smallest_is_found_by_halving(
    sizes: Sizes, data: st.DataObject
) -> None:
    least = {name: data.draw(st.integers(0, size)) for name, size in sizes.items()}
    best, search, tried = minimise(
        sizes, lambda some: all(some[name] >= least[name] for name in some), dict.fromkeys("abc", True)
    )
    assert best == least
    halvings = sum(size.bit_length() for size in sizes.values())
    assert len(tried) <= halvings * (1 + len(search.kept))


@given(SIZES, HALVED, st.integers(0, 5))
def test_no_more_is_run_than_allowed_and_the_best_so_far_is_kept(
    sizes: Sizes, halved: Mapping[str, bool], steps: int
) -> None:
    best, search, tried = minimise(sizes, lambda _: True, halved, steps)
    assert len(tried) == search.ran <= steps
    assert best == (tried[-1] if tried else sizes)


@given(SIZES, HALVED, st.integers(1, 9), st.integers(0, 9))
def test_what_is_foreseen_is_what_is_tried_as_long_as_all_is_refused(
    sizes: Sizes, halved: Mapping[str, bool], count: int, steps: int
) -> None:
    axes, search, tried = axes_of(sizes, halved), Search(steps=steps), list[Move]()
    while len(tried) < count and (move := next_move(search, axes)) is not None:
        tried.append(move)
        search = learn(search, Trial(move=move, answer=Answer.NOT))
    assert next_moves(Search(steps=steps), axes, count) == tried
    assert len(tried) <= min(count, steps)


def test_more_is_run_ahead_the_longer_nothing_was_kept() -> None:
    search, counts = Search(steps=99), list[int]()
    for answer in [Answer.NOT] * 20 + [Answer.SAME]:
        counts.append(how_many_ahead(search))
        search = learn(search, Trial(move=Move(axis="a", level="0"), answer=answer))
    assert (counts[0], counts[10], counts[20], how_many_ahead(search)) == (4, 10, 16, 4)


def test_what_was_not_run_costs_no_step() -> None:
    search = Search(steps=1)
    move = Move(axis="a", level="0")
    search = learn(search, Trial(move=move, answer=Answer.CANNOT_SAY, ran=False))
    assert not search.is_spent
    assert next_move(search, [Axis(name="a", levels=("0", "1"))]) == Move(axis="a", level="1")
    search = learn(search, Trial(move=move, answer=Answer.NOT))
    assert search.is_spent
    assert next_move(search, [Axis(name="a", levels=("0", "1", "2"))]) is None


def test_what_was_refused_is_tried_again_once_something_else_is_smaller() -> None:
    """a can be 0 only where b is: the second round finds it."""
    best, search, _ = minimise(
        {"a": 1, "b": 1}, lambda some: some["a"] == 1 or some["b"] == 0, dict.fromkeys("ab", False)
    )
    assert best == {"a": 0, "b": 0}
    assert search.rounds == 3  # in the last nothing is left to try


def test_the_first_axis_that_has_something_is_tried_first() -> None:
    axes = [Axis(name="none", levels=()), Axis(name="a", levels=("x",)), Axis(name="b", levels=("y",))]
    search = Search(steps=9)
    assert next_move(search, axes) == Move(axis="a", level="x")
    search = learn(search, Trial(move=Move(axis="a", level="x"), answer=Answer.NOT))
    assert next_move(search, axes) == Move(axis="b", level="y")


@pytest.mark.parametrize(
    ("size", "levels"), [(1, ()), (2, (1,)), (3, (1, 2)), (6, (1, 2, 3, 4)), (1568, None), (8, (1, 2, 4))]
)
def test_sizes_are_tried_from_one_on(size: int, levels: tuple[int, ...] | None) -> None:
    found = sizes_below(size)
    assert levels is None or found == levels
    assert all(0 < level < size for level in found)
    assert len(found) <= size.bit_length() + 1


def test_every_answer_is_counted_in_words() -> None:
    trials = [
        Trial(move=Move(axis="a", level="0"), answer=answer, ran=answer is not Answer.NOT)
        for answer in Answer
    ]
    words = describe_trials(trials)
    assert words.startswith(f"{len(Answer)} tried, {len(Answer) - 1} of them run: 1 kept, 1 did not fail")
