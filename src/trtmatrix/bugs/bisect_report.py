"""A bisect's result: what each version answered; as text, as Markdown for an issue, as JSON. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tabulate import tabulate

from trtmatrix.bugs.search import Answer, Edge, Search, Side, find_bad, find_edge, is_monotone, wrong_ends
from trtmatrix.common.text import one_line, to_json
from trtmatrix.tables.markdown import code, fence, fold, plain, table

SCHEMA = 1
"""The number of the JSON's shape."""

HEADS = ("", "answer", "what came out", "how it is known")
MOST_NAMES = 4

Mark = Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A version, or an image of the user's: its name and the image that it comes from, if it has one."""

    name: str
    image: str = ""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a candidate answered.

    ``words``: the verdict with the engines that it rests on, or the exit code. ``known``: how it is known.
    ``digest``: ``name@sha256:…`` as a registry has it; ``image_id``: the image's own digest. ``tried``:
    something was run for it in this search.
    """

    answer: Answer
    words: str
    figure: str = ""
    reason: str = ""
    known: str = ""
    digest: str = ""
    image_id: str = ""
    library: str = ""
    driver: str = ""
    tried: bool = False

    @property
    def why(self) -> str:
        """What came out and the reason, in one line."""
        return one_line(": ".join(part for part in (self.words, self.reason) if part), 200)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is looked for: a case or a command, and what is to be known of it.

    ``what``: whether candidates are versions or images.
    """

    title: str
    about: str = ""
    what: str = "version"


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
    def edges(self) -> dict[Side, Edge]:
        """The edges that are known, where the ends are as they were named."""
        if wrong_ends(self.search):
            return {}
        found = {side: find_edge(self.search, side) for side in Side}
        return {side: edge for side, edge in found.items() if edge is not None}

    @property
    def is_found(self) -> bool:
        """Whether an edge is known that nothing is left to try of: that between the ends, if both are named.

        One that versions which cannot say blur is found, too.
        """
        search, sides = self.search, {side for side, edge in self.edges.items() if not edge.left}
        if search.good is None or search.bad is None:
            return bool(sides)
        return (Side.CAME_IN if search.good < search.bad else Side.FIXED) in sides

    @property
    def tried(self) -> tuple[int, ...]:
        """Those that were run in this search."""
        return tuple(sorted(n for n, reply in self.replies.items() if reply.tried))

    def name(self, number: int) -> str:
        """Return a candidate's name."""
        return self.candidates[number].name

    @property
    def shown(self) -> tuple[int, ...]:
        """Those that show the result: the ends of its edges, else all that were run."""
        ends = {end for edge in self.edges.values() for end in (edge.good, edge.bad)}
        return tuple(sorted(ends)) or self.tried

    def ends(self, names: Callable[[int], str]) -> list[str]:
        """Return the options that name the ends: those of the first edge, else those that were named."""
        found = next(iter(self.edges.values()), self.search)
        named = (("--good", found.good), ("--bad", found.bad))
        return [word for option, end in named if end is not None for word in (option, names(end))]


def render_bisect_text(report: Report) -> str:
    """Return the result for a terminal: the row, the paragraph, the commands."""
    rows = [[one_line(cell, 56) for cell in _row(report, n)] for n in range(len(report.candidates))]
    shown = tabulate(rows, headers=HEADS, tablefmt="plain", disable_numparse=True)
    lines = [*map(str.rstrip, shown.splitlines()), "", *_sentences(report, one_line, str)]
    return "\n".join([*lines, "", "Reproduce with:", *(f"  {line}" for line in report.commands)]) + "\n"


