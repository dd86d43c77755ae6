"""A bisect's result: what was asked and what each answered; as text, as Markdown for an issue, as JSON. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tabulate import tabulate

from trtmatrix.bugs.search import (
    Answer,
    Edge,
    Search,
    Side,
    find_bad,
    find_edge,
    find_runs,
    is_monotone,
    wrong_ends,
)
from trtmatrix.core.jsontext import to_json
from trtmatrix.core.markdown import bullets, code, fence, fold, link, plain, table
from trtmatrix.core.table import one_line

SCHEMA = 1
"""The number of the JSON's shape."""

WIDTH = 100
HEADS = ("", "answer", "what came out", "how it is known")
MOST_NAMES = 4

NOTHING_FAILS = "Nothing that was tried fails, so there is no edge to find: name what fails by --bad."
NOTHING_SAYS = (
    "Nothing could say, so there is nothing to search: nox -s doctor says what keeps it from running."
)

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
    ``image``: ``name@sha256:…`` as a registry has it; ``image_id``: the image's own digest. ``tried``:
    something was run for it in this search.
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

    def again(self) -> Again:
        """Return what shows the result again: the ends of its edges, and what lies between them."""
        edges, search = list(self.edges.values()), self.search
        shown = {end for edge in edges for end in (edge.good, edge.bad)} or set(self.tried)
        between = {n for edge in edges for n in (*edge.silent, *edge.left)}
        row = sorted(shown | between) if edges else range(search.count)
        good, bad = (edges[0].good, edges[0].bad) if edges else (search.good, search.bad)
        return Again(shown=tuple(sorted(shown)), row=tuple(row), good=good, bad=bad)


def render_bisect_text(report: Report) -> str:
    """Return the result for a terminal: the row, the paragraph, the commands."""
    rows = [[one_line(cell, 56) for cell in _row(report, n)] for n in range(len(report.candidates))]
    shown = tabulate(rows, headers=HEADS, tablefmt="plain", disable_numparse=True)
    parts = ["\n".join(line.rstrip() for line in shown.splitlines())]
    parts += [textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)
              for line in _sentences(report, one_line, str)]  # fmt: skip
    facts = [f"  {words}: {evidence}" for words, evidence in _facts(report)]
    parts += ["\n".join(facts)] if facts else []
    parts += ["\n".join(["Reproduce with:", *(f"  {line}" for line in report.commands)])]
    return "\n\n".join(parts) + "\n"


