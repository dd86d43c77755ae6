"""A bisect's result as text, as Markdown that is ready to paste into an issue, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tabulate import tabulate

from trtmatrix.core.bisect import Answer, Edge, Side, is_monotone, wrong_ends
from trtmatrix.core.bisect_report import Reply, Report
from trtmatrix.core.jsontext import to_json
from trtmatrix.core.markdown import bullets, code, fence, fold, link, plain, table
from trtmatrix.core.table import one_line

SCHEMA = 1
"""The number of the JSON's shape."""

WIDTH = 100
_HEADS = ("", "answer", "what came out", "how it is known")

_NOTHING_FAILS = "Nothing that was tried fails, so there is no edge to find: name what fails by --bad."
_NOTHING_SAYS = (
    "Nothing could say, so there is nothing to search: nox -s doctor says what keeps it from running."
)

NOT_TRIED = "not tried"

Mark = Callable[[str], str]


def render_bisect_text(report: Report) -> str:
    """Return the result for a terminal: the row, the paragraph, the commands."""
    rows = [_row(report, number) for number in range(len(report.candidates))]
    shown = tabulate(
        [[one_line(cell, 56) for cell in row] for row in rows], headers=_HEADS, tablefmt="plain",
        disable_numparse=True,
    )  # fmt: skip
    parts = ["\n".join(line.rstrip() for line in shown.splitlines())]
    parts += [textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)
              for line in _sentences(report, one_line, str)]  # fmt: skip
    facts = [f"  {name}: {words}" for name, words in _facts(report)]
    parts += ["\n".join(facts)] if facts else []
    parts += ["\n".join(["Reproduce with:", *(f"  {line}" for line in report.commands)])]
    return "\n\n".join(parts) + "\n"


def render_bisect_markdown(report: Report) -> str:
    """Return the result as GitHub Markdown: the paragraph, the evidence, the row folded, the commands."""
    parts = [" ".join(_sentences(report, code, plain))]
    parts += [bullets(f"{name}: {plain(words)}" for name, words in _facts(report))]
    heads = [report.subject.what, *_HEADS[1:]]
    rows = [
        [code(name), *map(plain, cells)]
        for name, *cells in (_row(report, number) for number in range(len(report.candidates)))
    ]
    parts += [fold(f"All {len(rows)} {report.subject.what}s", table(heads, rows))]
    parts += [f"Reproduce with:\n\n{fence(chr(10).join(report.commands))}"]
    return "\n\n".join(part for part in parts if part) + "\n"


def bisect_json(report: Report) -> str:
    """Return the result as strict JSON; what is not known is null."""
    data = {
        "schema": SCHEMA, "subject": vars(report.subject), "found": report.is_found,
        "last_good": _named(report, report.came_in, "good"),
        "first_bad": _named(report, report.came_in, "bad"),
        "last_bad": _named(report, report.fixed, "bad"),
        "first_fixed": _named(report, report.fixed, "good"),
        "edges": [_edge(report, edge) for edge in report.edges],
        "monotone": is_monotone(report.search), "cut_short": report.cut_short or None,
        "tried": [report.name(number) for number in report.tried],
        "row": [_line(report, number) for number in range(len(report.candidates))],
        "paragraph": " ".join(_sentences(report, code, plain)), "commands": report.commands,
        "tool": report.tool,
    }  # fmt: skip
    return to_json(data)


def _sentences(report: Report, mark: Mark, escape: Mark) -> Iterator[str]:
    """Yield what is to be said, one matter each; ``mark`` writes a name, ``escape`` any text of others."""
    yield _opening(report, mark, escape)
    wrong = wrong_ends(report.search)
    yield from (_wrong_end(report, number, mark, escape) for number in wrong)
    if not wrong:
        yield from _came_in(report, mark)
        yield from _fixed(report, mark)
    if not is_monotone(report.search):
        yield _not_monotone(report, mark)
    if report.silent:
        yield f"Cannot say: {'; '.join(_silent(report, mark, escape))}."
    if hinted := _hinted(report):
        yield f"Reported or recorded before a change, and not counted: {_stretches(report, hinted, mark)}."
    yield _counts(report, escape)
    if report.cut_short:
        yield f"The search was cut short: {escape(report.cut_short)}."