def render_bisect_markdown(report: Report) -> str:
    """Return the result as GitHub Markdown: the paragraph, the row folded, the commands."""
    rows = [_row(report, number) for number in range(len(report.candidates))]
    shown = table(
        [report.subject.what, *HEADS[1:]], [[code(name), *map(plain, cells)] for name, *cells in rows]
    )
    parts = [
        " ".join(_sentences(report, code, plain)), fold(f"All {len(rows)} {report.subject.what}s", shown),
        f"Reproduce with:\n\n{fence(chr(10).join(report.commands))}",
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def bisect_json(report: Report) -> str:
    """Return the result as strict JSON; what is not known is null."""
    edges = report.edges
    came, fixed = edges.get(Side.CAME_IN), edges.get(Side.FIXED)
    found = {
        "last_good": came and report.name(came.good), "first_bad": came and report.name(came.bad),
        "last_bad": fixed and report.name(fixed.bad), "first_fixed": fixed and report.name(fixed.good),
    }  # fmt: skip
    row = list[dict[str, Any]]()
    for number, candidate in enumerate(report.candidates):
        reply, hint = report.replies.get(number), report.search.hints.get(number)
        said = vars(reply) if reply else {"answer": None}
        known = {key: None if value == "" else value for key, value in said.items()}
        row.append({"name": candidate.name, "image": candidate.image or None, "hint": hint, **known})
    data = {
        "schema": SCHEMA, "subject": vars(report.subject), "found": report.is_found, **found,
        "edges": [
            {"side": side.value, "good": report.name(edge.good), "bad": report.name(edge.bad),
             "cannot_say": [*map(report.name, edge.silent)], "not_tried": [*map(report.name, edge.left)]}
            for side, edge in edges.items()
        ],
        "monotone": is_monotone(report.search), "cut_short": report.cut_short or None,
        "tried": [*map(report.name, report.tried)],
        "row": row, "paragraph": " ".join(_sentences(report, code, plain)), "commands": report.commands,
        "tool": report.tool,
    }  # fmt: skip
    return to_json(data)


def _sentences(report: Report, mark: Mark, escape: Mark) -> Iterator[str]:
    """Yield what is to be said, one matter each; ``mark`` writes a name, ``escape`` any text of others."""
    search = report.search
    about = f" ({escape(report.subject.about)})" if report.subject.about else ""
    yield f"{mark(report.subject.title)}{about}:"
    wrong = wrong_ends(search)
    for number in wrong:
        wanted, reply = "good" if number == search.good else "bad", report.replies[number]
        yield (
            f"{mark(report.name(number))}, named by --{wanted}, is not {wanted} here but "
            f"{escape(reply.answer.value)} ({escape(reply.why)}): nothing was searched; name another end."
        )
    if not wrong:
        yield from _edge_sentences(report, mark)
    if not is_monotone(search):
        bad = mark(report.name(find_bad(search) or 0))
        yield f"Warning: the history is not monotone; the edges named are those nearest to {bad}."
    silent: dict[str, list[str]] = {}
    for number in search.all(Answer.CANNOT_SAY):
        silent.setdefault(report.replies[number].why, []).append(mark(report.name(number)))
    if silent:
        told = "; ".join(f"{', '.join(names)} ({escape(why)})" for why, names in silent.items())
        yield f"Cannot say: {told}."
    every, answered = len(report.candidates), search.answers.items()
    known = sum(a is not Answer.CANNOT_SAY and not report.replies[n].tried for n, a in answered)
    rests = f"; {escape(report.rests_on)}" if report.rests_on else ""
    yield f"{len(report.tried)} of {every} {report.subject.what}s run, {known} known without a run{rests}."
    if report.cut_short:
        yield f"The search was cut short: {escape(report.cut_short)}."


def _edge_sentences(report: Report, mark: Mark) -> Iterator[str]:
    bads, edges = report.search.all(Answer.BAD), report.edges
    if not bads:
        so_far = " until then" if report.cut_short else ""
        yield f"Nothing that was tried{so_far} fails: name what does by --bad, or see nox -s doctor."
        return
    oldest, newest = mark(report.name(bads[0])), mark(report.name(bads[-1]))
    if (came := edges.get(Side.CAME_IN)) is not None:
        first = _first(report, came, "first bad", came.bad, mark)
        yield f"Last good {mark(report.name(came.good))}, {first}."
    else:
        yield f"It fails at {oldest}, and nothing older is known to be good: where it came in is not known."
    if (fixed := edges.get(Side.FIXED)) is not None:
        first = _first(report, fixed, "first fixed", fixed.good, mark)
        yield f"Last bad {mark(report.name(fixed.bad))}, {first}."
    else:
        yield f"It is not fixed in {newest}, and nothing newer is known to be good."


def _first(report: Report, edge: Edge, words: str, end: int, mark: Mark) -> str:
    """Say the first of a stretch: one, or one of those that no answer parts."""
    names = [mark(report.name(n)) for n in sorted((*edge.silent, *edge.left))]
    if not names:
        return f"{words} {mark(report.name(end))}"
    lacks = [*(["cannot say"] if edge.silent else []), *(["was not tried"] if edge.left else [])]
    if len(names) > MOST_NAMES:
        names = [names[0], f"… {len(names) - 2} more …", names[-1]]
    return f"{words} {mark(report.name(end))} or one before it that {' and '.join(lacks)}: {', '.join(names)}"


def _row(report: Report, number: int) -> list[str]:
    """Return a candidate's name, answer, what came out, and how that is known, with what it ran on."""
    name, reply = report.name(number), report.replies.get(number)
    if reply is None:
        hint = report.search.hints.get(number)
        return [name, "not tried", "", f"reported or recorded as {hint.value}" if hint else ""]
    facts = {"library": reply.library, "driver": reply.driver, "image": reply.digest or reply.image_id}
    known = [reply.known, *(f"{what} {value}" for what, value in facts.items() if value)]
    shown = reply.why + (f", {reply.figure}" if reply.figure else "")
    return [name, reply.answer.value, shown, "; ".join(known)]