def render_bisect_markdown(report: Report) -> str:
    """Return the result as GitHub Markdown: the paragraph, the evidence, the row folded, the commands."""
    rows = [
        [code(name), *map(plain, cells)]
        for name, *cells in (_row(report, n) for n in range(len(report.candidates)))
    ]
    what = report.subject.what
    parts = [
        " ".join(_sentences(report, code, plain)),
        bullets(f"{words}: {plain(evidence)}" for words, evidence in _facts(report)),
        fold(f"All {len(rows)} {what}s", table([what, *HEADS[1:]], rows)),
        f"Reproduce with:\n\n{fence(chr(10).join(report.commands))}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def bisect_json(report: Report) -> str:
    """Return the result as strict JSON; what is not known is null."""
    edges = report.edges

    def end(side: Side, which: str) -> str | None:
        return report.name(getattr(edges[side], which)) if side in edges else None

    data = {
        "schema": SCHEMA, "subject": vars(report.subject), "found": report.is_found,
        "last_good": end(Side.CAME_IN, "good"), "first_bad": end(Side.CAME_IN, "bad"),
        "last_bad": end(Side.FIXED, "bad"), "first_fixed": end(Side.FIXED, "good"),
        "edges": [
            {
                "side": side.value, "good": report.name(edge.good), "bad": report.name(edge.bad),
                "cannot_say": [report.name(n) for n in edge.silent],
                "not_tried": [report.name(n) for n in edge.left],
            }
            for side, edge in edges.items()
        ],
        "monotone": is_monotone(report.search), "cut_short": report.cut_short or None,
        "tried": [report.name(number) for number in report.tried],
        "row": [_line(report, number) for number in range(len(report.candidates))],
        "paragraph": " ".join(_sentences(report, code, plain)), "commands": report.commands,
        "tool": report.tool,
    }  # fmt: skip
    return to_json(data)


def _sentences(report: Report, mark: Mark, escape: Mark) -> Iterator[str]:
    """Yield what is to be said, one matter each; ``mark`` writes a name, ``escape`` any text of others."""
    yield _opening(report.subject, mark, escape)
    wrong = wrong_ends(report.search)
    for number in wrong:
        wanted, reply = "good" if number == report.search.good else "bad", report.replies[number]
        yield (
            f"{mark(report.name(number))}, named by --{wanted}, is not {wanted} here but "
            f"{escape(reply.answer.value)} ({escape(reply.why)}): nothing was searched; name another end."
        )
    if not wrong:
        yield from _edge_sentences(report, mark)
    if not is_monotone(report.search):
        said = ", ".join(
            f"{answer.value} at {mark(report.name(numbers[0]))}"
            + (f" to {mark(report.name(numbers[-1]))}" if len(numbers) > 1 else "")
            for answer, numbers in find_runs(report.search)
        )
        yield (
            f"Warning: the history is not monotone ({said}): there are more edges than one of a kind, and "
            f"those named here are the nearest to {mark(report.name(find_bad(report.search) or 0))}."
        )
    silent: dict[str, list[str]] = {}
    for number in report.search.all(Answer.CANNOT_SAY):
        silent.setdefault(report.replies[number].why, []).append(mark(report.name(number)))
    if silent:
        told = "; ".join(f"{', '.join(names)} ({escape(why)})" for why, names in silent.items())
        yield f"Cannot say: {told}."
    yield _counts(report, escape)
    if report.cut_short:
        yield f"The search was cut short: {escape(report.cut_short)}."


def _opening(subject: Subject, mark: Mark, escape: Mark) -> str:
    linked = escape is plain and bool(subject.url)
    upstream = link(subject.url, subject.upstream) if linked else escape(subject.upstream)
    about = ", ".join(part for part in (escape(subject.about), upstream if subject.upstream else "") if part)
    place = " on ".join(escape(part) for part in (subject.product, subject.place) if part)
    return mark(subject.title) + (f" ({about})" if about else "") + (f" with {place}" if place else "") + ":"


def _edge_sentences(report: Report, mark: Mark) -> Iterator[str]:
    """Yield where the failure came in and where it went, or why that is not known."""
    search, bad = report.search, find_bad(report.search)
    if bad is None:
        if report.cut_short:
            yield "Nothing that was tried until then fails." if find_runs(search) else "Nothing is known yet."
        else:
            yield NOTHING_FAILS if find_runs(search) else NOTHING_SAYS
        return
    bads, untried = search.all(Answer.BAD), set(range(search.count)) - set(search.answers)
    if (edge := report.edges.get(Side.CAME_IN)) is not None:
        first = _first(report, edge, "first bad", edge.bad, mark)
        yield f"Last good {mark(report.name(edge.good))}, {first}."
    else:
        oldest = bads[0]
        what = (
            "and none before it was tried"
            if min(untried, default=oldest) < oldest
            else "the oldest that can say"
        )
        yield f"It fails at {mark(report.name(oldest))}, {what}: where it came in is not known."
    if (edge := report.edges.get(Side.FIXED)) is not None:
        first = _first(report, edge, "first fixed", edge.good, mark)
        yield f"Last bad {mark(report.name(edge.bad))}, {first}."
    else:
        newest = bads[-1]
        what = (
            "the newest that was tried"
            if max(untried, default=newest) > newest
            else "the newest that can say"
        )
        yield f"It is not fixed in {mark(report.name(newest))}, {what}."


def _first(report: Report, edge: Edge, words: str, end: int, mark: Mark) -> str:
    """Say the first of a stretch: one, or one of those that no answer parts."""
    names = [mark(report.name(n)) for n in sorted((*edge.silent, *edge.left))]
    if not names:
        return f"{words} {mark(report.name(end))}"
    lacks = [*(["cannot say"] if edge.silent else []), *(["was not tried"] if edge.left else [])]
    if len(names) > MOST_NAMES:
        names = [names[0], f"… {len(names) - 2} more …", names[-1]]
    return f"{words} {mark(report.name(end))} or one before it that {' and '.join(lacks)}: {', '.join(names)}"


def _counts(report: Report, escape: Mark) -> str:
    every = len(report.candidates)
    untried = [reply for reply in report.replies.values() if not reply.tried]
    known = sum(reply.answer is not Answer.CANNOT_SAY for reply in untried)
    parts = [f"{len(report.tried)} of {every} {report.subject.what}{'' if every == 1 else 's'} run"]
    parts += [f"{known} known without a run"] if known else []
    parts += [f"{len(untried) - known} that cannot be run here"] if len(untried) > known else []
    rests = f"; {escape(report.rests_on)}" if report.rests_on else ""
    return f"{', '.join(parts)}{rests}."


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the evidence at each end of each edge, with the image's digest."""
    for side, edge in report.edges.items():
        came = (("last good", edge.good), ("first bad", edge.bad))
        fixed = (("last bad", edge.bad), ("first fixed", edge.good))
        for words, number in came if side is Side.CAME_IN else fixed:
            reply = report.replies.get(number)
            if reply is None:
                continue
            figure = f"{report.subject.figure_label or 'figure'} {reply.figure}" if reply.figure else ""
            parts = [reply.why, figure, reply.known, f"library {reply.library}" if reply.library else ""]
            parts += [f"driver {reply.driver}" if reply.driver else ""]
            parts += [f"image {reply.image or reply.image_id}" if reply.image or reply.image_id else ""]
            yield words, f"{report.name(number)}: {'; '.join(part for part in parts if part)}"


def _row(report: Report, number: int) -> list[str]:
    name, reply = report.name(number), report.replies.get(number)
    if reply is None:
        hint = report.search.hints.get(number)
        return [name, "not tried", "", f"reported or recorded as {hint.value}" if hint else ""]
    return [name, reply.answer.value, reply.why + (f", {reply.figure}" if reply.figure else ""), reply.known]


def _line(report: Report, number: int) -> dict[str, Any]:
    candidate, reply = report.candidates[number], report.replies.get(number)
    hint = report.search.hints.get(number)
    line: dict[str, Any] = {
        "name": candidate.name, "image": candidate.image or None, "hint": hint.value if hint else None,
        "answer": reply.answer.value if reply else None,
    }  # fmt: skip
    if reply is None:
        return line
    facts = ("words", "figure", "reason", "known", "image_id", "library", "driver")
    known = {name: getattr(reply, name) or None for name in facts}
    return {**line, "tried": reply.tried, "digest": reply.image or None, **known}
