"""The command bisect: finds the versions or images where a failure came in and where it was fixed."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from trtmatrix import __version__
from trtmatrix.core.bisect import Answer, Search, learn, most_tries, next_try
from trtmatrix.core.bisect_report import Again, Candidate, Reply, Report, Subject
from trtmatrix.core.errors import ExitCode, MachineryError, UsageError

Tell = Callable[[str], None]


class Asker(Protocol):
    """Knows a row of candidates, and asks one of them."""

    candidates: tuple[Candidate, ...]
    subject: Subject
    rests_on: str
    interrupted: str
    """What is said of a search that was interrupted: whether it goes on, or starts anew."""

    def known(self) -> tuple[Mapping[int, Reply], Mapping[int, Answer]]:
        """Return what is answered without running anything, and what is only reported."""

    def here(self) -> frozenset[int]:
        """Return those that can be asked without a pull or a build; known after :meth:`known`."""

    def ask(self, number: int) -> Reply:
        """Run a candidate; :class:`SearchEnd` where the search is to end."""

    def commands(self, again: Again) -> tuple[str, ...]:
        """Return the commands that show this again, one after another."""


class SearchEnd(MachineryError):
    """The search is to end; what is known is printed."""


def bisect_command(args: argparse.Namespace) -> ExitCode:
    """Search, and print the report; the exit code says whether an edge was found."""
    check_options(args)
    asker = _make_asker(args)
    search = Search(
        count=len(asker.candidates), good=_end(asker, "--good", args.good),
        bad=_end(asker, "--bad", args.bad),
    )  # fmt: skip
    if search.good is not None and search.good == search.bad:
        raise UsageError(f"--good and --bad are both {args.good}: name two")
    report, code = run_search(asker, search, can_run=not args.no_run, tell=_tell)
    _show(args, report)
    return code


def run_search(asker: Asker, search: Search, *, can_run: bool, tell: Tell) -> tuple[Report, ExitCode]:
    """Ask until nothing is to be learnt, and return what came out; an interrupt keeps what is known."""
    replies: dict[int, Reply] = {}
    cut_short, code, number = "", ExitCode.SURPRISE, None
    try:
        known, hints = asker.known()
        replies.update(known)
        answers = {number: reply.answer for number, reply in known.items()}
        search = replace(search, answers=answers, hints=hints, here=asker.here())
        tell(_opening(asker, known))
        while (number := next_try(search)) is not None:
            reply = _ask(asker, search, number, tell) if can_run else _NOT_RUN
            replies[number] = reply
            search = learn(search, number, reply.answer)
    except KeyboardInterrupt:
        cut_short, code = asker.interrupted, ExitCode.INTERRUPTED
    except MachineryError as error:
        cut_short, code = str(error), error.exit_code
    if cut_short and can_run and number is not None:  # it was run, and has not answered
        replies.setdefault(number, _CUT_SHORT)
    report = Report(
        subject=asker.subject, candidates=asker.candidates, search=search, replies=replies,
        rests_on=asker.rests_on, cut_short=cut_short, tool=f"trtmatrix {__version__}",
    )  # fmt: skip
    report = replace(report, commands=asker.commands(_again(report)))
    if not cut_short and report.is_found:
        code = ExitCode.AS_EXPECTED
    return report, code


_CUT_SHORT = Reply(
    answer=Answer.CANNOT_SAY, words="the search ended while it ran", known="run now", tried=True
)
_NOT_RUN = Reply(answer=Answer.CANNOT_SAY, words="no record", known="not run (--no-run)")


def _ask(asker: Asker, search: Search, number: int, tell: Tell) -> Reply:
    most = most_tries(search)
    ahead = f", {most} to go at most" if most > 1 else ""
    tell(f"{asker.candidates[number].name}: asked{ahead}")
    reply = asker.ask(number)
    tell(f"{asker.candidates[number].name}: {reply.answer.value} ({reply.why})")
    return reply


def _again(report: Report) -> Again:
    """Return what shows a result again: the ends of its edges, and what lies between them."""
    edges, search = report.edges, report.search
    shown = {end for edge in edges for end in (edge.good, edge.bad)} or set(report.tried)
    between = {n for edge in edges for n in (*edge.silent, *edge.left)}
    row = sorted(shown | between) if edges else range(search.count)
    good, bad = (edges[0].good, edges[0].bad) if edges else (search.good, search.bad)
    return Again(shown=tuple(sorted(shown)), row=tuple(row), good=good, bad=bad)


def _opening(asker: Asker, known: Mapping[int, Reply]) -> str:
    what, count = asker.subject.what, len(asker.candidates)
    said = sum(reply.answer is not Answer.CANNOT_SAY for reply in known.values())
    return f"{count} {what}s; {said} of them answered by what is stored"


def _end(asker: Asker, option: str, name: str | None) -> int | None:
    """Return the number of a named end; :class:`UsageError` where there is none or several."""
    if name is None:
        return None
    names = [candidate.name for candidate in asker.candidates]
    found = [n for n, known in enumerate(names) if known == name]
    if len(found) == 1:
        return found[0]
    near = [known for known in names if known.startswith(f"{name}.") or name.startswith(f"{known}.")]
    near = near or difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"perhaps you meant {', '.join(near)}" if near else f"they are {', '.join(names)}"
    raise UsageError(f"{option} {name}: not among the {len(names)} {asker.subject.what}s; {hint}")


def check_options(args: argparse.Namespace) -> None:
    """Refuse what makes no sense together, before anything is read."""
    asked = [
        name for name, value in (
            ("--case", args.wanted_case), ("--exec", args.shell_command), ("--model", args.model)
        ) if value is not None
    ]  # fmt: skip
    if len(asked) != 1:
        what = f"{' and '.join(asked)} are two things" if asked else "nothing is looked for"
        raise UsageError(f"{what}: name one of --case CASE, --model FILE.onnx, --exec COMMAND")
    if args.shell_command is not None:
        for option, given in (("--no-run", args.no_run), ("--gpu", args.wanted_gpu)):
            if given:
                raise UsageError(
                    f"{option}: nothing is stored of a command, and it takes what it needs itself"
                )
    if args.image and args.images:
        raise UsageError("--image and --images: name the images by one of the two")
    if args.output is not None and (args.output.suffix != ".md" or not args.output.parent.is_dir()):
        raise UsageError(f"--output {args.output}: name a file .md in a folder that is there")


def _make_asker(args: argparse.Namespace) -> Asker:
    """Return what asks, each kind imported only where it is wanted."""
    if args.shell_command is not None:
        from trtmatrix.bisect_exec import open_commands

        return open_commands(args)
    if args.image or args.images:
        from trtmatrix.bisect_images import open_images

        return open_images(args)
    from trtmatrix.bisect_versions import open_versions

    return open_versions(args)


def _tell(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(f"bisect: {text}", file=sys.stderr, flush=True)


def _show(args: argparse.Namespace, report: Report) -> None:
    """Print the report, and write it where asked for."""
    from trtmatrix.core import render_bisect

    if args.output is not None:
        markdown = render_bisect.render_bisect_markdown(report)
        args.output.write_text(_make_public(markdown, args, report), encoding="utf-8")
    text = render_bisect.bisect_json(report) if args.json else render_bisect.render_bisect_text(report)
    with contextlib.suppress(BrokenPipeError):  # the exit code stays what was found
        print(text, end="", flush=True)


def _make_public(markdown: str, args: argparse.Namespace, report: Report) -> str:
    """Return a report that is meant for others without what is private on this host; what went is told."""
    from trtmatrix.bugs.redact import Redactor, known_values

    places = [path.resolve().parent for path in (args.matrix, args.repros, args.results)]
    places += [args.cache.resolve()] if args.cache else []
    named = [name for c in report.candidates for name in (c.name, c.image) if name]
    versions = [reply.library for reply in report.replies.values() if reply.library]
    redactor = Redactor(known=known_values(places), keep=frozenset([*named, *versions]))
    text = redactor.clean(str(args.output), markdown)
    if redactor.taken:
        _tell(f"{args.output}: taken out as private: {redactor.told(str(args.output))}")
    return text