def _opening(report: Report, mark: Mark, escape: Mark) -> str:
    subject = report.subject
    about = ", ".join(escape(part) for part in (subject.about,) if part)
    upstream = subject.upstream
    if upstream:
        shown = link(subject.url, upstream) if escape is plain and subject.url else escape(upstream)
        about += (", " if about else "") + shown
    place = " on ".join(escape(part) for part in (subject.product, subject.place) if part)
    return mark(subject.title) + (f" ({about})" if about else "") + (f" with {place}" if place else "") + ":"


def _came_in(report: Report, mark: Mark) -> Iterator[str]:
    edge, bad = report.came_in, report.bad
    if bad is None:
        if report.cut_short:
            yield "Nothing that was tried until then fails." if report.stretches else "Nothing is known yet."
        else:
            yield _NOTHING_FAILS if report.stretches else _NOTHING_SAYS
        return
    if edge is not None:
        first = _first(report, edge, "first bad", edge.bad, mark)
        yield f"Last good {mark(report.name(edge.good))}, {first}."
        return
    beyond = [n for n, answer in report.search.answers.items() if n <= bad and answer is Answer.BAD]
    oldest, before = min(beyond), [n for n in range(min(beyond)) if n not in report.search.answers]
    what = "and none before it was tried" if before else "the oldest that can say"
    yield f"It fails at {mark(report.name(oldest))}, {what}: where it came in is not known."


def _fixed(report: Report, mark: Mark) -> Iterator[str]:
    edge, bad = report.fixed, report.bad
    if bad is None:
        return
    if edge is not None:
        first = _first(report, edge, "first fixed", edge.good, mark)
        yield f"Last bad {mark(report.name(edge.bad))}, {first}."
        return
    newest = max(n for n, answer in report.search.answers.items() if n >= bad and answer is Answer.BAD)
    left = [n for n in range(newest + 1, report.search.count) if n not in report.search.answers]
    what = "the newest that was tried" if left else "the newest that can say"
    yield f"It is not fixed in {mark(report.name(newest))}, {what}."


def _first(report: Report, edge: Edge, words: str, end: int, mark: Mark) -> str:
    """Say the first of a stretch: one, or one of those that no answer parts."""
    if edge.is_sharp:
        return f"{words} {mark(report.name(end))}"
    unclear = sorted((*edge.silent, *edge.left), reverse=False)
    names = [mark(report.name(n)) for n in unclear]
    lacks = " and ".join(
        part for part in (
            "cannot say" if edge.silent else "", "was not tried" if edge.left else "",
        ) if part
    )  # fmt: skip
    if len(names) > 4:
        names = [names[0], f"… {len(names) - 2} more …", names[-1]]
    return f"{words} {mark(report.name(end))} or one before it that {lacks}: {', '.join(names)}"


def _wrong_end(report: Report, number: int, mark: Mark, escape: Mark) -> str:
    wanted = "good" if number == report.search.good else "bad"
    reply = report.replies[number]
    return (
        f"{mark(report.name(number))}, named by --{wanted}, is not {wanted} here but "
        f"{escape(reply.answer.value)} ({escape(reply.why)}): nothing was searched; name another end."
    )


def _not_monotone(report: Report, mark: Mark) -> str:
    said = _stretches(report, report.stretches, mark)
    return (
        f"Warning: the history is not monotone ({said}): there are more edges than one of a kind, and those "
        f"named here are the nearest to {mark(report.name(report.bad or 0))}."
    )


def _stretches(report: Report, stretches: Iterable[tuple[Answer, tuple[int, ...]]], mark: Mark) -> str:
    return ", ".join(
        f"{answer.value} at {mark(report.name(numbers[0]))}"
        + (f" to {mark(report.name(numbers[-1]))}" if len(numbers) > 1 else "")
        for answer, numbers in stretches
    )


