"""What a bisect tells: the row that was searched, what each answered and how that is known. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trtmatrix.core.bisect import Answer, Edge, Search, Side, find_bad, find_edge, find_runs, wrong_ends
from trtmatrix.core.table import one_line


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A version, or an image of the user's: its name and the image that it comes from, if it has one."""

    name: str
    image: str = ""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a candidate answered.

    ``words``: the verdict with the engines that it rests on, or the exit code. ``known``: how it is known.
    ``image``: ``name@sha256:…`` as a registry has it, empty where it is in none; ``image_id``: the image's
    own digest. ``tried``: something was run for it in this search.
    """

    answer: Answer
    words: str
    figure: str = ""
    reason: str = ""
    known: str = ""
    image: str = ""
    image_id: str = ""
    library: str = ""
    driver: str = ""
    tried: bool = False

    @property
    def why(self) -> str:
        """What came out and the reason, in one line."""
        return one_line(": ".join(part for part in (self.words, self.reason) if part), 200)


@dataclass(frozen=True, kw_only=True)
class Again:
    """What shows a result again: ``shown`` are run, between ``good`` and ``bad`` in ``row`` is searched."""

    shown: tuple[int, ...]
    row: tuple[int, ...]
    good: int | None
    bad: int | None

    def ends(self, names: Callable[[int], str]) -> list[str]:
        """Return the options that name the ends."""
        named = (("--good", self.good), ("--bad", self.bad))
        return [word for option, end in named if end is not None for word in (option, names(end))]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is looked for: a case or a command, and where. ``what``: candidates are versions or images."""

    title: str
    about: str = ""
    upstream: str = ""
    url: str = ""
    product: str = ""
    place: str = ""
    what: str = "version"
    figure_label: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A search as far as it came. ``cut_short``: why it ended early. ``commands``: what does it again.

    ``rests_on``: what a good answer rests on, in words.
    """

    subject: Subject
    candidates: tuple[Candidate, ...]
    search: Search
    replies: Mapping[int, Reply] = field(default_factory=dict)
    rests_on: str = ""
    cut_short: str = ""
    commands: tuple[str, ...] = ()
    tool: str = ""

    @property
    def came_in(self) -> Edge | None:
        """Where the failure came in."""
        return find_edge(self.search, Side.CAME_IN)

    @property
    def fixed(self) -> Edge | None:
        """Where it went away again."""
        return find_edge(self.search, Side.FIXED)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Those that are known, where the ends are as they were named."""
        if wrong_ends(self.search):
            return ()
        return tuple(edge for edge in (self.came_in, self.fixed) if edge is not None)

    @property
    def is_found(self) -> bool:
        """Whether an edge is known that nothing is left to try of: that between the ends, if they are named.

        One that versions which cannot say blur is found too.
        """
        search, edges = self.search, [edge for edge in self.edges if not edge.left]
        if search.good is None or search.bad is None:
            return bool(edges)
        wanted = Side.CAME_IN if search.good < search.bad else Side.FIXED
        return any(edge.side is wanted for edge in edges)

    @property
    def tried(self) -> tuple[int, ...]:
        """Those that were run in this search."""
        return tuple(sorted(n for n, reply in self.replies.items() if reply.tried))

    @property
    def silent(self) -> tuple[int, ...]:
        """Those that cannot say; one whose run was cut short may yet."""
        return tuple(n for n, answer in sorted(self.search.answers.items()) if answer is Answer.CANNOT_SAY)

    def name(self, number: int) -> str:
        """Return a candidate's name."""
        return self.candidates[number].name

    @property
    def stretches(self) -> tuple[tuple[Answer, tuple[int, ...]], ...]:
        """Stretches of equal answers (:func:`trtmatrix.core.bisect.find_runs`)."""
        return find_runs(self.search)

    @property
    def bad(self) -> int | None:
        """The failure that was looked at."""
        return find_bad(self.search)
