"""Where in a row of versions a failure came in and went away: what to try next, what follows. Pure.

A version is good, bad, or cannot say. A search is told answers one by one, in any order, and halves what is
left between a good and a bad version, leaving out those that cannot say. So an edge among n versions takes
⌈log₂ n⌉ tries, two for its ends, and one for each version that cannot say; what is known beforehand is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby


class Answer(str, Enum):
    """What a version says."""

    GOOD = "good"
    BAD = "bad"
    CANNOT_SAY = "cannot say"


class Side(str, Enum):
    """Which edge of a failure: good → bad, or bad → good."""

    CAME_IN = "came in"
    FIXED = "fixed"


@dataclass(frozen=True, kw_only=True)
class Search:
    """Versions by number, the oldest is 0; what they answered.

    ``good``, ``bad``: the ends that were named. ``hints``: what others report, which is no answer, and only
    says where to look for a failure that nobody named.
    """

    count: int
    good: int | None = None
    bad: int | None = None
    answers: Mapping[int, Answer] = field(default_factory=dict)
    hints: Mapping[int, Answer] = field(default_factory=dict)

    def all(self, wanted: Answer) -> list[int]:
        """Return the versions that gave an answer, the oldest first."""
        return sorted(n for n, answer in self.answers.items() if answer is wanted)


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A good and a bad version between which no other says either.

    ``silent``: those between that cannot say. ``left``: those between that were not tried.
    """

    side: Side
    good: int
    bad: int
    silent: tuple[int, ...] = ()
    left: tuple[int, ...] = ()


def learn(search: Search, version: int, answer: Answer) -> Search:
    """Return the search with one more answer."""
    return replace(search, answers={**search.answers, version: answer})


def next_try(search: Search) -> int | None:
    """Return the version to try next, or None where nothing more is to be learnt.

    The named ends come first, then the edge between them. Without a bad version one is looked for: the newest
    that is reported to be bad, the newest, the oldest, other reported ones.
    """
    for end in (search.good, search.bad):
        if end is not None and end not in search.answers:
            return end
    if wrong_ends(search):
        return None
    anchor = find_bad(search)
    if anchor is None:
        bad = (n for n, hint in search.hints.items() if hint is Answer.BAD)
        reported = sorted(bad, reverse=True)
        untried = [n for n in reported if n not in search.answers]
        ends = (range(search.count - 1, -1, -1), range(search.count))
        found = [n for n in (_first_untried(search, end) for end in ends) if n is not None]
        newest_first = untried[:1] if untried[:1] == reported[:1] else []
        return next(iter([*newest_first, *found, *untried]), None)
    fixed_first = search.good is not None and search.good > anchor
    for side in (Side.FIXED, Side.CAME_IN) if fixed_first else (Side.CAME_IN, Side.FIXED):
        beyond = range(anchor) if side is Side.CAME_IN else range(search.count - 1, anchor, -1)
        edge = find_edge(search, side)
        if edge is None:
            tried = _first_untried(search, beyond)
        else:
            tried = edge.left[len(edge.left) // 2] if edge.left else None
        if tried is not None:
            return tried
    return None


def wrong_ends(search: Search) -> tuple[int, ...]:
    """Return the named ends that answered otherwise than they were named, or cannot say."""
    named = ((search.good, Answer.GOOD), (search.bad, Answer.BAD))
    return tuple(n for n, wanted in named if n is not None and search.answers.get(n, wanted) is not wanted)


def find_bad(search: Search) -> int | None:
    """Return the bad version that the edges are looked for around: the named one, else the newest known."""
    if search.bad is not None and search.answers.get(search.bad) is Answer.BAD:
        return search.bad
    return max(search.all(Answer.BAD), default=None)


def find_edge(search: Search, side: Side) -> Edge | None:
    """Return the edge on one side of the failure, as far as it is known: the nearest to its bad version."""
    anchor, answers = find_bad(search), search.answers
    if anchor is None:
        return None
    beyond, back = (range(anchor, -1, -1), 1) if side is Side.CAME_IN else (range(anchor, search.count), -1)
    good = next((n for n in beyond if answers.get(n) is Answer.GOOD), None)
    if good is None:
        return None
    bad = next(n for n in range(good, anchor + back, back) if answers.get(n) is Answer.BAD)
    between = range(min(good, bad) + 1, max(good, bad))
    silent, left = (tuple(n for n in between if (n in answers) is known) for known in (True, False))
    return Edge(side=side, good=good, bad=bad, silent=silent, left=left)


def is_monotone(search: Search) -> bool:
    """Whether all answers fit a failure that came in once at most, and then was fixed once at most."""
    said = [answer for _, answer in sorted(search.answers.items()) if answer is not Answer.CANNOT_SAY]
    return [answer for answer, _ in groupby(said)].count(Answer.BAD) <= 1


def _first_untried(search: Search, versions: Iterable[int]) -> int | None:
    """Return the first that was not tried, unless one before it has said something."""
    for version in versions:
        answer = search.answers.get(version)
        if answer is not Answer.CANNOT_SAY:
            return version if answer is None else None
    return None