def _silent(report: Report, mark: Mark, escape: Mark) -> list[str]:
    """Return those that cannot say, the ones of one reason together."""
    groups: dict[str, list[str]] = {}
    for number in report.silent:
        groups.setdefault(report.replies[number].why, []).append(mark(report.name(number)))
    return [f"{', '.join(names)} ({escape(why)})" for why, names in groups.items()]


def _hinted(report: Report) -> list[tuple[Answer, tuple[int, ...]]]:
    """Return what is only reported, of those that have not answered by themselves."""
    said = {n for _, numbers in report.stretches for n in numbers}
    return [(hint, (n,)) for n, hint in sorted(report.search.hints.items()) if n not in said]


def _counts(report: Report, escape: Mark) -> str:
    tried, every = len(report.tried), len(report.candidates)
    untried = [reply for reply in report.replies.values() if not reply.tried]
    known = sum(reply.answer is not Answer.CANNOT_SAY for reply in untried)
    what = report.subject.what + ("" if every == 1 else "s")
    parts = [f"{tried} of {every} {what} run"]
    parts += [f"{known} known without a run"] if known else []
    parts += [f"{len(untried) - known} that cannot be run here"] if len(untried) > known else []
    rests = f"; {escape(report.rests_on)}" if report.rests_on else ""
    return f"{', '.join(parts)}{rests}."


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the evidence at each end of each edge, with the image's digest."""
    for edge in report.edges:
        came = edge.side is Side.CAME_IN
        ends = (("last good", edge.good), ("first bad", edge.bad))
        if not came:
            ends = (("last bad", edge.bad), ("first fixed", edge.good))
        for words, number in ends:
            reply = report.replies.get(number)
            if reply is not None:
                yield words, f"{report.name(number)}: {_evidence(report, reply)}"


def _evidence(report: Report, reply: Reply) -> str:
    figure = f"{report.subject.figure_label or 'figure'} {reply.figure}" if reply.figure else ""
    parts = [reply.why, figure, reply.known, f"library {reply.library}" if reply.library else ""]
    parts += [f"driver {reply.driver}" if reply.driver else ""]
    if reply.image or reply.image_id:
        parts.append(f"image {reply.image or reply.image_id}")
    return "; ".join(part for part in parts if part)


def _row(report: Report, number: int) -> list[str]:
    name, reply = report.name(number), report.replies.get(number)
    if reply is None:
        hint = report.search.hints.get(number)
        return [name, NOT_TRIED, "", f"reported or recorded as {hint.value}" if hint else ""]
    shown = reply.why + (f", {reply.figure}" if reply.figure else "")
    return [name, reply.answer.value, shown, reply.known]


def _named(report: Report, edge: Edge | None, end: str) -> str | None:
    if edge is None or edge not in report.edges:
        return None
    return report.name(edge.good if end == "good" else edge.bad)


def _edge(report: Report, edge: Edge) -> dict[str, Any]:
    return {
        "side": edge.side.value, "good": report.name(edge.good), "bad": report.name(edge.bad),
        "cannot_say": [report.name(n) for n in edge.silent], "not_tried": [report.name(n) for n in edge.left],
    }  # fmt: skip


def _line(report: Report, number: int) -> dict[str, Any]:
    candidate, reply = report.candidates[number], report.replies.get(number)
    hint = report.search.hints.get(number)
    line: dict[str, Any] = {
        "name": candidate.name,
        "image": candidate.image or None,
        "hint": hint.value if hint else None,
    }
    if reply is None:
        return {**line, "answer": None}
    facts = ("words", "figure", "reason", "known", "image_id", "library", "driver")
    return {
        **line, "answer": reply.answer.value, "tried": reply.tried, "digest": reply.image or None,
        **{name: getattr(reply, name) or None for name in facts},
    }  # fmt: skip
