"""Where in a row of versions a failure came in and went away: what to try next, what to say of it. Pure.

A version is good, bad, or cannot say. A search is told answers one by one, in any order, and halves what is
left between a good and a bad version, leaving out those that cannot say. So an edge among n versions takes
⌈log₂ n⌉ tries, two for its ends, and one for each version that cannot say; what is known beforehand is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby

from tabulate import tabulate

from trtmatrix.common.text import join_some, one_line, to_json
from trtmatrix.tables.markdown import code, fence, fold, plain, table

HINT = "reported or recorded"
"""How what is no answer is known: somebody reports it, or a record tells of it from before a change."""
HEADS = ("", "answer", "what came out", "how it is known")

Mark = Callable[[str], str]


class Answer(str, Enum):
    """What a version says."""

    GOOD = "good"
    BAD = "bad"
    CANNOT_SAY = "cannot say"


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a version or image answered.

    ``words``: the verdict with the engines that it rests on, or the exit code. ``known``: how it is known.
    ``image``: by the registry's digest, else by its own. ``tried``: something was run for it in this search.
    """

    answer: Answer
    words: str = ""
    figure: str = ""
    reason: str = ""
    known: str = ""
    image: str = ""
    library: str = ""
    driver: str = ""
    tried: bool = False

    @property
    def why(self) -> str:
        """What came out and the reason, in one line."""
        return one_line(": ".join(filter(None, (self.words, self.reason))), 200)


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A good and a bad version between which no other says either.

    ``silent``: those between that cannot say. ``left``: those between that were not tried.
    """

    good: int
    bad: int
    silent: tuple[int, ...] = ()
    left: tuple[int, ...] = ()


@dataclass(kw_only=True)
class Search:
    """A row of candidates by name, numbered from the oldest on, and what they answered so far.

    ``title``: what is looked for, ``about`` tells more of it; ``what``: whether candidates are versions or
    images; ``rests_on``: what a good answer rests on, in words. ``good``, ``bad``: the ends that were named.
    ``hints``: what others report, which is no answer, and only says where to look for a failure that nobody
    named. ``cut_short``: why it ended early. ``commands``: what does it again.
    """

    candidates: tuple[str, ...]
    title: str = ""
    about: str = ""
    what: str = "version"
    rests_on: str = ""
    good: int | None = None
    bad: int | None = None
    replies: dict[int, Reply] = field(default_factory=dict)
    hints: Mapping[int, Answer] = field(default_factory=dict)
    cut_short: str = ""
    commands: tuple[str, ...] = ()

    def name(self, number: int) -> str:
        """Return a candidate's name."""
        return self.candidates[number]

    def answer(self, number: int) -> Answer | None:
        """Return what a candidate answered."""
        return self.replies[number].answer if number in self.replies else None

    def all(self, wanted: Answer) -> list[int]:
        """Return the candidates that gave an answer, the oldest first."""
        return sorted(n for n, reply in self.replies.items() if reply.answer is wanted)

    @property
    def tried(self) -> list[int]:
        """Those that were run in this search."""
        return sorted(n for n, reply in self.replies.items() if reply.tried)

    @property
    def wrong_ends(self) -> list[int]:
        """The named ends that answered otherwise than they were named, or cannot say."""
        named = ((self.good, Answer.GOOD), (self.bad, Answer.BAD))
        return [n for n, wanted in named if n is not None and self.answer(n) not in {None, wanted}]

    @property
    def anchor(self) -> int | None:
        """The bad one that the edges are looked for around: that was named, else the newest known."""
        bads = self.all(Answer.BAD)
        return self.bad if self.bad in bads else max(bads, default=None)

    def edge(self, step: int) -> Edge | None:
        """Return the edge on one side of the failure, as far as it is known: the nearest to its anchor.

        ``step``: -1 for where it came in, 1 for where it was fixed. None where an end is not as it was named.
        """
        if (anchor := self.anchor) is None or self.wrong_ends:
            return None
        beyond = range(anchor, -1 if step < 0 else len(self.candidates), step)
        good = next((n for n in beyond if self.answer(n) is Answer.GOOD), None)
        if good is None:
            return None
        bad = next(n for n in range(good, anchor - step, -step) if self.answer(n) is Answer.BAD)
        between = range(min(good, bad) + 1, max(good, bad))
        silent, left = (tuple(n for n in between if (n in self.replies) is told) for told in (True, False))
        return Edge(good=good, bad=bad, silent=silent, left=left)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The edges that are known: where it came in, where it was fixed."""
        return tuple(edge for edge in map(self.edge, (-1, 1)) if edge is not None)

    @property
    def is_found(self) -> bool:
        """Whether an edge is known that nothing is left to try of: that between the ends, if both are named.

        One that versions which cannot say blur is found, too.
        """
        found = [edge for edge in self.edges if not edge.left]
        if self.good is None or self.bad is None:
            return bool(found)
        return any((edge.good < edge.bad) is (self.good < self.bad) for edge in found)

    @property
    def is_monotone(self) -> bool:
        """Whether all answers fit a failure that came in once at most, and then was fixed once at most."""
        said = [reply.answer for _, reply in sorted(self.replies.items())]
        said = [answer for answer in said if answer is not Answer.CANNOT_SAY]
        return [answer for answer, _ in groupby(said)].count(Answer.BAD) <= 1

    def next_try(self) -> int | None:
        """Return the candidate to try next, or None where nothing more is to be learnt.

        The named ends come first, then the edge between them. Without a bad one one is looked for: the newest
        that is reported to be bad, the newest, the oldest, other reported ones.
        """
        for end in (self.good, self.bad):
            if end is not None and end not in self.replies:
                return end
        if self.wrong_ends:
            return None
        count, anchor = len(self.candidates), self.anchor
        if anchor is None:
            bads = sorted((n for n, hint in self.hints.items() if hint is Answer.BAD), reverse=True)
            ends = (self._untried(range(count - 1, -1, -1)), self._untried(range(count)))
            wanted = (*bads[:1], *ends, *bads[1:])
            return next((n for n in wanted if n is not None and n not in self.replies), None)
        fixed_first = self.good is not None and self.good > anchor
        for step in (1, -1) if fixed_first else (-1, 1):
            edge = self.edge(step)
            if edge is None:
                tried = self._untried(range(anchor) if step < 0 else range(count - 1, anchor, -1))
            else:
                tried = edge.left[len(edge.left) // 2] if edge.left else None
            if tried is not None:
                return tried
        return None

    def _untried(self, numbers: Iterable[int]) -> int | None:
        """Return the first that was not tried, unless one before it has said something."""
        first = next((n for n in numbers if self.answer(n) is not Answer.CANNOT_SAY), None)
        return None if first in self.replies else first


def render_bisect_text(search: Search, most: int = 300) -> str:
    """Return the result for a terminal: the row, the paragraph, the commands.

    Neighbours that were not run for the same reason are one line; a cell has at most so many letters.
    """
    rows = list[list[str]]()
    numbers = range(len(search.candidates))
    for (silent, *_), group in groupby(numbers, lambda n: (_is_silent(search, n), *_row(search, n)[1:])):
        alike = [_row(search, number) for number in group]
        if silent and len(alike) > 1:
            alike = [[f"{alike[0][0]} to {alike[-1][0]} ({len(alike)})", *alike[0][1:]]]
        rows += [[one_line(cell, most) for cell in row] for row in alike]
    shown = tabulate(rows, headers=HEADS, tablefmt="plain", disable_numparse=True)
    lines = [*map(str.rstrip, shown.splitlines()), "", *_sentences(search, one_line, str)]
    return "\n".join([*lines, "", "Reproduce with:", *(f"  {line}" for line in search.commands)]) + "\n"


def render_bisect_markdown(search: Search) -> str:
    """Return the result as GitHub Markdown: the paragraph, the row folded, the commands."""
    rows = [_row(search, number) for number in range(len(search.candidates))]
    shown = table([search.what, *HEADS[1:]], [[code(name), *map(plain, cells)] for name, *cells in rows])
    parts = [
        " ".join(_sentences(search, code, plain)), fold(f"All {len(rows)} {search.what}s", shown),
        f"Reproduce with:\n\n{fence(chr(10).join(search.commands))}",
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def bisect_json(search: Search) -> str:
    """Return the result as strict JSON; what is not known is null or empty."""
    came, fixed = search.edge(-1), search.edge(1)
    row = []
    for number, name in enumerate(search.candidates):
        said = vars(search.replies[number]) if number in search.replies else {"answer": None}
        row.append({"name": name, "hint": search.hints.get(number), **said})
    return to_json({
        "schema": 2, "title": search.title, "about": search.about, "found": search.is_found,
        "last_good": came and search.name(came.good), "first_bad": came and search.name(came.bad),
        "last_bad": fixed and search.name(fixed.bad), "first_fixed": fixed and search.name(fixed.good),
        "cannot_say": [search.name(n) for edge in search.edges for n in edge.silent],
        "not_tried": [search.name(n) for edge in search.edges for n in edge.left],
        "monotone": search.is_monotone, "cut_short": search.cut_short,
        "tried": [*map(search.name, search.tried)], "row": row,
        "paragraph": " ".join(_sentences(search, code, plain)), "commands": search.commands,
    })  # fmt: skip


def _sentences(search: Search, mark: Mark, escape: Mark) -> Iterator[str]:
    """Yield what is to be said, one matter each; ``mark`` writes a name, ``escape`` any text of others."""
    yield mark(search.title) + (f" ({escape(search.about)})" if search.about else "") + ":"
    for number in search.wrong_ends:
        wanted, reply = "good" if number == search.good else "bad", search.replies[number]
        yield (
            f"{mark(search.name(number))}, named by --{wanted}, is not {wanted} here but "
            f"{reply.answer.value} ({escape(reply.why)}): nothing was searched; name another end."
        )
    bads = [mark(search.name(n)) for n in search.all(Answer.BAD)]
    if not search.wrong_ends and not bads:
        so_far = " until then" if search.cut_short else ""
        told = _reported(search, range(len(search.candidates)), mark)
        yield f"Nothing that was tried{so_far} fails{told}: name what does by --bad, or see nox -s doctor."
    elif not search.wrong_ends:
        came, fixed = search.edge(-1), search.edge(1)
        if came:
            last, first = (mark(search.name(n)) for n in (came.good, came.bad))
            yield f"Last good {last}, first bad {first}{_blurred(search, came, mark)}."
        else:
            told = _reported(search, range(search.all(Answer.BAD)[0]), mark)
            unknown = f"nothing older is known to be good{told}: where it came in is not known"
            yield f"It fails at {bads[0]}, and {unknown}."
        if fixed:
            last, first = (mark(search.name(n)) for n in (fixed.bad, fixed.good))
            yield f"Last bad {last}, first fixed {first}{_blurred(search, fixed, mark)}."
        else:
            newer = range(search.all(Answer.BAD)[-1] + 1, len(search.candidates))
            told = _reported(search, newer, mark)
            yield f"It is not fixed in {bads[-1]}, and nothing newer is known to be good{told}."
    if not search.is_monotone:
        bad = mark(search.name(search.anchor or 0))
        yield f"Warning: the history is not monotone; the edges named are those nearest to {bad}."
    silent: dict[str, list[str]] = {}
    for number in search.all(Answer.CANNOT_SAY):
        silent.setdefault(search.replies[number].why, []).append(mark(search.name(number)))
    if silent:
        told = "; ".join(f"{', '.join(names)} ({escape(why)})" for why, names in silent.items())
        yield f"Cannot say: {told}."
    replies = search.replies.values()
    known = sum(reply.answer is not Answer.CANNOT_SAY and not reply.tried for reply in replies)
    counts = f"{len(search.tried)} of {len(search.candidates)} {search.what}s run"
    rests = f"; {escape(search.rests_on)}" if search.rests_on else ""
    yield f"{counts}, {known} known without a run{rests}."
    if search.cut_short:
        yield f"The search was cut short: {escape(search.cut_short)}."


def _blurred(search: Search, edge: Edge, mark: Mark) -> str:
    """Say which others may be the first of a stretch, as no answer parts them from it."""
    lacks = [*["cannot say"] * bool(edge.silent), *["was not tried"] * bool(edge.left)]
    names = [mark(search.name(n)) for n in sorted((*edge.silent, *edge.left))]
    return f" or one before it that {' and '.join(lacks)}: {join_some(names)}" if names else ""


def _is_silent(search: Search, number: int) -> bool:
    """Whether a candidate was not run, and no record answers for it."""
    reply = search.replies.get(number)
    return reply is None or (reply.answer is Answer.CANNOT_SAY and not reply.tried)


def _reported(search: Search, numbers: Iterable[int], mark: Mark) -> str:
    """Say of candidates that did not answer what is reported of them, which is no answer; or nothing."""
    silent = (n for n in numbers if search.answer(n) in {None, Answer.CANNOT_SAY} and n in search.hints)
    told = ", ".join(f"{mark(search.name(n))} {search.hints[n].value}" for n in silent)
    return f" (not tested, but {HINT}: {told})" if told else ""


def _row(search: Search, number: int) -> list[str]:
    """Return a candidate's name, answer, what came out, and how that is known, with what it ran on."""
    name, reply = search.name(number), search.replies.get(number)
    hint = f"{HINT} as {search.hints[number].value}" if number in search.hints else ""
    if reply is None:
        return [name, "not tried", "", hint]
    facts = {"library": reply.library, "driver": reply.driver, "image": reply.image}
    known = [reply.known, hint if _is_silent(search, number) else ""]
    known = [*filter(None, known), *(f"{what} {value}" for what, value in facts.items() if value)]
    return [name, reply.answer.value, ", ".join(filter(None, (reply.why, reply.figure))), "; ".join(known)]
