"""The command bisect: finds the versions or images where a failure came in and where it was fixed."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace

from trtmatrix import __version__
from trtmatrix.bugs.ask import Asker, BisectOptions, ShellCommand, UserImages, Versions
from trtmatrix.bugs.bisect_report import (
    Reply,
    Report,
    bisect_json,
    render_bisect_markdown,
    render_bisect_text,
)
from trtmatrix.bugs.redact import Redactor, known_values
from trtmatrix.bugs.search import Answer, Search, learn, next_try
from trtmatrix.common.errors import ExitCode, MachineryError, UsageError
from trtmatrix.common.paths import check_outputs, write_output
from trtmatrix.suite.cells import unlisted_version


def bisect_command(options: BisectOptions) -> ExitCode:
    """Search, and print the report; the exit code says whether an edge was found."""
    command = options.shell_command
    sought = {"--case": options.wanted_case, "--exec": command, "--model": options.model.model}
    asked = [name for name, value in sought.items() if value is not None]
    if len(asked) != 1:
        what = f"{' and '.join(asked)} are two things" if asked else "nothing is looked for"
        raise UsageError(f"{what}: name one of --case CASE, --model FILE.onnx, --exec COMMAND")
    stored = {
        "--no-run": options.no_run, "--gpu": options.wanted_gpu, "--pull": options.pull,
        "--rebuilds": options.rebuilds,
    }  # fmt: skip
    for option, value in stored.items():
        if command is not None and value:
            raise UsageError(f"{option}: nothing is stored of a command, and it takes what it needs itself")
    check_outputs([options.output] if options.output else [], (".md",))
    kind = UserImages if options.image else Versions
    asker: Asker = (kind if command is None else ShellCommand)(options)
    names = [candidate.name for candidate in asker.candidates]
    if len(names) < 2:
        raise UsageError(
            f"--product {options.product.value}: {options.project.matrix} has fewer than two versions of it "
            "that could be searched: add some, or name --image"
        )
    ends = {"--good": options.good, "--bad": options.bad}
    for option, name in ends.items():
        if name is not None and name not in names:
            raise UsageError(unlisted_version(option, name, names))
    if options.good is not None and options.good == options.bad:
        raise UsageError(f"--good and --bad are both {options.good}: name two")
    good, bad = (None if name is None else names.index(name) for name in ends.values())
    search = Search(count=len(names), good=good, bad=bad)
    report, code = run_search(asker, search, can_run=not options.no_run)
    if options.output is not None:
        markdown = render_bisect_markdown(report)
        write_output(options.output, _make_public(markdown, options, report))
    text = bisect_json(report) if options.json else render_bisect_text(report)
    with contextlib.suppress(BrokenPipeError):  # the exit code stays what was found
        print(text, end="", flush=True)
    return code


def run_search(asker: Asker, search: Search, *, can_run: bool) -> tuple[Report, ExitCode]:
    """Ask until nothing is to be learnt, and return what came out; an interrupt keeps what is known."""
    replies: dict[int, Reply] = {}
    cut_short, code, number = "", ExitCode.SURPRISE, None
    try:
        known, hints = asker.known()
        replies.update(known)
        search = replace(search, answers={n: reply.answer for n, reply in known.items()}, hints=hints)
        said = sum(reply.answer is not Answer.CANNOT_SAY for reply in known.values())
        _tell(f"{len(asker.candidates)} {asker.subject.what}s; {said} of them answered by what is stored")
        while (number := next_try(search)) is not None:
            reply = Reply(answer=Answer.CANNOT_SAY, words="no record", known="not run (--no-run)")
            if can_run:
                _tell(f"{asker.candidates[number].name}: asked")
                reply = asker.ask(number)
                _tell(f"{asker.candidates[number].name}: {reply.answer.value} ({reply.why})")
            replies[number] = reply
            search = learn(search, number, reply.answer)
    except KeyboardInterrupt:
        cut_short, code = asker.interrupted, ExitCode.INTERRUPTED
    except MachineryError as error:
        cut_short, code = str(error), error.exit_code
    if cut_short and can_run and number is not None:  # it was run, and has not answered
        words = "the search ended while it ran"
        unknown = Reply(answer=Answer.CANNOT_SAY, words=words, known="run now", tried=True)
        replies.setdefault(number, unknown)
    report = Report(
        subject=asker.subject, candidates=asker.candidates, search=search, replies=replies,
        rests_on=asker.rests_on, cut_short=cut_short, tool=f"trtmatrix {__version__}",
    )  # fmt: skip
    if not cut_short and report.is_found:
        code = ExitCode.AS_EXPECTED
    return replace(report, commands=asker.commands(report)), code


def _make_public(markdown: str, options: BisectOptions, report: Report) -> str:
    """Return a report that is meant for others without what is private on this host; what went is told."""
    project = options.project
    places = [path.resolve().parent for path in (project.matrix, project.repros, project.results)]
    places += [project.cache.resolve()] if project.cache else []
    named = [name for c in report.candidates for name in (c.name, c.image) if name]
    versions = [reply.library for reply in report.replies.values() if reply.library]
    redactor = Redactor(known=known_values(places), keep=frozenset([*named, *versions]))
    text = redactor.clean(str(options.output), markdown)
    if redactor.taken:
        _tell(f"{options.output}: taken out as private: {redactor.told(str(options.output))}")
    return text


def _tell(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(f"bisect: {text}", file=sys.stderr, flush=True)
