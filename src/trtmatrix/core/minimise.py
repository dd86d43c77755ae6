"""Searches the smallest thing that still fails in the same way: what to try next, what was learnt. Pure.

What can be made smaller is offered as axes, each with its levels from the smallest to the largest below what
is there now. The search knows nothing of graphs: it says which level of which axis to try, and is told what
came of it. A level that is kept changes the graph, so that all axes are offered anew; what was refused is
tried again only in another round, when something else has become smaller since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

LEAST_AHEAD, MOST_AHEAD = 4, 16
"""How many candidates are run at once."""


class Answer(str, Enum):
    """What came of a trial."""

    SAME = "same"
    """It fails in the same way: kept."""
    NOT = "not"
    """It does not fail, or in another way."""
    CANNOT_SAY = "cannot say"
    """It could not be made or run."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One thing that can be smaller. ``levels``: from the smallest on, all smaller than what is there now.

    ``halved``: a level fails as a rule where a smaller one does, so that the boundary is found by halving;
    elsewhere levels are tried from the smallest on.
    """

    name: str
    levels: tuple[str, ...]
    halved: bool = False


@dataclass(frozen=True, kw_only=True, order=True)
class Move:
    """A level of an axis."""

    axis: str
    level: str


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came of a move. ``said``: in words. ``ran``: a product ran it, so that it counts as a step."""

    move: Move
    answer: Answer
    said: str = ""
    ran: bool = True


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is known so far.

    ``steps``: runs that are allowed. ``refused``: moves that are not tried again in this round.
    ``since``: moves kept in this round.
    """

    steps: int
    trials: tuple[Trial, ...] = ()
    refused: frozenset[Move] = frozenset()
    since: int = 0
    rounds: int = 1

    @property
    def ran(self) -> int:
        """How many trials were run."""
        return sum(trial.ran for trial in self.trials)

    @property
    def kept(self) -> tuple[Trial, ...]:
        """The trials that made it smaller, in order."""
        return tuple(trial for trial in self.trials if trial.answer is Answer.SAME)

    @property
    def is_spent(self) -> bool:
        """Whether no run is left."""
        return self.ran >= self.steps


def next_move(search: Search, axes: Iterable[Axis]) -> Move | None:
    """Return what to try next: of the first axis that has something; None where this round is over."""
    if search.is_spent:
        return None
    return next((move for axis in axes if (move := _next_of(search, axis)) is not None), None)


def next_moves(search: Search, axes: Sequence[Axis], count: int) -> list[Move]:
    """Return what is tried one after another as long as all of it is refused: ``count`` moves at most."""
    moves: list[Move] = []
    while len(moves) < count and (move := next_move(search, axes)) is not None:
        moves.append(move)
        search = learn(search, Trial(move=move, answer=Answer.NOT))
    return moves


def how_many_ahead(search: Search) -> int:
    """Return how many moves are worth running at once: more, the longer nothing was kept.

    What is run beyond the first that is kept is run in vain, while each start of a product costs seconds.
    """
    refused = next((n for n, t in enumerate(reversed(search.trials)) if t.answer is Answer.SAME), None)
    since = len(search.trials) if refused is None else refused
    return min(MOST_AHEAD, max(LEAST_AHEAD, since))


def _next_of(search: Search, axis: Axis) -> Move | None:
    moves = [Move(axis=axis.name, level=level) for level in axis.levels]
    if not axis.halved:
        return next((move for move in moves if move not in search.refused), None)
    low = max((place for place, move in enumerate(moves) if move in search.refused), default=-1)
    return moves[(low + len(moves)) // 2] if low + 1 < len(moves) else None


def learn(search: Search, trial: Trial) -> Search:
    """Return what is known after a trial."""
    after = replace(search, trials=(*search.trials, trial))
    if trial.answer is Answer.SAME:
        return replace(after, since=after.since + 1)
    return replace(after, refused=after.refused | {trial.move})


def next_round(search: Search) -> Search | None:
    """Return the search with all moves open again; None where nothing came of the last round."""
    if search.is_spent or not search.since:
        return None
    return replace(search, refused=frozenset(), since=0, rounds=search.rounds + 1)


def sizes_below(size: int) -> tuple[int, ...]:
    """Return the sizes to try of a dimension, from 1 on: powers of two, then what is near its half."""
    powers = [1 << bits for bits in range(size.bit_length()) if 1 << bits < size]
    halves = [size // 2] if size > 2 else []
    return tuple(sorted({*powers, *halves}))


def describe_trials(trials: Sequence[Trial]) -> str:
    """Return in a sentence how many trials there were and what came of them."""
    count = {answer: sum(trial.answer is answer for trial in trials) for answer in Answer}
    ran = sum(trial.ran for trial in trials)
    return (
        f"{len(trials)} tried, {ran} of them run: {count[Answer.SAME]} kept, {count[Answer.NOT]} did not "
        f"fail in the same way, {count[Answer.CANNOT_SAY]} could not be made or run"
    )
