"""Where in a row of versions a failure came in and went away: what to try next, what follows. Pure.

A version is good, bad, or cannot say. A search is told answers one by one, in any order, and halves what is
left between a good and a bad version; one that cannot say is left out of what is left. So an edge among n
versions takes ⌈log₂ n⌉ tries, two for its ends, and one for each version that cannot say. What stored records
answer costs nothing. Reports only choose among tries that are equally good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby, pairwise


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

    ``good``, ``bad``: the ends that were named. ``hints``: what others report, which is no answer. ``here``:
    versions that can be tried without a pull or a build.
    """

    count: int
    good: int | None = None
    bad: int | None = None
    answers: Mapping[int, Answer] = field(default_factory=dict)
    hints: Mapping[int, Answer] = field(default_factory=dict)
    here: frozenset[int] = frozenset()


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

    @property
    def is_sharp(self) -> bool:
        """Whether the two are neighbours."""
        return not self.silent and not self.left


def learn(search: Search, version: int, answer: Answer) -> Search:
    """Return the search with one more answer."""
    return replace(search, answers={**search.answers, version: answer})


def next_try(search: Search) -> int | None:
    """Return the version to try next, or None where nothing more is to be learnt.

    The named ends come first. Without a bad version one is looked for: what a report says, the newest, the
    oldest, what other reports say.
    """
    for end in (search.good, search.bad):
        if end is not None and end not in search.answers:
            return end
    if wrong_ends(search):
        return None
    anchor = find_bad(search)
    if anchor is None:
        return next(_looking_for_bad(search), None)
    steps = (_next_on(search, anchor, side) for side in _sides(search, anchor))
    return next((step for step in steps if step is not None), None)


def wrong_ends(search: Search) -> tuple[int, ...]:
    """Return the named ends that answered otherwise than they were named, or cannot say."""
    named = ((search.good, Answer.GOOD), (search.bad, Answer.BAD))
    return tuple(
        end for end, wanted in named
        if end is not None and search.answers.get(end, wanted) is not wanted
    )  # fmt: skip


def find_bad(search: Search) -> int | None:
    """Return the bad version that the edges are looked for around: the named one, else the newest known."""
    if search.bad is not None and search.answers.get(search.bad) is Answer.BAD:
        return search.bad
    return max(_all(search, Answer.BAD), default=None)


def find_edge(search: Search, side: Side) -> Edge | None:
    """Return the edge on one side of the failure as far as it is known: the nearest to its bad version."""
    anchor = find_bad(search)
    ends = _ends(search, anchor, side) if anchor is not None else None
    if ends is None:
        return None
    good, bad = ends
    between = range(min(ends) + 1, max(ends))
    silent = tuple(n for n in between if n in search.answers)
    left = tuple(n for n in between if n not in search.answers)
    return Edge(side=side, good=good, bad=bad, silent=silent, left=left)


def most_tries(search: Search) -> int:
    """Return how many tries the edge that is looked for takes at most, if none of them cannot say.

    0 where no version is known to be bad: nobody knows then.
    """
    anchor = find_bad(search)
    if anchor is None:
        return 0
    for side in _sides(search, anchor):
        if _next_on(search, anchor, side) is not None:
            edge = find_edge(search, side)
            left = edge.left if edge else _outward(search, anchor, side)
            return len(left).bit_length() if edge else 1 + (len(left) - 1).bit_length()
    return 0


def find_runs(search: Search) -> tuple[tuple[Answer, tuple[int, ...]], ...]:
    """Return stretches of equal answers, the oldest first; those that cannot say do not count."""
    said = sorted((n, answer) for n, answer in search.answers.items() if answer is not Answer.CANNOT_SAY)
    groups = groupby(said, key=lambda item: item[1])
    return tuple((answer, tuple(n for n, _ in group)) for answer, group in groups)


def is_monotone(search: Search) -> bool:
    """Whether all answers fit a failure that came in once at most, and then was fixed once at most."""
    words = [answer for answer, _ in find_runs(search)]
    return words.count(Answer.BAD) <= 1


def _all(search: Search, wanted: Answer) -> Iterator[int]:
    return (n for n, answer in search.answers.items() if answer is wanted)


def _sides(search: Search, anchor: int) -> tuple[Side, Side]:
    """Return the edges in the order in which they are looked for: first that between the named ends."""
    if search.good is not None and search.good > anchor:
        return Side.FIXED, Side.CAME_IN
    return Side.CAME_IN, Side.FIXED


def _ends(search: Search, anchor: int, side: Side) -> tuple[int, int] | None:
    """Return the good version that is nearest to the bad one on a side, and the bad one nearest to that."""
    goods, bads = list(_all(search, Answer.GOOD)), list(_all(search, Answer.BAD))
    if side is Side.CAME_IN:
        good = max((n for n in goods if n < anchor), default=None)
        return None if good is None else (good, min(n for n in bads if n > good))
    good = min((n for n in goods if n > anchor), default=None)
    return None if good is None else (good, max(n for n in bads if n < good))


def _next_on(search: Search, anchor: int, side: Side) -> int | None:
    """Return what to try for one edge: the middle of what is left, or an end to start from."""
    edge = find_edge(search, side)
    if edge is not None:
        return _middle(search, edge.left) if edge.left else None
    return next(_inward(search, _outward(search, anchor, side)), None)


def _outward(search: Search, anchor: int, side: Side) -> range:
    """Return the versions beyond a bad one on a side, the farthest first."""
    return range(anchor) if side is Side.CAME_IN else range(search.count - 1, anchor, -1)


def _inward(search: Search, versions: range) -> Iterator[int]:
    """Yield the first that was not tried, unless one before it has said something."""
    for version in versions:
        answer = search.answers.get(version)
        if answer is None:
            yield version
        if answer is not Answer.CANNOT_SAY:
            return


def _looking_for_bad(search: Search) -> Iterator[int]:
    """Yield what to try where no version is known to be bad; the first counts."""
    reported = [n for n in sorted(search.hints, reverse=True) if search.hints[n] is Answer.BAD]
    yield from (n for n in reported[:1] if n not in search.answers)
    yield from _inward(search, range(search.count - 1, -1, -1))
    yield from _inward(search, range(search.count))
    yield from (n for n in reported if n not in search.answers)


def _middle(search: Search, left: tuple[int, ...]) -> int:
    """Return the version of those left to try: of all after which halving is as quick, the likeliest.

    Those are preferred that stand where reports change, then those that are here, then the middle.
    """
    count = len(left)
    most = (1 << (count.bit_length() - 1)) - 1
    able = range(count - 1 - min(most, count - 1), min(most, count - 1) + 1)
    changes = _reported_changes(search)

    def cost(place: int) -> tuple[int, bool, int]:
        version = left[place]
        return (
            min((abs(version - change) for change in changes), default=0),
            version not in search.here,
            abs(2 * place - count + 1),
        )

    return left[min(able, key=cost)]


def _reported_changes(search: Search) -> tuple[int, ...]:
    """Return the versions on both sides of where reports change from good to bad or back."""
    hints = search.hints
    return tuple(n for pair in pairwise(sorted(hints)) if hints[pair[0]] is not hints[pair[1]] for n in pair)
